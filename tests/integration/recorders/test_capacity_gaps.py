"""The times of polls of controllers are recorded, and a long silence becomes a gap."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from ipuhub.models import WatchCheckpoint, WatchGap
from partitions.history.recorder import note_capacity_seen
from tests.builders.lifetimes import at

pytestmark = pytest.mark.django_db
NOON = at("2026-11-20T12:00")


def note(seconds: float) -> None:
    with connection.cursor() as cursor:
        note_capacity_seen(cursor, NOON + timedelta(seconds=seconds), 60)  # type: ignore[arg-type]


def test_each_question_moves_on_what_is_known() -> None:
    note(0)
    note(10)
    note(5)  # another prober's, that committed late
    assert WatchCheckpoint.objects.get(name="capacity").position_at == NOON + timedelta(seconds=10)
    assert not WatchGap.objects.exists()


def test_a_question_or_two_without_an_answer_are_no_gap_and_a_longer_silence_is() -> None:
    note(0)
    note(60)
    assert not WatchGap.objects.exists()
    note(121)
    gap = WatchGap.objects.get()
    assert (gap.watch, gap.began_at, gap.ended_at) == (
        "capacity",
        NOON + timedelta(seconds=60),
        NOON + timedelta(seconds=121),
    )
    note(130)
    assert WatchGap.objects.count() == 1
