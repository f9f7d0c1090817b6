"""A second vipu-server over the agents of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from partitions.vipu.client import CreateRequest, ReadyState
from partitions.vipu.errors import NoCapacity
from tests.fakes.waiting import eventually
from tests.integration.vipu.agentmachines import state_of
from tests.integration.vipu.test_vipu_server_agents import active, client, created, start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from partitions.vipu.server.main import VipuServer
    from tests.integration.vipu.agentmachines import Machine

__all__ = ["start"]


async def test_a_second_controller_gets_no_agent_that_another_uses_unless_it_takes_it_over(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer], tmp_path: Path
) -> None:
    both = machines(1)
    first = start(both)
    other = tmp_path / "other.json"

    def lost(server: VipuServer) -> bool:
        problems = [event.facts.get("problem", "") for event in server.controller.events.last()[0]]
        return any("ag0 is used by another vipu-server" in problem for problem in problems)

    async with client(first) as vipu:
        await active(vipu, "p", 4)
        before = await both[0].partitions()
        second = start(both, storage=other)
        await eventually(lambda: lost(second))
        async with client(second) as elsewhere:
            with pytest.raises(NoCapacity):
                await elsewhere.create_partition(CreateRequest("q", 4))
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
