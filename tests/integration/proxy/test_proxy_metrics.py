"""The proxy's /metrics about partitions, controllers and the tracker's writer."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ipuhub.kube.resources import CONFIG_MAPS
from ipuhub.process.process import EVERY_PROCESS, WITH_API, WITH_LEASE, WITH_WATCHES
from partitions.proxy.metrics import PROXY
from partitions.proxy.process import running
from tests.fakes.counted import reset_metrics
from tests.fakes.promtool import complaints, families
from tests.fakes.proxylab import JOB, SYSTEM, read_path, ready
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.fakes.proxylab import Lab

TOKEN = {"Authorization": "Bearer for-the-test"}


def value(text: str, name: str, **labels: str) -> float:
    """The value of the one series with these labels among its own."""
    found = []
    for line in text.splitlines():
        series, _, number = line.rpartition(" ")
        has_labels = all(f'{key}="{word}"' in series for key, word in labels.items())
        if re.match(rf"{name}(\{{|$)", series) and has_labels:
            found.append(float(number))
    assert len(found) == 1, (name, labels, found)
    return found[0]


async def test_the_page_follows_partitions_controllers_and_writes(lab: Lab) -> None:
    reset_metrics(PROXY)
    options = replace(lab.options, metrics_token="for-the-test")
    controller = f"127.0.0.1:{lab.vipu_port}"
    async with running(options) as proxy, lab.operator(proxy) as operator:
        await eventually(lambda: ready(proxy))
        assert (await read_path(proxy, "/metrics"))[0] == 401
        await operator.ensure(**JOB)
        await eventually(lambda: any(view.partitions for view in proxy.fleet.last_views))
        _, text = await read_path(proxy, "/metrics", **TOKEN)
        assert value(text, "ipuhub_partitions", phase="active", controller=controller) == 1
        assert value(text, "ipuhub_vipu_controller_reachable", controller=controller) == 1
        total = value(text, "ipuhub_vipu_ipus", state="total")
        assert value(text, "ipuhub_vipu_ipus", state="free") == total - 4
        assert value(text, "ipuhub_vipu_fitting_partitions", ipus="1") == total - 4
        assert value(text, "ipuhub_partition_reserve_duration_seconds_count") == 1
        assert value(text, "ipuhub_tracker_batch_changes_count") >= 2
        assert 0 < value(text, "ipuhub_tracker_shard_bytes", shard=lab.tracker) < 64_000
        assert value(text, "ipuhub_leader") == 1
        route = "/v1/partitions/{uid}/{instance}"
        name = "ipuhub_proxy_request_duration_seconds_count"
        assert value(text, name, method="PUT", route=route, code="200") == 1
        assert value(text, name, route="/metrics", code="401") == 1

        await operator.release(JOB["uid"], 0)
        patch = {"data": {"somebody": "was here"}}
        await lab.client.patch(CONFIG_MAPS, lab.tracker, patch, SYSTEM)
        await operator.ensure(**JOB | {"uid": "another-uid"})
        await read_path(proxy, "/no/such/page")
        await lab.stop_vipu()
        await eventually(lambda: not any(view.is_reachable for view in proxy.fleet.last_views))
        _, text = await read_path(proxy, "/metrics", **TOKEN)
        assert value(text, "ipuhub_partitions", phase="released") == 1
        assert value(text, "ipuhub_tracker_conflicts_total") == 1
        assert value(text, "ipuhub_tracker_unreadable_entries") == 1
        assert value(text, "ipuhub_vipu_controller_reachable", controller=controller) == 0
        assert "ipuhub_vipu_ipus{" not in text
        assert value(text, name, route="other", code="404") == 1
        assert complaints(text.encode()) == ""
        tables = (*EVERY_PROCESS, *WITH_LEASE, *WITH_API, *WITH_WATCHES, *PROXY)
        assert {metric.name for metric in tables} <= families(text.encode())
