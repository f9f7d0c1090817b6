"""Page, API and month report show the same cost, to the smallest unit, from whichever sums they
read.

Random lifetimes and prices, before and after the day sums are made.
"""

from __future__ import annotations

import json
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partitions.models import PartitionLifetime
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rates import store_rate
from tests.integration.usage.exactcost import exact_cost, rounded
from tests.integration.usage.reading import UTC_ZONE, make
from usage.models import MonthReport, PodLifetime, Rate, RollupDirt, RollupState
from usage.rates.linecosts import PARTITIONS, PODS, read_line_costs
from usage.sums.measures import COST_UNIT
from usage.sums.rollups import refresh

if TYPE_CHECKING:
    from datetime import datetime


pytestmark = pytest.mark.django_db
FIRST, END, NOW = at("2026-10-01T00:00"), at("2026-11-01T00:00"), at("2026-11-03T05:00")
KEY = "namespace,group,user,component,instance_type"
days = st.integers(-40, 40)
pods = st.tuples(
    st.integers(-3 * 86_400, 32 * 86_400),
    st.integers(0, 6 * 86_400),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["ann", "bob"]),
    st.sampled_from(["small", "big", "odd"]),
    st.integers(0, 4),
)
holdings = st.tuples(
    st.integers(-3 * 86_400, 32 * 86_400), st.integers(0, 6 * 86_400), st.sampled_from([1, 4])
)
prices = st.tuples(
    st.sampled_from(
        [
            *(("cpu", ""), ("memory", ""), ("gpu", ""), ("ipu", ""), ("partition-ipu", "")),
            *(("accelerator", "g"), ("instance", "big"), ("instance", "small")),
        ]
    ),
    days,
    st.none() | st.integers(1, 30),
    st.decimals("0.000001", "99", places=6),
)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(pods, min_size=1, max_size=6),
    st.lists(holdings, max_size=2),
    st.lists(prices, max_size=6),
)
def test_cost_agrees_wherever_it_comes_from(
    pods: list[Any], holdings: list[Any], prices: list[Any]
) -> None:
    for model in (PodLifetime, PartitionLifetime, Rate, MonthReport, RollupState, RollupDirt):
        model.objects.all().delete()
    rates = _store(pods, holdings, prices)
    found = [*PodLifetime.objects.all(), *PartitionLifetime.objects.all()]
    exact = [(each, exact_cost(each, rates, FIRST, 31)) for each in found]
    report = make("2026-10", f"{NOW:%FT%T}")
    for _ in range(2):
        for by in ("group", "user", "instance_type", KEY):
            want = _by(exact, by.split(","), rates)
            assert _of_the_api(by) == want
        assert _of_the_page(KEY) == want
        assert _of_the_api("") == _by(exact, [], rates)
        assert _total_of_the_api() == (_by(exact, [], rates) or {(): _nothing(rates)})[()]
        assert _of_the_lines() == _want_of_lines(exact, rates)
        refresh(NOW, UTC_ZONE)
    lines = {
        (r.namespace, r.group, r.user, r.component, r.instance_type): r.cost
        for r in report.rows.all()
    }
    assert lines == _of_the_api(KEY)
    costs = [cost for cost in lines.values() if cost is not None]
    assert report.cost == (sum(costs) if costs else None if lines else _nothing(rates))
    _assert_lifetimes_add_up_to(report, exact)


def _nothing(rates: list[Rate]) -> Decimal | None:
    """Return the cost of no usage: 0 if there are prices in October."""
    return Decimal(0) if any(_holds(each) for each in rates) else None


def _holds(one: Rate) -> bool:
    ends = one.valid_until is None or one.valid_until > date(2026, 10, 1)
    return ends and one.valid_from <= date(2026, 10, 31)


def _is_priced(each: Any, rates: list[Rate]) -> bool:
    """Return whether any price holds at any time of its part of October."""
    began, ended = _times(each)
    start, stop = max(began, FIRST), min(ended, END)
    for one in rates:
        first = at(f"{one.valid_from}T00:00")
        end = at(f"{one.valid_until}T00:00") if one.valid_until else END
        if start < end and (start >= first or stop > first):
            return True
    return False


def _store(pods: list[Any], holdings: list[Any], prices: list[Any]) -> list[Rate]:
    rates = []
    for (resource, name), begin, length, price in prices:
        begins = date(2026, 10, 1) + timedelta(days=begin)
        ends = "" if length is None else f"{begins + timedelta(days=length)}"
        try:
            rates.append(store_rate(resource, str(price), f"{begins}", ends, name))
        except ValidationError:
            continue  # another rate holds then
    for begin, length, group, user, kind, gpus in pods:
        start = FIRST + timedelta(seconds=begin)
        store_pod(
            f"{start:%FT%T}",
            f"{start + timedelta(seconds=length):%FT%T}",
            group=group,
            user=user,
            instance_type=kind,
            gpus=gpus,
            accelerators={"g": gpus // 2, "h": gpus - gpus // 2},
            cpu=0.7,
            memory_gib=1 / 3,
            ipus=0.25,
        )
    for begin, length, size in holdings:
        start = FIRST + timedelta(seconds=begin)
        end = f"{start + timedelta(seconds=length):%FT%T}"
        store_partition(f"{start:%FT%T}", end, size=size, group="a", user="ann")
    return rates


def _by(exact: list[Any], names: list[str], rates: list[Rate]) -> dict[tuple[str, ...], Any]:
    """Sum the exact money under each key that has anything in October, and round once; None where
    nothing had a price."""
    found: dict[tuple[str, ...], Fraction] = {}
    priced = set()
    for each, money in exact:
        if not _held_in_october(each):
            continue
        key = _key_of(each, names)
        found[key] = found.get(key, Fraction(0)) + money
        priced |= {key} if _is_priced(each, rates) else set()
    return {key: rounded(money, 2) if key in priced else None for key, money in found.items()}


def _times(each: Any) -> tuple[datetime, datetime]:
    if isinstance(each, PartitionLifetime):
        return each.reserved_at, each.released_at or END
    return each.scheduled_at, each.finished_at


def _held_in_october(each: Any) -> bool:
    began, ended = _times(each)
    return bool(began < END and (began >= FIRST or ended > FIRST))


def _of_the_lines() -> list[tuple[Decimal, int] | None]:
    """Return the costs of October's pods and partitions by the API, in order."""
    rows = [
        row
        for kind in ("lifetimes", "partitions")
        for row in _ask(f"/api/v1/usage/{kind}?from=2026-10-01&to=2026-10-31")["results"]
    ]
    found = [row["cost"] and (Decimal(row["cost"]), row["cost_micros"]) for row in rows]
    return sorted(found, key=lambda cost: (cost is not None, cost))


def _want_of_lines(exact: list[Any], rates: list[Rate]) -> list[tuple[Decimal, int] | None]:
    found = [
        (rounded(money, 5), int(rounded(money, 6) * 10**6)) if _is_priced(each, rates) else None
        for each, money in exact
        if _held_in_october(each)
    ]
    return sorted(found, key=lambda cost: (cost is not None, cost))


def _assert_lifetimes_add_up_to(report: MonthReport, exact: list[Any]) -> None:
    """In exact units to every line of the report, which is rounded once; so to its total within
    half a unit for each line."""
    sums: dict[tuple[str, ...], int] = {}
    for lines, model in ((PODS, PodLifetime), (PARTITIONS, PartitionLifetime)):
        rows = {each.pk: each for each, _ in exact if isinstance(each, model)}
        for pk, cost in read_line_costs(lines, rows.values(), FIRST, END, UTC_ZONE).items():
            key = _key_of(rows[pk], KEY.split(","))
            sums[key] = sums.get(key, 0) + cost.exact
    assert sum(sums.values()) == sum(money for _, money in exact) * 3600 * COST_UNIT
    for row in report.rows.all():
        key = (row.namespace, row.group, row.user, row.component, row.instance_type)
        assert (row.cost or 0) == rounded(Fraction(sums.get(key, 0), 3600 * COST_UNIT), 2)
    difference = abs(Fraction(report.cost or 0) - Fraction(sum(sums.values()), 3600 * COST_UNIT))
    assert difference <= Fraction(report.rows.count(), 200)


def _key_of(each: Any, names: list[str]) -> tuple[str, ...]:
    is_partition = isinstance(each, PartitionLifetime)
    facts = {"component": "partition", "instance_type": f"ipu-{each.size}"} if is_partition else {}
    return tuple(facts.get(name) or getattr(each, name) for name in names)


def _ask(path: str) -> Any:
    user, _ = get_user_model().objects.get_or_create(username="root", is_staff=True)
    client = api_client(user) if path.startswith("/api") else browser(user)
    with mock.patch.object(timezone, "now", return_value=NOW):
        answer = client.get(path)
    assert answer.status_code == 200, answer.content
    return json.loads(b"".join(answer))


def _of_the_api(by: str) -> dict[tuple[str, ...], Any]:
    rows = _ask(f"/api/v1/usage/summary?month=2026-10&by={by}&measure=cost")["results"]
    costs = [None if row["cost"] is None else Decimal(row["cost"]) for row in rows]
    assert costs == sorted(costs, key=lambda cost: -(cost or 0))
    return {tuple(row["key"].values()): cost for row, cost in zip(rows, costs, strict=True)}


def _total_of_the_api() -> Decimal | None:
    cost = _ask("/api/v1/usage/summary?month=2026-10")["total"]["cost"]
    return cost and Decimal(cost)


def _of_the_page(by: str) -> dict[tuple[str, ...], Any]:
    rows = _ask(f"/usage/?month=2026-10&by={by}&format=json")
    return {
        tuple(row[name] for name in by.split(",")): row["cost"] and Decimal(row["cost"])
        for row in rows
    }
