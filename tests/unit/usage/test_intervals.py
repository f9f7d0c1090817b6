from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usage.time.windows import clip, whole_seconds

_MAY, _JUNE = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)
_NEW_YEAR, _HOUR = datetime(2026, 1, 1, tzinfo=UTC), timedelta(hours=1)


@pytest.mark.parametrize(
    ("began", "ended", "want_hours", "want_running"),
    [
        (_MAY + _HOUR, _MAY + 3 * _HOUR, 2, False),
        (_MAY - _HOUR, _MAY + _HOUR, 1, False),
        (_JUNE - _HOUR, _JUNE + _HOUR, 1, True),
        (_MAY - _HOUR, None, 744, True),
        (_MAY, _MAY, 0, False),
        (_MAY + 2 * _HOUR, _MAY + _HOUR, 0, False),
        (None, _MAY + _HOUR, None, False),
        (_MAY - _HOUR, _MAY, None, False),
        (_JUNE, None, None, False),
    ],
)
def test_a_lifetime_counts_for_what_lies_in_the_range(began, ended, want_hours, want_running):
    piece = clip(began, ended, _MAY, _JUNE)
    if want_hours is None:
        assert piece is None
        return
    assert piece is not None
    assert piece.seconds == want_hours * 3600
    assert piece.running is want_running


_INSTANTS = st.integers(0, 364 * 86400 * 10**6).map(lambda n: _NEW_YEAR + timedelta(microseconds=n))
_SECONDS = _INSTANTS.map(lambda instant: instant.replace(microsecond=0))


@given(_INSTANTS, _INSTANTS, st.lists(_SECONDS, min_size=1, max_size=6))
def test_pieces_cut_at_whole_seconds_add_up_to_the_whole(first, second, cuts):
    began, ended = sorted((first, second))
    edges = [datetime(2025, 1, 1, tzinfo=UTC), *sorted(cuts), datetime(2027, 1, 1, tzinfo=UTC)]
    pieces = [clip(began, ended, *pair) for pair in pairwise(edges)]
    assert sum(piece.seconds for piece in pieces if piece) == whole_seconds(began, ended)
