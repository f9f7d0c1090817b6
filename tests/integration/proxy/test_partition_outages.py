"""Cordoned machines and broken IPUs behind the proxy: counts, and jobs' new partitions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipuhub.partition import Phase
from partitions.proxy.controllers import ControllerView, parse_controllers
from partitions.proxy.fleetmap import fleet_to_json
from partitions.proxy.shortage import explain_shortage
from partitions.vipu.errors import NoCapacity
from partitions.vipu.server.controller import Controller, Latencies
from partitions.vipu.server.statefile import StateFile
from partitions.vipu.topology import PARTITION_SIZES, topology_from_attributes
from partitions.vipu.types import CreateRequest, ReadyState, VipuPartition
from tests.builders.fleets import fleet_of_machines
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import request

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.integration.proxy.conftest import World

(SPEC,) = parse_controllers("v1:8090:vipu-ctrl=v1")
agents = st.integers(0, 17).map("ag{}".format)
outages = st.lists(
    st.one_of(
        st.tuples(st.just("cordon"), agents, st.just("cables")),
        st.tuples(st.just("fail_ipu"), agents, st.integers(0, 3), st.just("it is hot")),
        st.tuples(st.just("lose_agent"), agents, st.just("it does not answer")),
        st.tuples(st.just("create"), st.sampled_from(PARTITION_SIZES)),
    ),
    max_size=20,
)


def fleet(folder: Path) -> Controller:
    """Eighteen machines: a full IPU-Link domain, and two machines of another."""
    topology = fleet_of_machines(18, cluster="c", allocation="a")
    now = datetime(2026, 3, 1, tzinfo=UTC)
    return Controller(topology, StateFile(folder / "vipu.json"), Latencies(), lambda: now)


def view_of(controller: Controller) -> ControllerView:
    topology = topology_from_attributes(controller.attributes([], published_only=False))
    partitions = tuple(
        VipuPartition(one.id, len(one.ipus), one.ipus, one.ready_state(controller.clock()))
        for one in controller.list()
    )
    return ControllerView(SPEC, topology, partitions)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=outages, size=st.sampled_from(PARTITION_SIZES))
def test_as_many_partitions_can_be_made_as_the_proxy_counts(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]], size: int
) -> None:
    controller = fleet(tmp_path_factory.mktemp("vipu"))
    for number, (what, *given_) in enumerate(steps):
        if what != "create":
            getattr(controller, str(what))(*given_)
            continue
        with suppress(NoCapacity):
            controller.create(CreateRequest(f"p{number}", int(str(given_[0]))))
    view, made = view_of(controller), 0
    with suppress(NoCapacity):
        while True:
            controller.create(CreateRequest(f"q{made}", size))
            made += 1
    assert view.fitting(size) == made
    held = sum(one.size for one in view.partitions if one.ready_state is not ReadyState.ERROR)
    assert held + view.free + view.cordoned + view.faulty == view.total == 72


def test_a_shortage_names_the_machines_out_of_service_and_why(tmp_path: Path) -> None:
    controller = fleet(tmp_path)
    controller.fail_ipu("ag1", 0, "IPU 0 has a memory error")
    controller.cordon("ag2", "new cables on Monday")
    shortage = explain_shortage([view_of(controller)], 32)
    assert shortage.message == (
        "32 IPUs in one block are needed and not free now; blocks have up to 64; out of service: "
        "1 IPU (ag1: IPU 0 has a memory error), 4 IPUs (ag2 is cordoned: new cables on Monday)"
    )
    for number in range(4, 16, 2):
        controller.cordon(f"ag{number}", "x" * 200)
    shortage = explain_shortage([view_of(controller)], 32)
    assert shortage.message.endswith(
        f"out of service: 24 IPUs (ag4 is cordoned: {'x' * 182}…, and 5 more like it), "
        "4 IPUs (ag2 is cordoned: new cables on Monday), 1 IPU (ag1: IPU 0 has a memory error)"
    )
    controller.cordon("ag0", "a visit")
    shortage = explain_shortage([view_of(controller)], 32)
    assert shortage.message.endswith("4 IPUs (ag2 is cordoned: new cables on Monday), 1 IPU more")


def test_a_thousand_agents_that_do_not_answer_are_one_thing_to_know(tmp_path: Path) -> None:
    controller = fleet(tmp_path)
    for number in range(16):
        controller.lose_agent(f"ag{number}", f"ag{number} has not answered since 8:0{number % 9}")
    view = view_of(controller)
    found = fleet_to_json([view], [], [])["outOfService"]
    assert found == "64 IPUs (ag0 has not answered since 8:00, and 15 more like it)"
    other = replace(view, spec=replace(view.spec, address="v2:8090"))
    found = fleet_to_json([view, other], [], [])["outOfService"]
    assert found == (
        "128 IPUs of 2 controllers (ag0 has not answered since 8:00, and 31 more like it)"
    )


def test_the_fleet_names_them_beside_the_queue(tmp_path: Path) -> None:
    controller = fleet(tmp_path)
    assert fleet_to_json([view_of(controller)], [], [])["outOfService"] == ""
    controller.lose_agent("ag3", "ag3 has not answered since 8:00")
    found = fleet_to_json([view_of(controller)], [], [])["outOfService"]
    assert found == "4 IPUs (ag3 has not answered since 8:00)"


def test_machines_of_several_controllers_are_named_with_their_controller(tmp_path: Path) -> None:
    controller = fleet(tmp_path)
    controller.cordon("ag2", "new cables on Monday")
    view = view_of(controller)
    other = replace(view, spec=replace(view.spec, address="v2:8090"))
    assert fleet_to_json([view, other], [], [])["outOfService"] == (
        f"4 IPUs of {view.spec.address} (ag2 is cordoned: new cables on Monday), "
        "4 IPUs of v2:8090 (ag2 is cordoned: new cables on Monday)"
    )


async def test_a_job_whose_partition_cannot_be_reset_gets_another_one(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    partition = world.entry().id
    world.vipu.broken[partition] = "ag0: IPU 2 has a memory error"
    world.vipu.partitions[partition].ready = ReadyState.ERROR
    await proxy.service.reset("uid-job", 0, 1)
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    assert world.entry().attempt == 1
    assert world.vipu.created == [partition, partition]
    assert world.vipu.partitions[partition].resets == 0
