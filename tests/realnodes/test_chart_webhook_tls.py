"""The webhooks' certificate on real nodes, in each mode in which they do not make it themselves.

One installation, upgraded from mode to mode. The API server judges what the webhooks serve: it
refuses a wrong job in their words, or says that it could not ask them. test_chart has the mode
in which they make it.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from ipuhub.certificates import SERVER, issue, make_authority, pem_of, subject_of
from tests.fakes.waiting import wait_until
from tests.realnodes.certmanager import CertManager, write_tls_secret
from tests.realnodes.release import CHART, Helm, load_image, make_restricted
from tests.realnodes.reviews import reviewing, wrong_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipuhub.certificates import Authority
    from tests.realnodes.kit import RealCluster

NAMESPACE, TEAM = "webhook-tls", "webhook-tls-team"
NAME = "tls-ipu-operator"
HOST = f"{NAME}-webhook-svc.{NAMESPACE}.svc"
OWN = "own-certificate"
# The webhooks alone: nothing else is asked about certificates.
VALUES = {
    "admissionWebhooks.scope": TEAM,
    "controller.replicas": 0,
    "vipuProxy.replicas": 0,
    "vipuControllers": "vipu.example:8090:disk=ssd",
}
CERTIFICATE = "admissionWebhooks.certificate"
ROUND = "admissionWebhooks.podAnnotations.round"


@dataclass(frozen=True)
class Site:
    """The release, and what its webhooks serve."""

    cluster: RealCluster
    helm: Helm

    def upgrade(self, values: dict[str, Any]) -> None:
        """Upgrade the release to these values."""
        self.helm.run("upgrade", "tls", CHART, *options(values))

    def until_rolled_out(self) -> None:
        """Return once only pods of the last upgrade are left."""
        webhook = f"deployment/{NAME}-webhook"
        self.cluster.kubectl("rollout", "status", webhook, "-n", NAMESPACE, "--timeout=90s")
        wait_until(lambda: len(self.pods()) == 1, "the earlier pods gone")

    def until_judged(self) -> None:
        """Return once a wrong job is refused by the webhooks themselves."""
        job = json.dumps(wrong_job(TEAM))

        def refused() -> bool:
            return (
                "modelReplicas" in self.cluster.try_kubectl("create", "-f", "-", stdin=job).stderr
            )

        wait_until(refused, "the webhooks refuse a wrong job")

    def pods(self) -> dict[str, str]:
        """Address of each pod of the webhooks."""
        selector = "app.kubernetes.io/component=webhook"
        found = self.cluster.get("pods", "-n", NAMESPACE, "-l", selector)["items"]
        return {each["metadata"]["name"]: each["status"].get("podIP", "") for each in found}

    def bundles(self) -> list[str]:
        """The authorities, base64, in the configurations of both kinds."""
        kinds = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
        hooks = [hook for kind in kinds for hook in self.cluster.get(kind, NAME)["webhooks"]]
        return sorted({hook["clientConfig"].get("caBundle", "") for hook in hooks})

    def secret(self, name: str) -> dict[str, str]:
        return dict(self.cluster.get("secret", name, "-n", NAMESPACE)["data"])

    def until_served(self, certificate: str) -> None:
        """Return once the pod serves this certificate (PEM, base64), by the authorities in
        force."""
        ((name, address),) = self.pods().items()
        # The kubelet looks at a pod's Secrets again whenever the pod changes, else in a minute.
        mark = f"checked={uuid4().hex}"
        self.cluster.kubectl("annotate", "pod", name, "-n", NAMESPACE, "--overwrite", mark)
        wanted = ssl.PEM_cert_to_DER_cert(base64.b64decode(certificate).decode())
        wait_until(lambda: self._served(address) == wanted, "the certificate is served")

    def _served(self, address: str) -> bytes | None:
        (bundle,) = self.bundles()
        context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
        with (
            socket.create_connection((address, 9443)) as connection,
            context.wrap_socket(connection, server_hostname=HOST) as tls,
        ):
            return tls.getpeercert(binary_form=True)


def options(values: dict[str, Any]) -> list[str]:
    """The release's values and these, as Helm takes them."""
    given = {**VALUES, **values}
    pairs = [("--set-json", f"{name}={json.dumps(value)}") for name, value in given.items()]
    return [word for pair in pairs for word in pair]


@pytest.fixture(scope="module")
def site(server: RealCluster) -> Iterator[Site]:
    load_image(server, "ipuhub")
    server.kubectl("create", "namespace", TEAM)
    helm = Helm(server, NAMESPACE)
    begun = options({f"{CERTIFICATE}.mode": "helm"})
    make_restricted(server, NAMESPACE)
    helm.run("install", "tls", CHART, "--take-ownership", *begun)
    yield Site(server, helm)
    helm.run("uninstall", "tls", "--no-hooks", check=False)
    server.kubectl("delete", "namespace", NAMESPACE, TEAM, "--timeout=120s")


def test_helms_certificate_outlives_an_upgrade_that_loses_no_review(site: Site) -> None:
    mode = {f"{CERTIFICATE}.mode": "helm"}
    site.upgrade(mode)
    site.until_rolled_out()
    site.until_judged()
    before, secret, pods = site.bundles(), site.secret(f"{NAME}-webhook-tls"), site.pods()
    assert before == [secret["ca.crt"]]

    with reviewing(site.cluster, TEAM):
        site.upgrade({**mode, ROUND: uuid4().hex})
        site.until_rolled_out()
    assert not pods.keys() & site.pods().keys()
    assert site.bundles() == before
    assert site.secret(f"{NAME}-webhook-tls") == secret
    site.until_served(secret["tls.crt"])


def own_values(*authorities: Authority) -> dict[str, Any]:
    trusted = b"".join(pem_of(each.certificate) for each in authorities)
    return {f"{CERTIFICATE}.existingSecret": OWN, f"{CERTIFICATE}.caBundle": trusted.decode()}


def write_own(site: Site, authority: Authority) -> str:
    """Put a certificate of this authority into the administrator's Secret; return it."""
    made = issue(authority, subject_of(HOST), [SERVER], [HOST], datetime.now(UTC))
    data = {"tls.crt": made.certificate, "tls.key": made.key}
    encoded = {key: base64.b64encode(pem).decode() for key, pem in data.items()}
    write_tls_secret(site.cluster, NAMESPACE, OWN, encoded)
    return encoded["tls.crt"]


def test_own_certificates_are_exchanged_without_a_refused_review(site: Site) -> None:
    """The steps of docs/admin/security.md: trust both authorities, exchange, trust the new
    authority."""
    old, new = (make_authority(name, datetime.now(UTC)) for name in ("old", "new"))
    first = write_own(site, old)
    site.upgrade(own_values(old))
    site.until_rolled_out()
    site.until_judged()
    site.until_served(first)
    pods = site.pods()

    with reviewing(site.cluster, TEAM) as reviews:
        site.upgrade(own_values(old, new))
        reviews.until_more()
        second = write_own(site, new)
        site.until_served(second)
        reviews.until_more()
        site.upgrade(own_values(new))
    assert site.pods() == pods
    assert site.bundles() == [base64.b64encode(pem_of(new.certificate)).decode()]
    site.until_served(second)


@pytest.mark.usefixtures("cert_manager_crds")
def test_what_cert_manager_makes_and_renews_is_served_and_trusted(site: Site) -> None:
    mode = {f"{CERTIFICATE}.mode": "certManager"}
    manager = CertManager(site.cluster, NAMESPACE)
    site.upgrade(mode)
    manager.sign()
    manager.inject()
    site.until_rolled_out()
    site.until_judged()
    served, authority = f"{NAME}-webhook-tls", site.bundles()
    assert authority == [site.secret(f"{NAME}-webhook-ca")["tls.crt"]]
    site.until_served(site.secret(served)["tls.crt"])

    with reviewing(site.cluster, TEAM):
        manager.sign(again=True)
        site.until_served(site.secret(served)["tls.crt"])
        site.upgrade(mode)
    assert site.bundles() == authority
