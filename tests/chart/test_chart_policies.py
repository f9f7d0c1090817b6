"""The chart's network policies: who reaches whom, and nothing else. Needs helm, no cluster."""

from __future__ import annotations

from typing import Any

import yaml

from tests.chart.rendering import VIPU, named, render

POSTGRES, API, ORDERS = {("database", 5432)}, {("", 443), ("", 6443)}, {("vipu-proxy", 8090)}
WEBHOOKS = {("webhook", 9443)}
REACHES: dict[str, set[tuple[str, int]]] = {
    "controller-manager": API | ORDERS,
    "vipu-proxy": API | {("", 8090)},
    "webhook": API,
    "web": API | ORDERS | POSTGRES | WEBHOOKS | {("", 443)},
    "prober": API | ORDERS | POSTGRES,
    "monitor": API | POSTGRES,
    "worker": POSTGRES | {("", 443)},
    "beat": POSTGRES,
    "database": set(),
    "vipu-server": {("vipu-agent", port) for port in (8080, *range(12000, 12004))},
    "vipu-agent": set(),
    "scheduler": API | {("vipu-proxy", 8080)},
}
EVERYTHING = (
    VIPU,
    "vipuServer.agents.enabled=true",
    "vipuServer.machines=2",
    "database.enabled=true",
    "ipuVisibility.enabled=true",
    "extendedScheduler.enabled=true",
    "extendedScheduler.deploy=true",
)


def component(document: dict[str, Any]) -> str:
    return str(document["metadata"]["labels"]["app.kubernetes.io/component"])


def reached(policy: dict[str, Any]) -> set[tuple[str, int]]:
    """Return the destinations of a policy's pods, as (component or "" for anybody, port)."""
    found = set()
    for rule in policy["spec"].get("egress", []):
        to = [each["podSelector"]["matchLabels"] for each in rule.get("to", [])]
        names = [each["app.kubernetes.io/component"] for each in to] or [""]
        found |= {(name, port["port"]) for name in names for port in rule["ports"]}
    return found


def policies(*values: str) -> dict[str, dict[str, Any]]:
    found = [each for each in render(*values) if each["kind"] == "NetworkPolicy"]
    return {component(each): each for each in found}


def test_nothing_goes_in_or_out_but_what_a_policy_allows() -> None:
    deny = policies(*EVERYTHING)["default-deny"]["spec"]
    assert deny["policyTypes"] == ["Ingress", "Egress"]
    assert set(deny) == {"podSelector", "policyTypes"}
    for document in render(*EVERYTHING):
        if document["kind"] in {"Deployment", "StatefulSet", "Job", "Pod"}:
            inner = document["spec"].get("template", document)
            labels = inner["metadata"]["labels"]
            assert deny["podSelector"]["matchLabels"].items() <= labels.items()
            assert component(document) in policies(*EVERYTHING)


def test_each_component_reaches_what_it_needs_and_nothing_else() -> None:
    documents, found = render(*EVERYTHING), policies(*EVERYTHING)
    workloads = [each for each in documents if each["kind"] in {"Deployment", "StatefulSet"}]
    assert {component(each) for each in workloads} == set(REACHES)
    for workload in workloads:
        name, pod = component(workload), workload["spec"]["template"]["spec"]
        dns = {("", 53), ("", 5353)} if REACHES[name] else set()
        assert reached(found[name]) == REACHES[name] | dns, name
        # What it is configured for is what it may reach.
        text = yaml.safe_dump(pod)
        assert ("DATABASE_URL" in text) == (reached(found[name]) >= POSTGRES), name
        has_token = "serviceAccountToken" in text or pod.get("automountServiceAccountToken", False)
        assert has_token == (reached(found[name]) >= API), name


def test_ports_outside_follow_the_values() -> None:
    several = r"a:8090:ipunode=a\,[fd00::1]:9191:ipunode=b"
    found = policies(f"vipuControllers={several}", "database.url=postgresql://h/d")
    assert {("", 8090), ("", 9191)} <= reached(found["vipu-proxy"])
    assert ("", 5432) in reached(found["prober"])
    own = "networkPolicies.egress"
    found = policies(
        f"vipuControllers={several}",
        "database.url=postgresql://h/d",
        f"{own}.databasePorts={{6432}}",
        f"{own}.vipuPorts={{7000}}",
        f"{own}.apiServerPorts={{16443}}",
        f"{own}.webPorts={{8443}}",
    )
    dns = {("", 53), ("", 5353)}
    assert reached(found["vipu-proxy"]) == dns | {("", 16443), ("", 7000)}
    outside = {("", 16443), ("", 6432), ("", 8443)}
    assert reached(found["web"]) == dns | ORDERS | WEBHOOKS | outside
    off = policies(VIPU, f"{own}.enabled=false")
    assert {tuple(each["spec"]["policyTypes"]) for each in off.values()} == {("Ingress",)}
    assert not any("egress" in each["spec"] for each in off.values())


def test_an_operator_in_the_host_network_reaches_the_proxy() -> None:
    """A policy cannot select such a pod: its requests come from the node's address."""
    policy = policies(VIPU, "controller.hostNetwork=true")["vipu-proxy"]
    orders = [rule for rule in policy["spec"]["ingress"] if rule["ports"][0]["port"] == 8090]
    assert [rule.get("from") for rule in orders] == [None]


def test_pods_of_jobs_reach_a_secure_vipu_server_and_no_insecure_one() -> None:
    """By default they have the addresses of their nodes, of which a policy cannot pick them."""
    secure = (
        "vipuServer.secure.enabled=true",
        "vipuServer.secure.secret=s",
        "vipuProxy.accessSecret=a",
    )
    server = "gc-ipu-operator-vipu-server"
    (rule,) = named(render(VIPU, *secure), "NetworkPolicy")[server]["spec"]["ingress"]
    assert rule == {"ports": [{"protocol": "TCP", "port": 8090}]}
    (rule,) = named(render(VIPU), "NetworkPolicy")[server]["spec"]["ingress"]
    (source,) = rule["from"]
    assert source["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "vipu-proxy"
    off = "networkPolicies.enabled=false"
    assert not named(render(VIPU, *secure, off), "NetworkPolicy")


def test_webhooks_in_the_host_network_are_upgraded_in_place_and_reached_by_the_dashboard() -> None:
    """No second pod fits onto a node, and the first has the address of the node."""

    def to_webhooks(documents: list[dict[str, Any]]) -> list[Any]:
        rules = named(documents, "NetworkPolicy")["gc-ipu-operator-web"]["spec"]["egress"]
        port = {"protocol": "TCP", "port": 9443}
        return [rule.get("to") for rule in rules if rule["ports"] == [port]]

    values = (VIPU, "database.enabled=true")
    usual = render(*values)
    documents = render(*values, "admissionWebhooks.hostNetwork=true")
    webhook = named(documents, "Deployment")["gc-ipu-operator-webhook"]["spec"]
    pod = webhook["template"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert webhook["strategy"] == {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    assert to_webhooks(documents) == [None]
    ((chosen,),) = to_webhooks(usual)
    assert chosen["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "webhook"
    without = named(usual, "Deployment")["gc-ipu-operator-webhook"]["spec"]
    assert "hostNetwork" not in without["template"]["spec"]
    assert without["strategy"] == {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
