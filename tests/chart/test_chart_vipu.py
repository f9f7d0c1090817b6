"""The chart's V-IPU: agents, the controller's state, the secure mode. Needs helm, no cluster."""

from __future__ import annotations

from typing import Any

import pytest

from partitions.vipu.agent.main import parse_options as agent_options
from partitions.vipu.server.options import parse_options as server_options
from tests.chart.rendering import VIPU, container, named, render, template

SERVER = "gc-ipu-operator-vipu-server"
AGENTS = (VIPU, "vipuServer.agents.enabled=true", "vipuServer.machines=3")
SECURE = "vipuServer.secure.enabled=true"
SERVER_SECRET, AGENT_SECRET = "vipuServer.secure.secret=s", "vipuServer.secure.agentSecret=a"
ACCESS = "vipuProxy.accessSecret=x"


def vipu(*values: str) -> dict[str, dict[str, Any]]:
    """The Deployments of controller and agents by name."""
    found = named(render(*values), "Deployment")
    return {
        name: each for name, each in found.items() if "-vipu-server" in name or "-agent-" in name
    }


def volume(deployment: dict[str, Any], path: str) -> dict[str, Any]:
    """The volume that is mounted at this path."""
    (name,) = (
        each["name"] for each in container(deployment)["volumeMounts"] if each["mountPath"] == path
    )
    pod = deployment["spec"]["template"]["spec"]
    (found,) = (each for each in pod["volumes"] if each["name"] == name)
    return dict(found)


def probes(deployment: dict[str, Any]) -> set[str]:
    """Return the probes, in the kubelet's form."""
    one = container(deployment)
    kinds = ("grpc", "tcpSocket", "httpGet")
    names = ("startupProbe", "livenessProbe", "readinessProbe")
    return {kind for name in names for kind in kinds if kind in one[name]}


def test_without_agents_the_controller_simulates_its_machines() -> None:
    (server,) = vipu(VIPU, "vipuServer.machines=3").values()
    options = server_options(container(server)["args"], {})
    assert (options.agents, options.machines, options.secure) == ("", 3, False)
    assert probes(server) == {"grpc"}


def test_each_machine_has_an_agent_at_an_address_that_the_controller_knows() -> None:
    documents, found = render(*AGENTS), vipu(*AGENTS)
    server = server_options(container(found.pop(SERVER))["args"], {})
    services = named(documents, "Service")
    assert len(found) == 3
    for number, address in enumerate(server.agents.split(",")):
        host, port = address.split(":")
        service = services[host.removesuffix(".ipus.svc")]["spec"]
        (agent,) = (
            each
            for each in found.values()
            if service["selector"].items() <= each["spec"]["template"]["metadata"]["labels"].items()
        )
        options = agent_options(container(agent)["args"], {})
        # vipu-server counts the same way: metrics and `vipu-admin` have one name for a machine.
        assert (options.agent, options.machines) == (f"ag{number}", 1)
        ports = {each["name"]: each["containerPort"] for each in container(agent)["ports"]}
        ipuof = {f"ipuof-{ipu}": options.ipuof_port + ipu for ipu in range(options.ipus)}
        assert ports == {"grpc": options.port, "exporter": options.exporter_port, **ipuof}
        assert [(each["port"], each["targetPort"]) for each in service["ports"]] == [
            (int(port), "grpc"),
            *((number, name) for name, number in ipuof.items()),
        ]
        assert agent["spec"]["selector"]["matchLabels"].items() >= service["selector"].items()
        assert agent["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
        # A rehearsed hang must not end by the kubelet's hand.
        assert probes(agent) == {"tcpSocket"}


def test_agents_answer_the_controller_alone_and_metrics_where_they_are_scraped() -> None:
    def ingress(*values: str) -> dict[int, Any]:
        policy = named(render(*AGENTS, *values), "NetworkPolicy")["gc-ipu-operator-vipu-agent"]
        return {
            rule["ports"][0]["port"]: [
                each["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
                for each in rule.get("from", ())
            ]
            for rule in policy["spec"]["ingress"]
        }

    ipuof = {port: ["vipu-server"] for port in range(12000, 12004)}
    assert ingress() == {8080: ["vipu-server"], **ipuof}
    scraped = ("monitoring.podMonitor.enabled=true", "monitoring.podMonitor.tokenSecret=t")
    assert ingress(*scraped) == {8080: ["vipu-server"], 2112: [], **ipuof}
    (monitor,) = named(render(*AGENTS, *scraped), "PodMonitor").values()
    endpoints = {each["port"]: each for each in monitor["spec"]["podMetricsEndpoints"]}
    # An agent checks no token: it is told none.
    assert "authorization" in endpoints["health"]
    assert "authorization" not in endpoints["exporter"]
    (chosen,) = monitor["spec"]["selector"]["matchExpressions"]
    assert "vipu-agent" in chosen["values"]


def test_the_controllers_state_is_on_a_volume_that_outlives_the_release() -> None:
    for values, want in (
        ((), {"emptyDir": {}}),
        (
            ("vipuServer.persistence.enabled=true",),
            {"persistentVolumeClaim": {"claimName": SERVER}},
        ),
    ):
        (server,) = vipu(VIPU, *values).values()
        folder = server_options(container(server)["args"], {}).storage.parent
        assert want.items() <= volume(server, str(folder)).items()
        assert server["spec"]["strategy"] == {"type": "Recreate"}  # one process has the file
    assert named(render(VIPU), "PersistentVolumeClaim") == {}
    values = ("enabled=true", "size=5Gi", "storageClass=fast")
    claims = named(
        render(VIPU, *(f"vipuServer.persistence.{each}" for each in values)),
        "PersistentVolumeClaim",
    )
    claim = claims[SERVER]
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"


def test_in_the_secure_mode_each_holds_the_certificate_of_its_role_only() -> None:
    values = (*AGENTS, SECURE, SERVER_SECRET, AGENT_SECRET, ACCESS)
    found = vipu(*values)
    for name, deployment in found.items():
        parse, secret = (server_options, "s") if name == SERVER else (agent_options, "a")
        options = parse(container(deployment)["args"], {})
        assert options.secure
        tls = options.tls
        assert tls is not None
        assert tls.certificate.parent == tls.key.parent
        mounted = volume(deployment, str(tls.certificate.parent))
        assert mounted["secret"] == {"secretName": secret, "defaultMode": 0o440}
        sources = [each.get("secret") for each in deployment["spec"]["template"]["spec"]["volumes"]]
        assert [each["secretName"] for each in sources if each] == [secret]
        assert probes(deployment) == {"tcpSocket"}
    made = named(render(*values), "Secret")
    assert not {"s", "a", "x"} & set(made)


def test_the_admin_api_is_reached_by_a_forwarded_port_only() -> None:
    (server,) = vipu(VIPU).values()
    options = server_options(container(server)["args"], {})
    assert (options.admin_host, options.admin_port) == ("127.0.0.1", 8091)
    assert [each["containerPort"] for each in container(server)["ports"]] == [options.port]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((VIPU, SECURE, ACCESS), "vipuServer.secure.secret is missing"),
        ((VIPU, SECURE, SERVER_SECRET), "vipuServer.secure.enabled needs vipuProxy.accessSecret"),
        ((*AGENTS, SECURE, SERVER_SECRET, ACCESS), "vipuServer.secure.agentSecret is missing"),
        ((VIPU, SERVER_SECRET), "need vipuServer.secure.enabled=true"),
        ((*AGENTS, AGENT_SECRET), "need vipuServer.secure.enabled=true"),
        (
            (VIPU, SECURE, SERVER_SECRET, AGENT_SECRET, ACCESS),
            "vipuServer.secure.agentSecret needs vipuServer.agents.enabled",
        ),
        (
            ("vipuServerAddr=v", SECURE, SERVER_SECRET, ACCESS),
            "vipuServer.secure.enabled needs vipuServer.enabled",
        ),
        (
            ("vipuServerAddr=v", "vipuServer.agents.enabled=true"),
            "vipuServer.agents.enabled needs vipuServer.enabled",
        ),
        (
            (*AGENTS, "vipuServer.machines=0"),
            "vipuServer.agents.enabled needs vipuServer.machines",
        ),
        ((VIPU, "vipuServer.agents.replicas=2"), "additional properties 'replicas' not allowed"),
        ((VIPU, "vipuServer.secure.certificate=x"), "'certificate' not allowed"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    values: tuple[str, ...], message: str
) -> None:
    done = template(*values)
    assert done.returncode != 0
    assert message in done.stderr
