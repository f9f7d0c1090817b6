"""The time after a summed hour continues exactly from the IPUs held as that hour ended."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipuhub.web.access import Scope
from tests.builders.lifetimes import at, store_pod
from tests.integration.usage.test_usage_sums import oracle, series, summary
from usage.models import (
    GroupHour,
    KindHour,
    PodLifetime,
    RollupDirt,
    RollupState,
    UsageHour,
    UserHour,
)
from usage.reading import read_coverage
from usage.sums.measures import dimensions
from usage.sums.parts import Steps, split
from usage.sums.queries import Question
from usage.sums.rollups import refresh
from usage.time.windows import Window, step_begins

if TYPE_CHECKING:
    from datetime import datetime

pytestmark = pytest.mark.django_db
ZONE = ZoneInfo("UTC")
SUMMED = at("2026-11-21T06:10")
MIDNIGHT = at("2026-11-21")
# Whole hours often: what ends as an hour does is where off by one would show.
near = st.integers(-30, 7).map(lambda h: MIDNIGHT + timedelta(hours=h)) | st.integers(
    -30 * 36_000, 7 * 36_000
).map(lambda tenths: MIDNIGHT + timedelta(seconds=tenths / 10))
# Most changes after 06:00, at or about it: any earlier change has the pods themselves read.
SIX = at("2026-11-21T06:00")
since = st.just(SIX) | st.integers(0, 90 * 600).map(lambda n: SIX + timedelta(seconds=n / 10))
ended = st.none() | st.just(SIX) | since | near
facts = (st.sampled_from("ab"), st.integers(0, 64), st.booleans())
rows = st.lists(st.tuples(near, ended, *facts), min_size=1, max_size=8)
begun_since = st.lists(st.tuples(since, st.none() | since, *facts), max_size=4)
begun_any_time = st.lists(st.tuples(near, ended, *facts), max_size=2)


def question(begin: datetime, now: datetime, *by: str) -> Question:
    window = Window.of(begin, at("2026-12-01"), now)
    return Question(Scope(None), window, ZONE, dimensions(by))


def carried(query: Question, begins: list[datetime]) -> list[datetime]:
    """The hours whose end the sums go on from."""
    parts = split(Steps(tuple(begins)), query.window.until, ZONE, read_coverage())
    return [each.after for each in parts.stretches if each.after]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=rows,
    later=begun_since | begun_since | begun_any_time,
    ends=st.lists(since, max_size=4) | st.lists(since, max_size=4) | st.lists(near, max_size=4),
    begin=st.just(SIX) | near,
    now=st.integers(0, 2 * 3600).map(lambda s: SUMMED + timedelta(seconds=s)),
    by=st.sampled_from([(), ("group",), ("user",), ("component", "user"), ("job",)]),
    step=st.sampled_from(["hour", "day", "month"]),
)
def test_sums_that_go_on_from_an_hour_equal_a_plain_loop(
    before: Any, later: Any, ends: Any, begin: datetime, now: datetime, by: Any, step: str
) -> None:
    for model in (PodLifetime, RollupState, RollupDirt):
        model.objects.all().delete()
    _store(before)
    refresh(SUMMED, ZONE)
    _store(later)
    for row, end in zip(PodLifetime.objects.filter(finished_at=None), ends, strict=False):
        row.finished_at = end
        row.save()
    query = question(begin, max(now, begin + timedelta(seconds=1)), *by)
    begins = step_begins(query.window, step, ZONE)
    assert series(query, step)[1] == oracle(query, begins)
    whole = {key: found for (_, key), found in oracle(query, [query.window.begin]).items()}
    assert summary(query, "seconds") == whole


def _store(lifetimes: Any) -> None:
    for began, ended, name, amount, flag in lifetimes:
        common = {"group": name, "user": f"u{amount % 2}", "component": f"c{amount % 3}"}
        store_pod(
            "2026-01-01T00:00",
            **common,
            scheduled_at=began,
            finished_at=ended,
            gpus=amount % 5,
            micro_ipus=amount,
            estimated=flag,
            user_verified=not flag,
        )


def test_what_was_carried_over_is_taken_from_the_hour_before() -> None:
    store_pod("2026-11-20T12:00", ipus=4, user="x")
    store_pod("2026-11-21T05:30", "2026-11-21T06:05", ipus=1, user="x")
    refresh(SUMMED, ZONE)
    query = question(at("2026-11-01"), at("2026-11-21T06:20"), "group")
    assert carried(query, [query.window.begin]) == [at("2026-11-21T05:00")]
    for model in (UsageHour, UserHour, KindHour, GroupHour):
        last = model.objects.get(hour=at("2026-11-21T05:00"))
        assert (last.going_pods, last.going_micro_ipus) == (2, 5_000_000)
    # Nobody looks for the pods themselves: they may be anywhere in a long history.
    GroupHour.objects.filter(hour=at("2026-11-21T05:00")).update(going_pods=1002)
    assert summary(query, "seconds")["team-a"].seconds == (18 * 3600 + 1200 + 35 * 60) + 1000 * 1200


def test_the_first_hour_of_a_day_goes_on_from_the_last_of_the_day_before() -> None:
    store_pod("2026-11-19T12:00", ipus=4)
    refresh(at("2026-11-21T00:03"), ZONE)
    query = question(at("2026-11-01"), at("2026-11-21T00:10"), "group")
    assert carried(query, [query.window.begin]) == [at("2026-11-20T23:00")]
    assert summary(query, "seconds")["team-a"].seconds == 36 * 3600 + 600


@pytest.mark.parametrize("begin", ["2026-11-21T05:30:00", "2026-11-21T06:00:01"])
def test_a_range_that_begins_within_an_hour_looks_for_what_is_carried_into_it(begin: str) -> None:
    store_pod("2026-11-20T12:00")
    refresh(SUMMED, ZONE)
    now = at(begin) + timedelta(minutes=10)
    query = question(at(begin), now, "group")
    assert carried(query, [query.window.begin]) == []
    assert summary(query, "seconds")["team-a"].seconds == 600


def test_who_ended_with_the_hour_is_not_in_the_time_after_it() -> None:
    one = store_pod("2026-11-21T04:00", user="x")
    refresh(SUMMED, ZONE)
    one.finished_at = at("2026-11-21T06:00")  # told late: the hour before had it going on
    one.save()
    query = question(at("2026-11-21T06:00"), at("2026-11-21T06:20"), "group")
    assert carried(query, [query.window.begin]) == [at("2026-11-21T05:00")]
    assert summary(query, "seconds") == {}


def test_a_change_before_the_hour_ended_is_added_up_from_the_pods() -> None:
    one = store_pod("2026-11-21T04:00", user="x")
    refresh(SUMMED, ZONE)
    one.finished_at = at("2026-11-21T05:59")
    one.save()
    query = question(at("2026-11-21T06:00"), at("2026-11-21T06:20"), "group")
    assert carried(query, [query.window.begin]) == []
    assert summary(query, "seconds") == {}


def test_a_day_that_begins_at_half_past_an_hour_goes_on_from_no_hour() -> None:
    store_pod("2026-11-18T12:00")
    kolkata = ZoneInfo("Asia/Kolkata")
    refresh(SUMMED, kolkata)
    window = Window.of(at("2026-11-19T18:30"), at("2026-12-01"), at("2026-11-21T06:20"))
    query = Question(Scope(None), window, kolkata)
    parts = split(Steps((window.begin,)), window.until, kolkata, read_coverage())
    assert [each.after for each in parts.stretches] == [None, at("2026-11-21T05:00")]
    assert summary(query, "seconds")[""].seconds == (window.until - window.begin).total_seconds()
