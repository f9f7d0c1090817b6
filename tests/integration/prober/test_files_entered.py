"""The number of files to open to follow a pod's event to its row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.entered import files_entered
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.prober.conftest import Lab


async def test_files_entered_by_a_pod_event_to_its_row(lab: Lab) -> None:
    lab.start()
    lab.server.step(1, "ADDED")
    await lab.server.tell()
    await eventually(lambda: lab.is_at(lab.server.revision))
    with files_entered() as seen:
        lab.server.step(2, "ADDED")
        await lab.server.tell()
        await eventually(lambda: lab.is_at(lab.server.revision))
    assert len(seen.calls) <= 24
