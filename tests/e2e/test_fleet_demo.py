"""`make demo ARGS="--fleet 64"`: two V-IPU controllers, a second start, another layout."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.administrator import vipu_admin
from tests.e2e.running_demo import start_demo, stop_demo
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.running_demo import RunningDemo

JOBS = ("first", "second", "third")
"""Each takes a whole rack; a controller has two."""


@pytest.fixture(scope="module")
def path(needs_kubectl: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet") / "state"


@pytest.fixture(scope="module")
def demo(path: Path) -> Iterator[RunningDemo]:
    """A fleet on its second start, with the jobs of the first."""
    first = started(path)
    try:
        for name in JOBS:
            first.kubectl("create", "-f", "-", stdin=job(name))
        for name in JOBS:
            wait_until(lambda name=name: first.status(name) == "Running", name)  # type: ignore[misc]
    finally:
        stop_demo(first)
    second = started(path)
    yield second
    stop_demo(second)


def started(path: Path) -> RunningDemo:
    began = time.monotonic()
    demo = start_demo(path, "--fleet", "64")
    print(f"a fleet of 64 machines is up after {time.monotonic() - began:.1f} s")
    return demo


def job(name: str) -> str:
    container = {"name": "main", "image": "example.com/main:1"}
    spec = {
        "jobInstances": 1,
        "ipusPerJobInstance": "64",
        "workers": {"template": {"spec": {"containers": [container]}}},
    }
    meta = {"name": name, "namespace": "default"}
    return json.dumps(
        {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "metadata": meta, "spec": spec}
    )


def detail(demo: RunningDemo) -> dict[str, Any]:
    return dict(json.loads(demo.http("/stats?detail=true")[1]))


def fleet(demo: RunningDemo) -> dict[str, Any]:
    account = ("ipuhub-operator", "-n", "ipuhub-system", "--audience=ipuhub-proxy")
    token = demo.kubectl("create", "token", *account).strip()
    status, text = demo.http("/v1/fleet", Authorization=f"Bearer {token}")
    assert status == 200, text
    return dict(json.loads(text))


second_admin = partial(vipu_admin, at="V-IPU 2 admin")


def test_jobs_run_on_both_controllers_and_on_their_nodes_after_a_second_start(
    demo: RunningDemo,
) -> None:
    for name in JOBS:
        wait_until(lambda name=name: demo.status(name) == "Running", name)  # type: ignore[misc]
    controllers = fleet(demo)["controllers"]
    assert [len(each["machines"]) for each in controllers] == [32, 32]
    nodes = {}
    for controller in controllers:
        ((key, value),) = controller["nodeSelector"].items()
        for partition in controller["partitions"]:
            nodes[partition["job"]["name"]] = f"{key}={value}"
    assert nodes == {
        "first": "vipu-ctrl=vctl0",
        "second": "vipu-ctrl=vctl0",
        "third": "vipu-ctrl=vctl1",
    }
    for name, label in nodes.items():
        pods = ("pods", "-l", f"graphcore.ai/ipujob-name={name}")
        on = demo.kubectl("get", *pods, "-o", "jsonpath={.items[*].spec.nodeName}").split()
        labelled = demo.kubectl("get", "nodes", "-l", label, "-o", "jsonpath={..metadata.name}")
        assert on
        assert set(on) <= set(labelled.split())


def test_the_second_controllers_machines_are_named_as_its_own(demo: RunningDemo) -> None:
    """Both controllers have an ag30 and an ag31."""
    ports = demo.ports
    for purpose in ("V-IPU", "V-IPU admin", "V-IPU 2", "V-IPU 2 admin"):
        assert any(f"--api-port {ports[purpose]} list" in line for line in demo.lines), purpose
    second = fleet(demo)["controllers"][1]["address"]
    second_admin(demo, "cordon", "agent", "ag30", "--reason", "new cables on Monday")
    second_admin(demo, "provoke", "fault", "ag31", "--ipu", "2")
    wait_until(lambda: "ag31" in fleet(demo)["outOfService"], "the fault is seen")
    assert fleet(demo)["outOfService"] == (
        f"4 IPUs of {second} (ag30 is cordoned: new cables on Monday), "
        f"1 IPU of {second} (ag31: IPU 2 has a memory error)"
    )
    second_admin(demo, "uncordon", "agent", "ag30")
    second_admin(demo, "clear", "fault", "ag31")
    wait_until(lambda: fleet(demo)["outOfService"] == "", "all are in service")


def test_a_layout_changed_by_vipu_admin_is_what_the_proxy_counts(demo: RunningDemo) -> None:
    before = detail(demo)
    assert [each["totalIpus"] for each in before["controllers"]] == [128, 128]
    assert before["total"] == {"used": 192, "available": 64}
    used = fleet(demo)["controllers"][1]["partitions"][0]["id"]
    (free,) = {"rack2", "rack3"} - {
        word for word in second_admin(demo, "list", "partitions").split() if word.startswith("rack")
    }
    agents = {
        machine["agent"]
        for machine in fleet(demo)["controllers"][1]["machines"]
        if machine["cluster"] == free
    }
    second_admin(demo, "remove", "allocation", free)
    second_admin(demo, "remove", "cluster", free)
    first, *_ = chosen = sorted(agents, key=lambda agent: int(agent.removeprefix("ag")))[:4]
    second_admin(demo, "create", "cluster", "small", "--agents", ",".join(chosen))
    second_admin(demo, "create", "allocation", "team-a", "--cluster", "small", "--agents", first)

    def counted() -> bool:
        return bool(detail(demo)["total"] == {"used": 192, "available": 4})

    wait_until(counted, "the proxy reads the layout again")
    second = fleet(demo)["controllers"][1]
    assert {m["agent"] for m in second["machines"] if m["cluster"] == "small"} >= {first}
    assert [each["id"] for each in second["partitions"]] == [used]
    sizes = {each["size"]: each["numOfPartitions"] for each in detail(demo)["sizes"]}
    assert (sizes[4], sizes[8], sizes[64]) == (1, 0, 0)
    assert demo.status("third") == "Running"
