"""Instants and windows as people write them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from usage.time.ranges import read_instant, read_window
from usage.time.windows import WindowError

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("2026-11-21T10:00:00", "2026-11-21T09:00:00+00:00"),  # no offset: a time of the zone
        ("2026-11-21T10:00:00Z", "2026-11-21T10:00:00+00:00"),
        ("2026-11-21T10:00:00 05:00", "2026-11-21T05:00:00+00:00"),  # a `+` not escaped
        ("2026-11-21", "2026-11-20T23:00:00+00:00"),
    ],
)
def test_an_instant_is_read_in_the_zone_unless_it_says_otherwise(text: str, want: str) -> None:
    assert read_instant(text, BERLIN).isoformat() == want


@pytest.mark.parametrize("text", ["9999-12-31", "0001-01-01", "2026-02-30", "soon"])
def test_a_day_that_no_calendar_has_is_refused_in_words(text: str) -> None:
    with pytest.raises(WindowError, match="is not a date"):
        read_instant(text, BERLIN, end=text.startswith("9"))


def test_a_window_longer_than_the_calendar_is_refused_in_words() -> None:
    with pytest.raises(WindowError, match="is too long"):
        read_window("999999w", NOW, BERLIN)
