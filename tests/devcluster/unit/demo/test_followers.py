"""The processes of the demo that record and report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from devcluster.demo.processes import AGENT_PORTS, PORTS
from devcluster.demo.run import Demo

if TYPE_CHECKING:
    from pathlib import Path


class Started:
    """Stands in for the supervisor: notes what it is to start."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def start(self, process: Any) -> None:
        self.names.append(process.name)

    async def wait_ready(self, *names: str) -> None:
        assert set(names) <= set(self.names)


@pytest.mark.parametrize(("meters", "want"), [(True, ["prober", "monitor", "worker"]), (False, [])])
async def test_with_usage_off_nothing_is_recorded_or_reported(
    tmp_path: Path, meters: bool, want: list[str]
) -> None:
    started, lines = Started(), []
    demo = Demo(tmp_path, meters=meters, say=lines.append, supervisor=started)  # type: ignore[arg-type]
    demo.ports = {**PORTS, **AGENT_PORTS}
    await demo.start_followers()
    assert started.names == want
    assert ("Usage is off" in "".join(lines)) is not meters


@pytest.mark.parametrize(("meters", "want"), [(True, "on"), (False, "off")])
def test_released_partitions_wait_for_a_recorder_only_where_there_is_one(
    tmp_path: Path, meters: bool, want: str
) -> None:
    demo = Demo(tmp_path, meters=meters)
    demo.ports = {**PORTS, **AGENT_PORTS}
    assert demo.processes.proxy().env["IPUHUB_TRACKER_RECORDER"] == want
