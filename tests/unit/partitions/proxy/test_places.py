"""The times at which the recorder of places requests the fleet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from ipuhub.concurrency import end_tasks
from partitions.history.places import PlaceRecorder, Unplaced
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from partitions.client import ProxyClient

OURS, ORIGINAL = Unplaced("a", "v1:8090", "p-a", 0), Unplaced("b", "old:8090", "p-b", 0)


class Fleet:
    """Returns the places of v1's IPUs, and none of the other controller's."""

    def __init__(self) -> None:
        self.requests = 0

    async def fleet(self) -> Mapping[str, Any]:
        self.requests += 1
        return {
            "controllers": [
                {"address": "v1:8090", "reachable": True, "placesKnown": True, "machines": []},
                {"address": "old:8090", "reachable": True, "placesKnown": False, "machines": []},
            ]
        }


async def test_a_controller_that_does_not_say_places_is_not_asked_about_at_every_change() -> None:
    proxy, rows = Fleet(), [ORIGINAL]
    written: list[Sequence[Unplaced]] = []

    async def unplaced() -> list[Unplaced]:
        return rows

    async def write(due: Sequence[Unplaced], _: Mapping[str, Any]) -> int:
        written.append(due)
        return 0

    recorder = PlaceRecorder(cast("ProxyClient", proxy), unplaced, write)
    for _ in range(3):
        await recorder.once()
    assert proxy.requests == 1
    rows.append(OURS)  # its place may be said a moment later
    for _ in range(2):
        await recorder.once()
    assert proxy.requests == 3
    assert written[1:] == [[OURS], [OURS]]


SAYS: Final = {"address": "v1:8090", "reachable": True, "placesKnown": True}


@pytest.mark.parametrize(
    "controllers",
    [
        [SAYS],
        ["v1:8090"],
        [SAYS | {"machines": [{"agent": "ag0", "ipus": [{"partition": "p-a"}]}]}],
        [SAYS | {"machines": [{"agent": "ag0", "ipus": [{"partition": "p-a", "position": "1"}]}]}],
        [SAYS | {"machines": [{"agent": "ag0", "ipus": [{"partition": [1], "position": 1}]}]}],
        [{"reachable": True, "placesKnown": True, "machines": []}],
        [SAYS | {"machines": None}],
    ],
)
async def test_an_answer_that_makes_no_sense_ends_no_recording(controllers: list[Any]) -> None:
    class Odd:
        async def fleet(self) -> Mapping[str, Any]:
            return {"controllers": controllers}

    async def unplaced() -> list[Unplaced]:
        return [OURS]

    async def write(*_: Any) -> int:
        return 0

    recorder = PlaceRecorder(cast("ProxyClient", Odd()), unplaced, write)
    running = asyncio.create_task(recorder.run())
    await eventually(lambda: recorder.problem or running.done())
    assert not running.done()
    await end_tasks(running)
    assert "unknown format" in recorder.problem
