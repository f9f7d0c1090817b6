"""The wire to Postgres breaks at each COMMIT in turn: whether it was kept or not, all is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fakes.lossywire import LossyWire
from tests.fakes.podstream import STEPS, expected_row, uid_of
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.fakes.lossywire import Moment
    from tests.integration.prober.conftest import Lab

TAKE_OVER, LIST, FIRST_BATCH, SECOND_BATCH = 1, 2, 3, 4
COMMITS = {
    TAKE_OVER: "take-over",
    LIST: "list",
    FIRST_BATCH: "first batch",
    SECOND_BATCH: "second batch",
}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("broken", COMMITS, ids=COMMITS.values())
async def test_a_commit_of_unknown_outcome_loses_and_doubles_nothing(
    lab: Lab, broken: int, moment: Moment
) -> None:
    lab.server.step(0, "ADDED")
    direct = lab.database
    wire = LossyWire(str(direct["host"]), int(direct["port"]), broken, moment)
    async with wire:
        lab.database = {**direct, "host": "127.0.0.1", "port": wire.port}
        prober = lab.start()
        lab.database = direct
        await eventually(lambda: prober.done() or lab.is_at(lab.server.revision), seconds=20)
        for number, steps in ((0, STEPS[1:]), (1, STEPS), (2, STEPS[:2])):
            for step in steps:
                lab.server.step(number, step)
            await lab.server.tell()
            await eventually(lambda: prober.done() or lab.is_at(lab.server.revision), seconds=20)
        assert wire.commits > broken
        assert not prober.done(), "it took itself for another prober"
        await eventually(lambda: not lab.health[0].not_ready())
        ends = {uid: row["finished_at"] for uid, row in lab.rows().items()}
        assert ends == {
            uid_of(0): expected_row(0).finished_at,
            uid_of(1): expected_row(1).finished_at,
            uid_of(2): None,
        }
        assert lab.gaps() == []
        assert (lab.server.lists, lab.server.watches) == (1, 1), "the watch goes on meanwhile"
        await lab.stop()
