"""Clusters and allocations by `vipu-admin`: stored, obeyed by placement, shown to users."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest

from partitions.proxy import capacity
from partitions.proxy.fleet import Fleet, FleetOptions
from partitions.vipu.cli import admin, main
from partitions.vipu.client import CreateRequest, VipuClient
from partitions.vipu.errors import InvalidRequest, NoCapacity
from partitions.vipu.server.statefile import StateFileError
from partitions.vipu.types import IpuLinkRouting
from tests.fakes.vipu import unfenced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from partitions.vipu.server.main import VipuServer

    Start = Callable[..., tuple[VipuServer, int]]
    Said = pytest.CaptureFixture[str]


@pytest.fixture
def published_only() -> bool:
    return False


@pytest.fixture
def start(start_server: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Start:
    """Start a server of 36 machines as `start_server`; the environment names the ports."""

    def begin(**options: object) -> tuple[VipuServer, int]:
        given = {"machines": 36, "admin_port": 0, "create_latency_seconds": 0}
        server, port = start_server(**given | options)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("VIPU_CLI_API_HOST", "127.0.0.1")
        monkeypatch.setenv("VIPU_CLI_API_PORT", str(port))
        monkeypatch.setenv("VIPU_CLI_ADMIN_PORT", str(server.admin_port))
        return server, port

    return begin


def done(*command: str) -> None:
    assert admin.main(command) == 0, command


def arrange() -> None:
    """A mesh of two domains for two teams, a torus of one machine without a team."""
    done("remove", "allocation", "default")
    done("remove", "cluster", "default")
    agents = ",".join(f"ag{number}" for number in range(32))
    done(
        *("create", "cluster", "big", "--agents", agents, "--topology", "mesh"),
        *("--num-ipulinkdomains", "2", "--cluster-topology", "looped"),
    )
    done("create", "cluster", "small", "--agents", "ag33")
    done("create", "allocation", "team-a", "--cluster", "big", "--agents", "ag1,ag0")
    done("create", "allocation", "team-b", "--cluster", "big")


def listed(capsys: Said, command: Callable[..., int], *arguments: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert command([*arguments, "--output", "json"]) == 0
    out = capsys.readouterr().out
    found: list[dict[str, object]] = json.loads(out[out.index("[") :])
    return found


def test_partitions_keep_to_the_allocations_before_and_after_a_restart(start: Start) -> None:
    server, _ = start()
    server.controller.create(CreateRequest("kept", 4))
    assert admin.main(["remove", "allocation", "default"]) == 1  # it has a partition
    server.controller.remove("kept")
    arrange()
    for _ in range(2):
        controller = server.controller
        two = controller.create(CreateRequest("a", 8, allocation_id="team-a"))
        assert {controller.topology.by_id[ipu].agent for ipu in two.ipus} == {"ag0", "ag1"}
        assert (two.cluster, two.allocation) == ("big", "team-a")
        with pytest.raises(NoCapacity, match="0 of 8 are free"):
            controller.create(CreateRequest("full", 1, allocation_id="team-a"))
        whole = controller.create(CreateRequest("whole", 64))
        assert (whole.ipus[0].domain, whole.routing) == (1, IpuLinkRouting.SWNC)
        # Nobody's: the machine of the second cluster, and those of none.
        with pytest.raises(NoCapacity, match="free"):
            controller.create(CreateRequest("small", 1, cluster_id="small"))
        for allocation in ("default", "small"):
            with pytest.raises(InvalidRequest, match="use team-a, team-b"):
                controller.create(CreateRequest("none", 1, allocation_id=allocation))
        controller.remove("a")
        controller.remove("whole")
        controller.uncordon("ag35")  # ends no more than a cordon
        assert controller.state.occupancy.why_closed(controller.topology.ipus[0].id)
        server.stop()
        server, _ = start()


def test_a_partition_is_where_it_was_after_a_restart(start: Start) -> None:
    server, _ = start()
    arrange()
    before = server.controller.create(CreateRequest("a", 4, allocation_id="team-b"))
    agent = server.controller.topology.by_id[before.ipus[0]].agent
    server.stop()
    server, _ = start()
    assert server.controller.get("a") == before
    assert server.controller.topology.by_id[before.ipus[0]].agent == agent
    server.stop()
    with pytest.raises(StateFileError, match="name agent ag30, which this fleet of 120 IPUs"):
        start(machines=30)


def test_users_and_administrators_see_the_arrangement(start: Start, capsys: Said) -> None:
    server, _ = start()
    arrange()
    server.controller.create(CreateRequest("a", 4, allocation_id="team-a"))
    clusters = listed(capsys, admin.main, "list", "clusters")
    assert [
        (one["id"], one["topology"], one["looped"], one["ipulink_domains"], one["ipus"])
        for one in clusters
    ] == [("big", "mesh", True, 2, 128), ("small", "torus", False, 1, 4)]
    allocations = listed(capsys, admin.main, "list", "allocations")
    assert [(one["id"], one["cluster_ids"], one["free_ipus"]) for one in allocations] == [
        ("team-a", ["big"], 4),
        ("team-b", ["big"], 120),
    ]
    seen = listed(capsys, main.main, "list", "allocations")
    assert [one["id"] for one in seen] == ["team-a", "team-b"]
    attributes = listed(capsys, main.main, "list", "ipu-attrs")
    assert len(attributes) == 32  # agents in an allocation
    assert admin.main(["get", "cluster", "big"]) == 0
    assert "mesh, looped" in capsys.readouterr().out
    assert admin.main(["get", "allocation", "team-c"]) == 1
    assert "no allocation 'team-c'; see vipu-admin list allocations" in capsys.readouterr().err
    agents = listed(capsys, admin.main, "list", "agents")
    assert [one["id"] for one in agents if not one["allocation_id"]] == [
        *("ag32", "ag34", "ag35"),
        "ag33",
    ]


async def test_the_proxy_counts_what_the_allocations_have(start: Start) -> None:
    server, port = await asyncio.to_thread(start)
    await asyncio.to_thread(arrange)
    fleet = Fleet(
        lambda there: unfenced(VipuClient(there, deadline_seconds=60)),
        lambda: f"127.0.0.1:{port}:vipu-ctrl=vctl1",
        lambda _: True,
        time.monotonic,
        FleetOptions(topology_seconds=0, fresh_seconds=0, view_seconds=60),
    )
    fleet.reload()
    views = await fleet.last_known_views()
    assert capacity.stats([], views)["total"] == {"used": 0, "available": 128}
    for size in (1, 8, 16, 64):
        # Nothing spans the two allocations: 8 IPUs of team-a, 56 and 64 of team-b.
        fits = capacity.query(views, size)["numOfPartitions"]
        names = [f"p{size}-{number}" for number in range(int(fits))]
        for name in names:
            server.controller.create(CreateRequest(name, size))
        with pytest.raises(NoCapacity):
            server.controller.create(CreateRequest("more", size))
        for name in names:
            server.controller.remove(name)
    assert [fits, len(names)] == [1, 1]
    await asyncio.to_thread(done, "remove", "allocation", "team-b")
    views = await fleet.last_known_views()
    assert capacity.stats([], views)["total"] == {"used": 0, "available": 8}
    await fleet.close()
