"""The logs of simulated containers."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from devcluster.standinlog import Run, StandInLog

BEGAN = dt.datetime(2026, 11, 20, 9, tzinfo=dt.UTC)


def pod(role: str = "launcher", **sim: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"x-{role}",
            "labels": {"graphcore.ai/ipujob-uid": "u", "graphcore.ai/role": role},
            "annotations": {f"sim/{key}": value for key, value in sim.items()},
        },
        "spec": {"containers": [{"name": "main"}, {"name": "side"}]},
    }


def after(seconds: float) -> dt.datetime:
    return BEGAN + dt.timedelta(seconds=seconds)


def log(made: dict[str, Any], seconds: float, code: int | None = None) -> StandInLog:
    run = Run(BEGAN) if code is None else Run(BEGAN, after(seconds), code)
    return StandInLog(made, "main", run, after(seconds))


@pytest.mark.parametrize("role", ["launcher", "worker"])
def test_a_log_only_grows_and_its_times_never_go_back(role: str) -> None:
    made = pod(role, **{"log-lines": "5"})
    longer = list(log(made, 60).lines())
    assert list(log(made, 30).lines()) == longer[: len(log(made, 30))]
    assert [at for at, _ in longer] == sorted(at for at, _ in longer)
    ended = list(log(made, 60, 1).lines())
    assert ended[: len(longer)] == longer
    assert len(ended) > len(longer)


def test_lines_since_an_instant_are_found_without_reading_all() -> None:
    found = log(pod(), 1_000_000)
    first = found.first_since(after(999_000))
    assert found.line(first)[0] >= after(999_000)
    assert found.line(first - 1)[0] < after(999_000)


def test_a_failure_is_told_by_its_last_lines() -> None:
    message = log(pod(), 3600, 3).message()
    assert message.endswith("rank 0 ended with exit code 3; the other ranks were stopped")
    assert len(message.encode()) <= 2048
    assert message.count("\n") < 80
    assert log(pod(), 3600, 137).message().endswith("Killed")


def test_what_a_pod_says_of_its_log_is_its_log() -> None:
    made = pod(log="one\ntwo", **{"log.side": "three"})
    assert [line for _, line in log(made, 60, 1).lines()] == ["one", "two"]
    side = StandInLog(made, "side", Run(BEGAN), after(60))
    assert [line for _, line in side.lines()] == ["three"]
