"""`run_web` beside a database that starts with it."""

from __future__ import annotations

import pytest
import structlog.testing
from django.db import OperationalError

from dashboard.management.commands.run_web import once_it_answers


class Away:
    """A database that answers from some second on; pauses are what makes time pass."""

    def __init__(self, until: float) -> None:
        self.until, self.now, self.tries = until, 0.0, 0

    def work(self) -> None:
        self.tries += 1
        if self.now < self.until:
            raise OperationalError("connection refused\nIs the server running?")

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now


def test_it_is_waited_for_with_one_line_in_the_log() -> None:
    away = Away(until=3.0)
    with structlog.testing.capture_logs() as lines:
        once_it_answers(away.work, 60.0, away.pause, away.clock)
    assert away.tries == 4
    assert [line["event"] for line in lines] == ["waiting for the database"]
    assert "\n" not in lines[0]["problem"]


@pytest.mark.parametrize(("seconds", "tries"), [(0.0, 1), (5.0, 6)])
def test_it_is_waited_for_so_long_and_no_longer(seconds: float, tries: int) -> None:
    away = Away(until=600.0)
    with pytest.raises(OperationalError):
        once_it_answers(away.work, seconds, away.pause, away.clock)
    assert away.tries == tries
