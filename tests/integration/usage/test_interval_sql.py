from __future__ import annotations

import random
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connection

from tests.builders.lifetimes import at, store_partition, store_pod
from usage.models import PodLifetime
from usage.time.windows import PARTITION_PIECES, POD_PIECES, bounds, clip

pytestmark = pytest.mark.django_db
_MAY, _JUNE = at("2026-05-01T00:00"), at("2026-06-01T00:00")


def _rows(pieces: str, key: str, first=_MAY, until=_JUNE) -> dict[str, tuple]:
    with connection.cursor() as cursor:
        query = f"SELECT {key}, start, stop, going_on, seconds FROM ({pieces}) AS rows"
        cursor.execute(query, bounds(first, until))
        rows = cursor.fetchall()
    assert len({row[0] for row in rows}) == len(rows), "a row came twice"
    return {row[0]: row[1:] for row in rows}


def test_sql_and_python_clip_alike():
    chance = random.Random(7)
    for number in range(300):
        began = _MAY + timedelta(seconds=chance.uniform(-60, 45) * 86400)
        length = chance.choice((0, -5, 30, 3600, 86400, 86401, 20 * 86400, 50 * 86400, None))
        lifetime = store_pod("2026-05-01T00:00", uid=f"pod-{number}")
        lifetime.scheduled_at = began
        lifetime.finished_at = None if length is None else began + timedelta(seconds=length)
        lifetime.save()
    store_pod(None, "2026-05-02T00:00", uid="never-scheduled")
    want = {}
    for row in PodLifetime.objects.all():
        piece = clip(row.scheduled_at, row.finished_at, _MAY, _JUNE)
        if piece:
            want[row.uid] = (piece.start, piece.end, piece.running, piece.seconds)
    assert _rows(POD_PIECES, "uid") == want
    assert "never-scheduled" not in want


def test_partitions_are_clipped_likewise():
    store_partition("2026-04-30T23:00", "2026-05-01T01:00", key="into")
    store_partition("2026-05-31T23:00", "2026-06-09T01:00", key="out")
    store_partition("2026-04-01T00:00", "2026-07-01T01:00", key="across")
    store_partition("2026-05-30T00:00", key="held")
    store_partition("2026-04-01T00:00", "2026-05-01T00:00", key="before")
    store_partition("2026-06-01T00:00", key="after")
    rows = _rows(PARTITION_PIECES, "key")
    assert {key: row[3] // 3600 for key, row in rows.items()} == {
        "into": 1,
        "out": 1,
        "across": 744,
        "held": 48,
    }
    assert {key for key, row in rows.items() if row[2]} == {"out", "across", "held"}


def test_pieces_of_every_month_add_up_to_the_lifetime():
    store_pod("2026-03-31T23:59:30", "2026-06-01T00:00:30", uid="long")
    edges = ["2026-03-01", "2026-04-01", "2026-05-01", "2026-06-01", "2026-07-01"]
    months = [at(f"{edge}T00:00") for edge in edges]
    seconds = [
        _rows(POD_PIECES, "uid", *pair).get("long", (0, 0, 0, 0))[3] for pair in pairwise(months)
    ]
    assert seconds == [30, 30 * 86400, 31 * 86400, 30]
