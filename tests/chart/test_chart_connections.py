"""Every pair of pod and port under the chart's policies: who may connect to whom.

The table is a file to review; after a wanted change `IPUHUB_GOLDEN=write` and this test write it
again. test_enforced_policies tries the same pairs on a cluster. Needs helm, no cluster.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tests.chart.policies import NEEDED, OTHER_PORT, OUTSIDE, Peer, may_connect
from tests.chart.rendering import ROOT, named, render
from tests.chart.test_chart_policies import EVERYTHING, component

if TYPE_CHECKING:
    from collections.abc import Sequence

GOLDEN = ROOT / "tests/golden/chart-connections.txt"
HERE = "ipus"
WITH_METRICS = (*EVERYTHING, "monitoring.podMonitor.enabled=true")
ASK_API = {
    "controller-manager", "vipu-proxy", "webhook", "web", "prober", "monitor", "scheduler",
    "test", "uninstall", "hide-ipus",
}  # fmt: skip


def pods(documents: list[dict[str, Any]]) -> dict[str, tuple[Peer, list[int]]]:
    """A pod of each component, hooks too, and the ports that it declares."""
    found: dict[str, tuple[Peer, list[int]]] = {}
    for each in documents:
        if each["kind"] not in {"Deployment", "StatefulSet", "Job", "Pod"}:
            continue
        pod = each["spec"].get("template", each)
        (one,) = pod["spec"]["containers"]
        ports = sorted(port["containerPort"] for port in one.get("ports", ()))
        name = component(each)
        found[name] = (Peer(name, HERE, pod["metadata"]["labels"]), ports)
    return dict(sorted(found.items()))


def strangers(operator: Peer) -> list[Peer]:
    """Yield all others who may try, the impostors with the operator's labels."""
    return [
        Peer("no labels", HERE),
        Peer("other release", HERE, {**operator.labels, "app.kubernetes.io/instance": "other"}),
        Peer("other namespace", "team"),
        Peer("operator's labels in another namespace", "team", operator.labels),
        Peer("no pod"),  # a node, a pod in a node's network, a host outside
    ]


class Table:
    """All pairs under the policies of these values."""

    def __init__(self, *values: str) -> None:
        documents = render(*values)
        self.policies: Sequence[dict[str, Any]] = list(named(documents, "NetworkPolicy").values())
        self.pods = pods(documents)
        self.strangers = strangers(self.pods["controller-manager"][0])

    def callers(self, name: str, port: int) -> list[str]:
        """Return the components that may connect to this port of a component."""
        to, _ = self.pods[name]
        callers = [peer for peer, _ in self.pods.values()] + self.strangers
        return [each.name for each in callers if may_connect(self.policies, each, to, port)]

    def may_leave(self, name: str, port: int) -> bool:
        """Return whether a component may connect to this port of any address that is no pod's."""
        return may_connect(self.policies, self.pods[name][0], Peer("outside"), port)

    def lines(self) -> list[str]:
        """The whole table."""
        found = []
        for name, (_, ports) in self.pods.items():
            found.append(f"{name}\n")
            for port in (*ports, OTHER_PORT):
                called = ", ".join(self.callers(name, port)) or "nobody"
                found.append(f"  {port if port in ports else 'any other port'} from: {called}\n")
            out = [where for where, port in OUTSIDE.items() if self.may_leave(name, port)]
            found.append(f"  to addresses that are no pod's: {', '.join(out) or 'none'}\n")
        return found


def test_every_pair_is_as_reviewed() -> None:
    text = "".join(Table(*WITH_METRICS).lines())
    if os.environ.get("IPUHUB_GOLDEN") == "write":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_what_a_component_needs_is_open() -> None:
    table = Table(*WITH_METRICS)
    for source, to, port in sorted(NEEDED):
        assert source in table.callers(to, port), (source, to, port)
    for name in table.pods:
        assert table.may_leave(name, 6443) == (name in ASK_API), name
        asks_names = name in ASK_API or any(name == source for source, _, _ in NEEDED)
        dns = may_connect(table.policies, table.pods[name][0], Peer("dns"), 53, "UDP")
        assert dns == asks_names, name


def test_a_stranger_reaches_nothing_that_is_meant_for_components() -> None:
    table = Table(*WITH_METRICS)
    names = {each.name for each in table.strangers}
    closed = {("vipu-proxy", 8090), ("vipu-server", 8090), ("vipu-agent", 8080), ("database", 5432)}
    closed |= {("vipu-agent", 12000 + ipu) for ipu in range(4)}  # IPUoF, which the controller asks
    for name, (_, ports) in table.pods.items():
        assert table.callers(name, OTHER_PORT) == [], name
        for port in ports:
            strange = names & set(table.callers(name, port))
            assert strange == (set() if (name, port) in closed else names), (name, port)
    # What `GET /stats` shows is for all; a scrape of agents is open only where there is an agent.
    assert names <= set(table.callers("vipu-proxy", 8080))
    assert Table(*EVERYTHING).callers("vipu-agent", 2112) == []
