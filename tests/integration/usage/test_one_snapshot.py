"""Sums and their validity are read from one snapshot, whatever is written meanwhile."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import pytest
from django.db import connection

from ipuhub.web.access import Scope
from partitions.models import CapacityChange, PartitionLifetime
from tests.builders.lifetimes import at, store_partition, store_pod
from usage.reading import read_coverage
from usage.sums import queries
from usage.sums.measures import dimensions
from usage.sums.queries import Question, all_sums, chart, read_sums
from usage.sums.rollups import refresh
from usage.time.months import usage_zone
from usage.time.windows import Window
from usage.utilization import selectors as capacities
from usage.utilization.rollups import read_summed_time
from usage.utilization.selectors import read_capacity

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.django_db(transaction=True)
EVENING, MIDNIGHT = at("2026-11-21T23:10"), at("2026-11-22T00:05")
HELD = 2 * 19 * 3600


def _elsewhere(work: Callable[[], object]) -> None:
    """Do it to the end over a connection of its own."""

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = Thread(target=run)
    thread.start()
    thread.join()


def _question() -> Question:
    window = Window.of(at("2026-11-21"), at("2026-11-22"), MIDNIGHT)
    return Question(Scope(None), window, usage_zone(), dimensions(("group",)))


def _listed(query: Question) -> int:
    return read_sums(query, [query.window.begin], "pods", 10).total.seconds


def _streamed(query: Question) -> int:
    return sum(row.measures.seconds for row in all_sums(query, [query.window.begin], "pods"))


def _charted(query: Question) -> int:
    return sum(chart(query, "day", "seconds", 5).sums.values())


@pytest.mark.parametrize("read", [_listed, _streamed, _charted])
def test_days_summed_anew_while_somebody_reads_take_nothing_from_him(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[Question], int]
) -> None:
    for _ in range(2):
        store_pod("2026-11-21T03:00", "2026-11-21T22:00")
    refresh(EVENING, usage_zone())

    def covered() -> object:
        cover = read_coverage()
        _elsewhere(lambda: refresh(MIDNIGHT, usage_zone()))
        return cover

    monkeypatch.setattr(queries, "read_coverage", covered)
    assert read(_question()) == HELD
    monkeypatch.undo()
    assert read(_question()) == HELD


def test_rows_that_go_while_utilization_is_read_are_still_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    CapacityChange.objects.create(controller="v1", at=at("2026-11-20T00:00"), total=16, free=12)
    store_partition("2026-11-21T03:00", "2026-11-21T22:00", controller="v1")
    edges = [at("2026-11-21"), MIDNIGHT]
    before = read_capacity(edges[:1], edges[1])
    assert before.steps["v1"][0].by_jobs == 4 * 19 * 3600

    def standing() -> object:
        found = read_summed_time()
        _elsewhere(PartitionLifetime.objects.all().delete)
        return found

    monkeypatch.setattr(capacities, "read_summed_time", standing)
    assert read_capacity(edges[:1], edges[1]) == before
