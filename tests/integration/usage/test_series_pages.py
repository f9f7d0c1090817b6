"""Pages of a series of many steps: counted first, then only their own steps are added up."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.builders.clients import api_client
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.integration.usage.test_usage_sums import ask
from usage.models import GroupHour
from usage.sums import series as pages
from usage.sums.queries import Place, all_sums, series_begins
from usage.sums.rollups import refresh
from usage.sums.series import read_series
from usage.sums.sql import STEP
from usage.time import months

if TYPE_CHECKING:
    from usage.sums.queries import Question, SumRow

pytestmark = pytest.mark.django_db
NOW = at("2026-11-21T12:00")
LAST = at("2026-11-21T11:00")


@pytest.fixture(autouse=True)
def _history(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six days: a pod of each group in many hours, one without an end, and partitions."""
    monkeypatch.setattr(months, "CLOCKS_DIFFER", timedelta.max)  # of the machine and of NOW
    for hour in range(0, 144, 5):
        begin = at("2026-11-15T12:00") + timedelta(hours=hour, minutes=10)
        times = {"scheduled_at": begin, "finished_at": begin + timedelta(hours=2)}
        store_pod("2026-11-15T12:00", group=f"g{hour % 3}", gpus=1, **times)
    store_pod("2026-11-18T00:00", None, group="g0", gpus=2)
    store_partition("2026-11-17T11:00", "2026-11-17T13:15", group="g9", size=4)


def hours(begin: str = "2026-11-15T12:00", end: str = "2026-11-21T12:00") -> Question:
    return ask(begin, end, "group", now=NOW)


def all_pages(question: Question, size: int) -> list[SumRow]:
    begins, after, found = series_begins(question, "hour"), None, []
    while True:
        page = read_series(question, begins, size, after)
        assert len(page.rows) <= size
        found += page.rows
        if len(page.rows) < size:
            assert page.count == len(found)
            return found
        after = Place(page.rows[-1].step, page.rows[-1].key)


@pytest.mark.parametrize("is_summed", [True, False])
@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_pages_of_many_steps_have_all_rows_once(size: int, is_summed: bool) -> None:
    question = hours()
    begins = series_begins(question, "hour")
    assert len(begins) >= pages.MANY
    if is_summed:
        refresh(NOW, ZoneInfo("UTC"))
    want = list(all_sums(question, begins, STEP))
    assert all_pages(question, size) == want
    assert read_series(question, begins, 5).is_summed is is_summed


def test_of_many_steps_those_of_the_page_alone_are_added_up() -> None:
    refresh(NOW, ZoneInfo("UTC"))
    question = hours()
    begins = series_begins(question, "hour")
    with CaptureQueriesContext(connection) as queries:
        page = read_series(question, begins, 5, Place(30, ("g1",)))
    (adding,) = (each["sql"] for each in queries if "LIMIT 5" in each["sql"])
    last = begins[page.rows[-1].step]
    assert begins[30].isoformat() in adding
    for other in (begins[29], last + timedelta(hours=1), LAST):
        assert other.isoformat() not in adding


def test_a_correction_of_a_past_day_is_on_the_page_at_once() -> None:
    refresh(NOW, ZoneInfo("UTC"))
    question = hours()
    begins = series_begins(question, "hour")
    before = read_series(question, begins, 1000)
    store_pod("2026-11-16T03:20", "2026-11-16T03:50", group="late")
    for _ in range(2):
        after = read_series(question, begins, 1000)
        assert after.count == before.count + 1
        (row,) = (each for each in after.rows if each.key == ("late",))
        assert (begins[row.step], row.measures.seconds) == (at("2026-11-16T03:00"), 1800)
        assert [each for each in after.rows if each is not row] == before.rows
        refresh(NOW, ZoneInfo("UTC"))


def test_a_place_behind_all_steps_has_no_rows() -> None:
    refresh(NOW, ZoneInfo("UTC"))
    question = hours()
    begins = series_begins(question, "hour")
    page = read_series(question, begins, 5, Place(10**6, ("",)))
    assert (page.rows, page.count) == ([], read_series(question, begins, 5).count)


def test_a_page_of_the_api_takes_no_more_than_eight_questions() -> None:
    refresh(NOW, ZoneInfo("UTC"))
    user = get_user_model().objects.create_user("root", is_staff=True)
    client = api_client(user)
    address = "/api/v1/usage/series?from=2026-11-15&to=2026-11-20&step=hour&by=group"
    with CaptureQueriesContext(connection) as queries:
        body = client.get(address).json()
    assert len(queries) <= 8
    question = hours("2026-11-15T00:00", "2026-11-21T00:00")
    begins = series_begins(question, "hour")
    want = list(all_sums(question, begins, STEP))
    assert body["count"] == len(want) < 1000
    got = [(each["begin"], each["key"]["group"], each["gpu_hours"]) for each in body["results"]]
    assert [begins[row.step].isoformat().replace("+00:00", "Z") for row in want] == [
        begin for begin, *_ in got
    ]
    assert [row.key[0] for row in want] == [group for _, group, _ in got]


def test_sums_of_the_page_come_from_the_table_of_sums() -> None:
    refresh(NOW, ZoneInfo("UTC"))
    GroupHour.objects.update(gpu_seconds=1)
    question = hours()
    page = read_series(question, series_begins(question, "hour"), 1000)
    assert {row.measures.gpu_seconds for row in page.rows if row.measures.pods} == {1}
