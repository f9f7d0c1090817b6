"""The pauses of the monitor between its rounds."""

from __future__ import annotations

import pytest

from usage.monitor.rounds import pause_seconds


@pytest.mark.parametrize(
    ("failures", "want"), [(0, 60.0), (1, 2.0), (2, 4.0), (3, 8.0), (5, 32.0), (6, 60.0), (99, 60)]
)
def test_what_was_away_is_asked_again_soon_and_then_less_often(failures: int, want: float) -> None:
    assert pause_seconds(failures, 60.0) == want


def test_a_short_round_is_never_made_longer() -> None:
    assert pause_seconds(4, 1.0) == 1.0
