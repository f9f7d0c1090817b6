"""A second vipu-server over the agents of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from partitions.vipu.agent.client import AgentClient
from partitions.vipu.client import CreateRequest, ReadyState
from partitions.vipu.errors import NoCapacity, NotReady
from tests.fakes.waiting import eventually
from tests.integration.vipu.agentmachines import state_of
from tests.integration.vipu.test_vipu_server_agents import active, client, created, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from partitions.vipu.server.events import Event
    from partitions.vipu.server.main import VipuServer
    from tests.integration.vipu.agentmachines import Machine

__all__ = ["start"]


async def some_answers(server: VipuServer, count: int = 4) -> None:
    """The agent has answered a few times more."""
    assert server._links is not None
    link = server._links._links["ag0"]
    for _ in range(count):
        last = link.heard_at
        await eventually(lambda last=last: link.heard_at > last)  # type: ignore[misc]


async def test_a_second_controller_gets_no_agent_that_another_uses_unless_it_takes_it_over(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer], tmp_path: Path
) -> None:
    both = machines(1)
    first = start(both)
    other = tmp_path / "other.json"

    def lost(server: VipuServer) -> bool:
        problems = [event.facts.get("problem", "") for event in server.controller.events.last()[0]]
        return any("ag0 is used by another vipu-server" in problem for problem in problems)

    def asked_for(server: VipuServer) -> list[Event]:
        events, _ = server.controller.events.last()
        return [event for event in events if event.what == "another vipu-server asks for an agent"]

    async with client(first) as vipu:
        await active(vipu, "p", 4)
        before = await both[0].partitions()
        second = start(both, storage=other)
        await eventually(lambda: lost(second))
        await eventually(lambda: asked_for(first))
        async with client(second) as elsewhere:
            with pytest.raises(NoCapacity):
                await elsewhere.create_partition(CreateRequest("q", 4))
        await some_answers(first)
        warnings = asked_for(first)
        assert len(warnings) <= 2  # once, unless the second pauses for long; not with each answer
        assert (warnings[0].facts["agent"], warnings[0].facts["host"]) == ("ag0", "127.0.0.1")
        id_of_second = other.with_name("other.json.lock").read_text()
        assert warnings[0].facts["controller"] == id_of_second
        assert asked_for(second) == []
        second.stop()
        assert (await both[0].partitions(), lost(first)) == (before, False)
        assert await state_of(vipu, "p") is ReadyState.ACTIVE
        second = start(both, storage=other, take_over_agents=True)
        await eventually(lambda: lost(first))
        assert await state_of(vipu, "p") is ReadyState.ERROR
        await eventually(both[0].names, lambda names: names == [])
        async with client(second) as elsewhere:
            await eventually(lambda: created(elsewhere, CreateRequest("q", 4)))
            await eventually(
                lambda: state_of(elsewhere, "q"), lambda state: state is ReadyState.ACTIVE
            )


async def test_ever_new_ids_from_one_host_are_told_of_once(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    (machine,) = machines(1)
    server = start([machine])
    for number in range(3):
        stranger = AgentClient(machine.address, deadline_seconds=60, controller=f"id-{number}")
        async with stranger as agent:
            with pytest.raises(NotReady, match="another V-IPU controller"):
                await agent.health()
        await some_answers(server, 2)
    kinds = [each.what for each in server.controller.events.last()[0]]
    assert kinds.count("another vipu-server asks for an agent") == 1
