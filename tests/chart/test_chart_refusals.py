"""Values that the chart refuses, by the parameter's name. Needs helm, no cluster."""

from __future__ import annotations

import pytest

from tests.chart.rendering import CERTIFICATE, LAUNCHER, VIPU, template

SCHEDULER = "extendedScheduler"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("image.repository=r:5000/ipuhub:1",), "image.repository: r:5000/ipuhub:1 has a tag"),
        (
            ("controller.image.repository=r/web:1",),
            "image.repository: r/web:1 has a tag",
        ),
        (
            ("image.repository=r/i@sha256:0a", "image.tag=v1", LAUNCHER),
            "image.tag: v1 has no effect, as the digest of image.repository r/i@sha256:0a",
        ),
        (
            ("controller.image.repository=r/i@sha256:0a", "controller.image.tag=v2", LAUNCHER),
            "image.tag: v2 has no effect",
        ),
        (
            (
                f"{SCHEDULER}.enabled=true",
                f"{SCHEDULER}.image.repository=r/s@sha256:0a",
                f"{SCHEDULER}.image.tag=v1",
            ),
            "image.tag: v1 has no effect, as the digest of image.repository r/s@sha256:0a",
        ),
        (("image.tag=sha256:0a",), "global.launcherImage is missing: a digest names one image"),
        (("image.repository=r/ipuhub@sha256:0a",), "global.launcherImage is missing"),
        (
            ("image.tag=sha256:0a", LAUNCHER, "database.enabled=true"),
            "database.image is missing: a digest names one image",
        ),
        (("contoller.replicas=2",), "additional properties 'contoller' not allowed"),
        (
            ("controller.resources.limit.cpu=1",),
            "at '/controller/resources': additional properties 'limit' not allowed",
        ),
        (("tolerations[0].keys=x",), "at '/tolerations/0': additional properties 'keys'"),
        (("service.port=x",), "at '/service/port': got string, want integer"),
        (("vipuServerAddr=example.com",), "vipuServerAddr is still example.com"),
        (("vipuControllers=example.com:8090:a=b",), "vipuControllers is still example.com"),
        (
            ("vipuControllers=a:8090:a=b\\,example.com:1:a=b",),
            "vipuControllers is still example.com",
        ),
        (("vipuControllers=pod001",), 'vipuControllers: "pod001" is not host:port:key=value'),
        (("vipuControllers=pod001:99999:a=b",), '"pod001:99999:a=b" has no port between 1 and'),
        (("vipuControllers=[::1]:99999:a=b",), '"[::1]:99999:a=b" has no port between 1 and'),
        (("vipuControllers=::1:8090:a=b",), '"::1:8090:a=b" is not host:port:key=value'),
        (("vipuControllers=pod001:0:a=b",), '"pod001:0:a=b" has no port between 1 and'),
        (
            ("proxyPort=8081", "vipuProxy.proxyPort=8082"),
            "proxyPort and vipuProxy.proxyPort name the same parameter and have different values",
        ),
        (("admissionWebhooks.timeoutSeconds=31",), "timeoutSeconds: at most 30"),
        (("admissionWebhooks.failurePolicy=Maybe",), "at '/admissionWebhooks/failurePolicy'"),
        (("web.ingress.enabled=true", "database.url=postgresql://x"), "needs web.hosts"),
        (("database.enabled=true", "database.url=postgresql://x"), "exclude each other"),
        (("admissionWebhooks.certificate.existingSecret=x",), "caBundle is missing"),
        ((f"{CERTIFICATE}.mode=existingSecret",), "existingSecret is missing"),
        ((f"{CERTIFICATE}.mode=mine",), "at '/admissionWebhooks/certificate/mode'"),
        (
            (f"{CERTIFICATE}.mode=helm", f"{CERTIFICATE}.existingSecret=x"),
            "mode helm and existingSecret exclude each other",
        ),
        ((f"{CERTIFICATE}.issuer.name=x",), "issuer needs mode certManager"),
        (("usage.schedule=midnight",), "at '/usage/schedule': 'midnight' does not match pattern"),
        (("usage.schedule=0 24 * * *",), "'0 24 * * *' does not match pattern"),
        (("usage.reportZone=Europe/ Berlin",), "at '/usage/reportZone': 'Europe/ Berlin'"),
        (
            ("monitoring.podMonitor.interval=often",),
            "at '/monitoring/podMonitor/interval': 'often' does not match pattern",
        ),
        (
            ("web.oidc.scopes={open id}",),
            "at '/web/oidc/scopes/0': 'open id' does not match pattern",
        ),
        (("admissionWebhooks.patch.enabled=false",), "patch.enabled=false: set"),
    ],
)
def test_wrong_values_stop_with_the_keys_name(values: tuple[str, ...], message: str) -> None:
    given = values if any("vipu" in value for value in values) else (*values, VIPU)
    done = template(*given)
    assert done.returncode != 0
    assert message in done.stderr


def test_without_a_controller_nothing_is_installed() -> None:
    assert "no V-IPU controller: set vipuControllers" in template().stderr
