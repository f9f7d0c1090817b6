"""Destinations of the log lines of the demo's processes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from devcluster.demo import logs as module
from devcluster.demo.logs import ProcessLogs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[ProcessLogs]:
    with contextlib.closing(ProcessLogs(tmp_path / "logs")) as made:
        yield made


INFO = "2026-11-24T20:21:42.461331Z [info     ] leading lease=ipu-operator"


@pytest.mark.parametrize(
    ("line", "want"),
    [
        (INFO, False),
        ("2026-11-24T20:21:42Z [warning  ] the V-IPU Proxy does not answer", True),
        ("2026-11-24T20:21:42Z [error    ] reconcile failed", True),
        ("2026-11-24T20:21:42Z [critical ] lease lost", True),
        ("2026-11-24 20:21:36.839 UTC [3413] ERROR:  relation is missing", True),
        ("2026-11-24 20:21:36.839 UTC [3413] FATAL:  the database system is shutting down", True),
        ("2026-11-24 20:21:36.839 UTC [3413] LOG:  database system is ready", False),
        ("Traceback (most recent call last):", True),
    ],
)
def test_problems_are_shown_once_all_is_up(logs: ProcessLogs, line: str, want: bool) -> None:
    lines: list[tuple[str, str]] = []
    logs.write("operator", line)
    assert lines == []
    logs.show = lambda name, text: lines.append((name, text))
    logs.write("operator", line)
    assert lines == ([("operator", line)] if want else [])
    assert (logs.directory / "operator.log").read_text() == f"{line}\n{line}\n"


def test_the_log_of_the_start_before_is_kept(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        logs = ProcessLogs(tmp_path)
        logs.write("proxy", f"start {number}")
        logs.close()
    assert (tmp_path / "proxy.log").read_text() == "start 3\n"
    assert (tmp_path / "proxy.log.1").read_text() == "start 2\n"
    assert not (tmp_path / "proxy.log.2").exists()


def test_a_log_does_not_grow_without_end(
    logs: ProcessLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 1000)
    for _ in range(200):
        logs.write("proxy", "x" * 49)
    assert sum(path.stat().st_size for path in logs.directory.iterdir()) <= 2000


def test_the_tail_is_the_last_lines(logs: ProcessLogs) -> None:
    for number in range(30):
        logs.write("web", str(number))
    assert logs.tail("web", 2) == ["28", "29"]
    assert logs.tail("operator") == []
