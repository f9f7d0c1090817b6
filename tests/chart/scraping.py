"""A real Prometheus beside pods of the chart, which scrapes what the chart's PodMonitor selects.

Each series has the labels that the Prometheus Operator adds: namespace, pod and container.
"""

from __future__ import annotations

import asyncio
import json
import math
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.chart.localpods import ROOT, forwarded
from tests.chart.rendering import VIPU, named, render
from tests.fakes.prometheus import get, prometheus
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.chart.localpods import LocalPod, LocalPods
    from tests.devcluster.conformance.kubectl import Kubectl

SECONDS = 3
ALERTS = ROOT / "charts/ipuhub/files/alerts.yaml"
_MONITOR = ("monitoring.podMonitor.enabled=true", "monitoring.podMonitor.tokenSecret=reader")


@asynccontextmanager
async def scraping(pods: LocalPods, kubectl: Kubectl, folder: Path) -> AsyncIterator[str]:
    """A Prometheus with an account bound to the chart's role, and its alerts; its address."""
    token = folder / "token"
    token.write_text(await asyncio.to_thread(_reader, kubectl, pods.namespace))
    async with AsyncExitStack() as stack:
        scrapes = []
        for pod, endpoint in await asyncio.to_thread(_selected, pods):
            here = await stack.enter_async_context(_forwarded(pod, endpoint["port"]))
            scrapes.append(_scrape(pod, endpoint, here, token))
        yield await stack.enter_async_context(prometheus(folder, scrapes, [ALERTS], SECONDS))


def _reader(kubectl: Kubectl, namespace: str) -> str:
    """A token of an account that may read metrics, as docs/admin/monitoring.md makes it."""
    kubectl.run("create", "serviceaccount", "prometheus", "-n", namespace)
    role = ("--clusterrole=gc-metrics-reader", f"--serviceaccount={namespace}:prometheus")
    kubectl.run("create", "clusterrolebinding", "prometheus", *role)
    return kubectl.run("create", "token", "prometheus", "-n", namespace).strip()


def _selected(pods: LocalPods) -> list[tuple[LocalPod, dict[str, Any]]]:
    """Each pod with each endpoint of the PodMonitor that it has a port for."""
    found: list[tuple[LocalPod, dict[str, Any]]] = []
    (monitor,) = named(render(VIPU, *_MONITOR), "PodMonitor").values()
    spec = monitor["spec"]
    for pod in pods.pods:
        labels = pod.manifest["metadata"]["labels"]
        if not spec["selector"]["matchLabels"].items() <= labels.items():
            continue
        chosen = spec["selector"]["matchExpressions"]
        if not all(labels.get(each["key"]) in each["values"] for each in chosen):
            continue
        ports = {each["name"] for each in pod.container.get("ports", ())}
        endpoints = spec["podMetricsEndpoints"]
        found += [(pod, endpoint) for endpoint in endpoints if endpoint["port"] in ports]
    return found


def _forwarded(pod: LocalPod, port: str) -> Any:
    return forwarded(lambda: pod.network.connect(pod.port(port)))


def _scrape(pod: LocalPod, endpoint: dict[str, Any], here: int, token: Path) -> dict[str, Any]:
    meta = pod.manifest["metadata"]
    labels = {
        "namespace": meta["namespace"],
        "pod": meta["name"],
        "container": pod.container["name"],
    }
    return {
        "job_name": f"{meta['name']}-{endpoint['port']}",
        "metrics_path": endpoint["path"],
        "static_configs": [{"targets": [f"127.0.0.1:{here}"], "labels": labels}],
    } | ({"authorization": {"credentials_file": str(token)}} if "authorization" in endpoint else {})


async def numbers(address: str, query: str) -> list[float]:
    """The values of an instant query; a query that fails is a failure."""
    answer = json.loads(await get(f"{address}/api/v1/query?query={quote(query)}") or "{}")
    assert answer.get("status") == "success", (query, answer)
    return [float(one["value"][1]) for one in answer["data"]["result"]]


async def until_shown(address: str, query: str) -> None:
    """Return once the query gives a number for each of its series, and at least one."""

    def are_numbers(found: list[float]) -> bool:
        return bool(found) and not any(math.isnan(each) for each in found)

    try:
        await eventually(lambda: numbers(address, query), are_numbers)
    except AssertionError as error:
        raise AssertionError(f"{query}: {error}") from None


async def broken_rules(address: str) -> dict[str, str]:
    """Alerts that could not be evaluated, with the reason; at least one has been."""
    answer = json.loads(await get(f"{address}/api/v1/rules"))
    rules = [rule for group in answer["data"]["groups"] for rule in group["rules"]]
    assert rules
    return {
        rule["name"]: rule.get("lastError", rule["health"])
        for rule in rules
        if rule["health"] != "ok"
    }
