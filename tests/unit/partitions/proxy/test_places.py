"""When the recorder of places asks the proxy for the fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from partitions.history.places import PlaceRecorder, Unplaced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from partitions.client import ProxyClient

OURS, ORIGINAL = Unplaced("a", "v1:8090", "p-a"), Unplaced("b", "old:8090", "p-b")


class Fleet:
    """Says where the IPUs of v1 stand, and nothing of those of the other controller."""

    def __init__(self) -> None:
        self.asked = 0

    async def fleet(self) -> Mapping[str, Any]:
        self.asked += 1
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
    assert proxy.asked == 1
    rows.append(OURS)  # its place may be said a moment later
    for _ in range(2):
        await recorder.once()
    assert proxy.asked == 3
    assert written[1:] == [[OURS], [OURS]]
