"""Instance types with a price are found apart from the sums by user, and nothing differs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from django.db.models import F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipuhub.web.access import Scope
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rates import store_rate
from usage.models import (
    PodLifetime,
    Rate,
    RollupDirt,
    RollupState,
    UsageDay,
    UsageHour,
    UsageSpan,
)
from usage.reading import pricing_at
from usage.sums.measures import dimensions
from usage.sums.queries import Question, all_sums, sums_sql
from usage.sums.rollups import refresh
from usage.sums.sql import STEP
from usage.time.windows import Window, step_begins

if TYPE_CHECKING:
    from datetime import datetime

    from usage.sums.measures import Measures

pytestmark = pytest.mark.django_db
ZONE = ZoneInfo("UTC")
FIRST, SUMMED, END = at("2026-11-08"), at("2026-11-21T06:10"), at("2026-12-01")
SIX = at("2026-11-21T06:00")
PRICES = [
    *(("cpu", ""), ("memory", ""), ("gpu", ""), ("ipu", "")),
    *(("accelerator", "g"), ("instance", "big"), ("instance", "small")),
]
anywhere = st.integers(0, 14 * 86_400).map(lambda s: FIRST + timedelta(seconds=s))
ends = st.none() | anywhere | st.just(SIX) | st.just(at("2026-11-21T07:00"))
pods = st.tuples(
    anywhere,
    ends,
    st.sampled_from(["ann", "bob"]),
    st.sampled_from(["small", "big", "odd"]),
    st.dictionaries(st.sampled_from("gh"), st.integers(0, 4)),
)
terms = st.sampled_from([("2026-01-01", ""), ("2026-11-16", ""), ("2026-01-01", "2026-11-21")])
prices = st.dictionaries(st.sampled_from(PRICES), st.tuples(terms, st.integers(0, 7)))


def question(begin: datetime, now: datetime, scope: Scope, *by: str) -> Question:
    window = Window.of(begin, END, now)
    pricing = pricing_at(window.begin, window.until, ZONE)
    return Question(scope, window, ZONE, dimensions(by), pricing=pricing)


def sums(query: Question, step: str, width: int) -> dict[tuple[int, tuple[str, ...]], Measures]:
    """Return the sums of each step by the first `width` dimensions."""
    found: dict[tuple[int, tuple[str, ...]], Measures] = {}
    for row in all_sums(query, step_begins(query.window, step, ZONE), STEP):
        key = (row.step, row.key[:width])
        found[key] = found[key] + row.measures if key in found else row.measures
    return found


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(pods, min_size=1, max_size=8),
    after=st.lists(pods, max_size=2),
    prices=prices,
    begin=anywhere | st.just(FIRST),
    now=st.integers(0, 7200).map(lambda s: SUMMED + timedelta(seconds=s)),
    by=st.sampled_from([("user",), ("group", "user"), ("user", "namespace")]),
    scope=st.sampled_from([Scope(None), Scope(frozenset({"team-a"}))]),
    step=st.sampled_from(["hour", "day", "month"]),
)
def test_sums_by_user_are_those_of_the_lifetimes(
    before: Any,
    after: Any,
    prices: Any,
    begin: datetime,
    now: datetime,
    by: tuple[str, ...],
    scope: Scope,
    step: str,
) -> None:
    for model in (PodLifetime, RollupState, RollupDirt, Rate):
        model.objects.all().delete()
    for (resource, name), ((valid_from, until), price) in prices.items():
        store_rate(resource, str(price), valid_from, until, name)
    _store(before)
    refresh(SUMMED, ZONE)
    _store(after)
    until = max(now, begin + timedelta(seconds=1))
    rolled = question(begin, until, scope, *by)
    # No table of sums knows names of components: each lifetime is read.
    unrolled = question(begin, until, scope, *by, "component_name")
    want = sums(unrolled, step, len(by))
    for _ in range(2):
        assert sums(rolled, step, len(by)) == want
        refresh(until, ZONE)


def _store(lifetimes: Any) -> None:
    for began, ended, user, kind, accelerators in lifetimes:
        store_pod(
            "2026-01-01T00:00",
            scheduled_at=began,
            finished_at=ended and max(began, ended),
            namespace=f"team-{'ab'[began.minute % 2]}",
            group=f"g{began.second % 2}",
            user=user,
            instance_type=kind,
            component_name=f"c{began.second % 3}",
            gpus=sum(accelerators.values()),
            accelerators=accelerators,
            cpu=0.7,
            ipus=0.25,
        )


@pytest.fixture
def _priced(db: None) -> None:
    store_rate("instance", "3", name="big")
    store_rate("cpu", "1")
    for kind in ("big", "small"):
        store_pod("2026-11-09T00:00", None, user="ann", instance_type=kind, cpu=1)
    store_partition("2026-11-09T00:00", "2026-11-09T04:00", user="ann")
    refresh(SUMMED, ZONE)


def hours_of_cost(*by: str) -> dict[tuple[str, ...], int]:
    query = question(at("2026-11-09"), at("2026-11-21T06:20"), Scope(None), *by)
    pricing = query.pricing
    assert pricing is not None
    found = sums(query, "month", len(by))
    return {key: int(pricing.money(each.cost).amount) for (_, key), each in found.items()}


HOURS = 12 * 24 + 6 + 1 / 3


@pytest.mark.usefixtures("_priced")
def test_of_other_instance_types_only_the_sums_by_user_are_read() -> None:
    assert hours_of_cost("user") == {("ann",): 4 * HOURS // 1}
    for model in (UsageSpan, UsageDay, UsageHour):
        own = model.objects.filter(instance_type="small")
        own.update(millicore_seconds=F("millicore_seconds") * 2)
    assert hours_of_cost("user") == {("ann",): 4 * HOURS // 1}
    by_type = hours_of_cost("user", "instance_type")
    assert by_type[("ann", "small")] > 1.9 * HOURS
    for model in (UsageSpan, UsageDay, UsageHour):
        model.objects.filter(instance_type="big").update(seconds=F("seconds") * 2)
    assert hours_of_cost("user")[("ann",)] > 6.9 * HOURS


@pytest.mark.usefixtures("_priced")
def test_no_lifetime_is_read_twice_where_many_are() -> None:
    def readings(*, priced: bool) -> int:
        query = question(at("2026-11-09"), at("2026-11-21T06:20"), Scope(None), "user")
        begins = step_begins(query.window, "month", ZONE)
        if not priced:
            Rate.objects.filter(resource="instance").delete()
            query = question(at("2026-11-09"), at("2026-11-21T06:20"), Scope(None), "user")
        found = sums_sql(query, begins)
        assert found is not None
        assert found.is_dear
        return found.sql.count("usage_podlifetime")

    RollupState.objects.all().delete()
    assert readings(priced=True) == readings(priced=False)
