"""Counts of the rows of a series: kept while its sums stay the same, and correct after a change."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from ipuhub.web.access import Scope
from tests.builders.lifetimes import at, store_pod
from tests.integration.usage.test_usage_sums import ask
from usage.models import PodLifetime
from usage.sums import series as pages
from usage.sums.queries import Place, all_sums, series_begins
from usage.sums.rollups import rebuild, refresh
from usage.sums.series import read_series
from usage.sums.sql import STEP
from usage.time import months

if TYPE_CHECKING:
    from usage.sums.queries import Question

pytestmark = pytest.mark.django_db(transaction=True)
NOW = at("2026-11-21T12:00")
UTC = ZoneInfo("UTC")


@pytest.fixture(autouse=True)
def _history(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(months, "CLOCKS_DIFFER", timedelta.max)  # of the machine and of NOW
    monkeypatch.setattr(pages, "_kept", {})
    store_pod("2026-11-16T00:10", "2026-11-18T02:00", group="g", namespace="a")
    store_pod("2026-11-16T00:10", "2026-11-17T02:00", group="h", namespace="b")
    refresh(NOW, UTC)


def question() -> Question:
    return ask("2026-11-16T00:00", "2026-11-21T00:00", "group", now=NOW)


def read(query: Question, after: Place | None = None) -> tuple[int, bool]:
    """Return the number of rows, and whether a statement counted them."""
    begins = series_begins(query, "hour")
    with CaptureQueriesContext(connection) as queries:
        page = read_series(query, begins, 1000, after)
    if after is None:
        assert page.rows == list(all_sums(query, begins, STEP))
        assert page.count == len(page.rows)
    return page.count, any("count(*)::int" in each["sql"] for each in queries)


def test_further_pages_of_a_series_count_nothing_again() -> None:
    assert read(question()) == (50 + 26, True)
    assert read(question(), Place(7, ("g",))) == (50 + 26, False)
    assert read(question()) == (50 + 26, False)


def test_who_may_see_less_has_a_count_of_his_own() -> None:
    read(question())
    assert read(replace(question(), scope=Scope(frozenset({"b"})))) == (26, True)
    assert read(question()) == (50 + 26, True)


def test_a_corrected_past_day_is_counted_at_once_and_when_it_is_summed() -> None:
    read(question())
    store_pod("2026-11-16T03:20", "2026-11-16T04:50", group="late", namespace="a")
    assert read(question()) == (50 + 26 + 2, True)
    refresh(NOW, UTC)
    assert read(question()) == (50 + 26 + 2, True)
    assert read(question()) == (50 + 26 + 2, False)
    PodLifetime.objects.filter(group="h").update(finished_at=at("2026-11-16T03:30"))
    refresh(NOW, UTC)
    assert read(question()) == (50 + 4 + 2, True)
    PodLifetime.objects.filter(group="late").delete()
    rebuild(NOW, UTC, lambda *_: None)
    assert read(question()) == (50 + 4, True)


def test_counts_that_lifetimes_were_read_for_are_not_kept() -> None:
    store_pod("2026-11-16T03:20", "2026-11-16T04:50", group="late", namespace="a")
    assert [read(question()) for _ in range(2)] == [(50 + 26 + 2, True)] * 2


def test_a_transaction_neither_keeps_counts_nor_takes_them() -> None:
    with transaction.atomic():
        assert [read(question()) for _ in range(2)] == [(50 + 26, True)] * 2
    assert read(question()) == (50 + 26, True)


def test_only_so_many_counts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_MOST", 1)
    assert read(question()) == (50 + 26, True)
    assert read(ask("2026-11-16T00:00", "2026-11-20T12:00", "group", now=NOW))[1]
    assert read(question()) == (50 + 26, True)
