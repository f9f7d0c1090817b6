"""Accelerators with a price by name are read from sums by name, which agree with the pods."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipuhub.web.access import Scope
from tests.builders.lifetimes import at, store_pod
from tests.builders.rates import store_rate
from usage.models import (
    GroupAcceleratorHour,
    KindAcceleratorDay,
    KindAcceleratorHour,
    KindAcceleratorSpan,
    PodLifetime,
    Rate,
    RollupDirt,
    RollupState,
    UsageAcceleratorDay,
    UsageAcceleratorHour,
    UsageAcceleratorSpan,
    UserAcceleratorDay,
    UserAcceleratorHour,
    UserAcceleratorSpan,
)
from usage.reading import pricing_at
from usage.sums.measures import COST_UNIT, dimensions
from usage.sums.queries import Question, all_sums, chart
from usage.sums.rollups import refresh
from usage.sums.sql import STEP
from usage.time.windows import Window, clip, step_begins

if TYPE_CHECKING:
    from datetime import datetime

pytestmark = pytest.mark.django_db
ZONE = ZoneInfo("UTC")
FIRST, SUMMED = at("2026-11-08"), at("2026-11-21T06:10")
SIX = at("2026-11-21T06:00")
BY_SPAN = (UsageAcceleratorSpan, UserAcceleratorSpan, KindAcceleratorSpan)
BY_DAY = (UsageAcceleratorDay, UserAcceleratorDay, KindAcceleratorDay)
BY_HOUR = (
    UsageAcceleratorHour,
    UserAcceleratorHour,
    KindAcceleratorHour,
    GroupAcceleratorHour,
)
anywhere = st.integers(0, 14 * 86_400).map(lambda s: FIRST + timedelta(seconds=s))
since = st.just(SIX) | st.integers(0, 5400).map(lambda s: SIX + timedelta(seconds=s))
counts = st.dictionaries(st.sampled_from("gh"), st.integers(0, 4) | st.just(2**40))
rows = st.tuples(anywhere, st.none() | anywhere, st.sampled_from("ab"), counts)
later = st.tuples(since, st.none() | since, st.sampled_from("ab"), counts)


def question(begin: datetime, now: datetime, *by: str) -> Question:
    window = Window.of(begin, at("2026-12-01"), now)
    pricing = pricing_at(window.begin, window.until, ZONE)
    return Question(Scope(None), window, ZONE, dimensions(by), pricing=pricing)


def costs(query: Question, step: str) -> dict[tuple[int, tuple[str, ...]], int]:
    begins = step_begins(query.window, step, ZONE)
    return {(row.step, row.key): row.measures.cost for row in all_sums(query, begins, STEP)}


def by_hand(query: Question, step: str) -> dict[tuple[int, tuple[str, ...]], int]:
    """Return the cost of the accelerators called `g`, at 3 an hour and from the 16th on at 5."""
    begins = step_begins(query.window, step, ZONE)
    found: dict[tuple[int, tuple[str, ...]], int] = {}
    lifetimes = list(PodLifetime.objects.all())
    for n, begin in enumerate(begins):
        until = min([*begins[n + 1 : n + 2], query.window.until])
        for one in lifetimes if begin < until else ():
            if clip(one.scheduled_at, one.finished_at, begin, until) is None:
                continue
            key = (n, tuple(getattr(one, each.name) for each in query.by))
            seconds = [
                piece.seconds if a < b and (piece := _clip(one, a, b)) else 0
                for a, b in (
                    (begin, min(until, at("2026-11-16"))),
                    (max(begin, at("2026-11-16")), until),
                )
            ]
            price = 3 * seconds[0] + 5 * seconds[1]
            found[key] = found.get(key, 0) + one.accelerators.get("g", 0) * price * COST_UNIT
    return found


def _clip(one: PodLifetime, begin: datetime, until: datetime) -> Any:
    return clip(one.scheduled_at, one.finished_at, begin, until)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(rows, min_size=1, max_size=6),
    after=st.lists(rows | later | later, max_size=3),
    moved=st.none() | counts,
    begin=anywhere | st.just(FIRST),
    now=st.integers(0, 7200).map(lambda s: SUMMED + timedelta(seconds=s)),
    by=st.sampled_from([(), ("group",), ("user",), ("component", "user"), ("component_name",)]),
    step=st.sampled_from(["hour", "day", "month"]),
)
def test_the_cost_of_accelerators_by_name_is_that_of_a_plain_loop(
    before: Any, after: Any, moved: Any, begin: datetime, now: datetime, by: Any, step: str
) -> None:
    for model in (PodLifetime, RollupState, RollupDirt, Rate):
        model.objects.all().delete()
    store_rate("accelerator", "3", "2026-01-01", "2026-11-16", "g")
    store_rate("accelerator", "5", "2026-11-16", "", "g")
    _store(before)
    refresh(SUMMED, ZONE)
    _store(after)
    if moved is not None:  # as many as before, of other names
        PodLifetime.objects.filter(group="a").update(accelerators=moved)
    for one in PodLifetime.objects.filter(finished_at=None, group="b"):
        one.finished_at = max(SIX, one.scheduled_at or SIX)
        one.save()
    query = question(begin, max(now, begin + timedelta(seconds=1)), *by)
    want = by_hand(query, step)
    for _ in range(2):
        found = costs(query, step)
        assert {key: cost for key, cost in found.items() if cost} == {
            key: cost for key, cost in want.items() if cost
        }
        refresh(query.window.until, ZONE)
    _assert_sums_are_those_of_the_pods()


def _store(lifetimes: Any) -> None:
    for began, ended, name, accelerators in lifetimes:
        store_pod(
            "2026-01-01T00:00",
            scheduled_at=began,
            finished_at=ended and max(began, ended),
            group=name,
            user=f"u{began.minute % 2}",
            gpus=sum(accelerators.values()),
            accelerators=accelerators,
        )


def _assert_sums_are_those_of_the_pods() -> None:
    """In whole numbers, by accelerator, in all tables of days."""
    state = RollupState.objects.get()
    until = at(f"{state.until}")
    want: dict[str, int] = {}
    for one in PodLifetime.objects.all():
        piece = _clip(one, at("2026-11-01"), until) if one.scheduled_at else None
        for name, count in one.accelerators.items():
            held = count * (piece.seconds if piece else 0)
            if held:
                want[name] = want.get(name, 0) + held
    for model in BY_DAY:
        found: dict[str, int] = {}
        for row in model.objects.exclude(gpu_seconds=0):
            found[row.accelerator] = found.get(row.accelerator, 0) + int(row.gpu_seconds)
        assert found == want


@pytest.fixture
def _priced(db: None) -> None:
    store_rate("accelerator", "3", name="g")
    store_pod("2026-11-09T00:00", None, group="a", gpus=2, accelerators={"g": 2})
    refresh(SUMMED, ZONE)


def total(begin: str, *by: str) -> int:
    """Hours of one `g` that the cost of the range is of."""
    found = costs(question(at(begin), at("2026-11-21T06:20"), *by), "month")
    return sum(found.values()) // (3 * 3600 * COST_UNIT)


@pytest.mark.usefixtures("_priced")
@pytest.mark.parametrize("by", ["group", "user", "instance_type", ""])
def test_no_pod_is_read_where_there_are_sums_by_name(by: str) -> None:
    names = [by] if by else []
    assert total("2026-11-09", *names) == 2 * (12 * 24 + 6 + 1 / 3) // 1
    for models, share in ((BY_SPAN, 1000), (BY_DAY, 100_000), (BY_HOUR, 10_000_000)):
        for model in models:
            model.objects.update(gpu_seconds=share * 3600)
    for model in BY_HOUR:
        model.objects.update(going_gpus=3 * 10**9)
    # Two days, a span and no day but these, six hours, a third of an hour after them.
    assert total("2026-11-09", *names) == 2 * 100_000 + 1000 + 6 * 10_000_000 + 10**9


@pytest.mark.usefixtures("_priced")
def test_the_chart_of_cost_reads_them_too() -> None:
    for model in BY_DAY:
        model.objects.update(gpu_seconds=3600)
    query = question(at("2026-11-09"), at("2026-11-21"), "group")
    found = chart(query, "day", "cost", 3).sums
    assert set(found.values()) == {3 * 3600 * COST_UNIT}


@pytest.mark.usefixtures("_priced")
def test_other_accelerators_of_the_same_number_are_seen_at_once() -> None:
    PodLifetime.objects.update(accelerators={"h": 2})
    assert total("2026-11-09") == 0
    refresh(SUMMED, ZONE)
    assert set(UsageAcceleratorSpan.objects.values_list("accelerator", flat=True)) == {"h"}


@pytest.mark.usefixtures("_priced")
def test_where_an_older_release_summed_pods_are_read_until_all_is_summed_anew() -> None:
    want = total("2026-11-09")
    for model in (*BY_SPAN, *BY_DAY, *BY_HOUR):
        model.objects.all().delete()
    RollupState.objects.update(accelerated_from=None)
    assert total("2026-11-09") == want
    assert refresh(SUMMED, ZONE) == 12
    assert RollupState.objects.get().accelerated_from == date(1970, 1, 1)
    PodLifetime.objects.all().delete()
    RollupDirt.objects.all().delete()
    assert total("2026-11-09") == want


def test_a_pod_without_accelerators_has_no_such_sums() -> None:
    store_pod("2026-11-09T00:00", "2026-11-12T00:00")
    refresh(SUMMED, ZONE)
    assert not any(model.objects.exists() for model in (*BY_SPAN, *BY_DAY, *BY_HOUR))
    assert json.dumps(PodLifetime.objects.get().accelerators) == "{}"
