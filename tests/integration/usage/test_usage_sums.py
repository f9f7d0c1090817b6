"""Sums over any window equal a plain loop over the lifetimes, from day sums or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipuhub.web.access import Scope
from partitions.models import PartitionLifetime
from tests.builders.lifetimes import at, store_partition, store_pod
from usage.models import PartitionDay, PodLifetime, RollupDirt, UsageDay
from usage.reading import read_coverage
from usage.sums import series as pages
from usage.sums.compare import month_to_date
from usage.sums.measures import Measures, dimension, dimensions
from usage.sums.queries import (
    Place,
    Question,
    all_sums,
    chart,
    read_sums,
    series_begins,
)
from usage.sums.rollups import refresh
from usage.sums.series import read_series
from usage.sums.sql import STEP
from usage.time.windows import Window, clip, step_begins

UTC_ZONE, KOLKATA = ZoneInfo("UTC"), ZoneInfo("Asia/Kolkata")
ALL = Scope(None)
NOW = at("2026-11-21T12:00")
pytestmark = pytest.mark.django_db


def ask(begin: str, end: str, by: str | None = "group", now: datetime = NOW, **rest) -> Question:
    window = Window.of(at(begin), at(end), now)
    scope, zone = rest.pop("scope", ALL), rest.pop("zone", UTC_ZONE)
    equals = tuple((dimension(name), (value,)) for name, value in rest.items())
    return Question(scope, window, zone, (dimension(by),) if by else (), equals)


def series(question: Question, step: str) -> tuple[list[datetime], dict]:
    """The sums by step and value, all rows of them, and the same in pages."""
    begins = series_begins(question, step)
    rows = list(all_sums(question, begins, STEP))
    assert paged(question, begins, STEP) == rows
    return begins, {(row.step, "".join(row.key)): row.measures for row in rows}


def summary(question: Question, order: str = "micro_ipu_seconds") -> dict:
    begins = [question.window.begin]
    rows = list(all_sums(question, begins, order))
    assert paged(question, begins, order) == rows
    return {"".join(row.key): row.measures for row in rows}


def paged(question: Question, begins: list[datetime], order: str) -> list:
    found, after = [], None
    while True:
        if order == STEP:
            with mock.patch.object(pages, "MANY", 0):
                sums = read_series(question, begins, 20, after)
        else:
            sums = read_sums(question, begins, order, 3, after)
        found += sums.rows
        if len(found) >= sums.count:
            return found
        last = sums.rows[-1]
        rank = last.step if order == STEP else getattr(last.measures, order)
        after = Place(rank, last.key)


def test_sums_are_exact_up_to_the_largest_amounts():
    amounts = [1, 2**31 - 1, 2**31, 2**31 + 1, 2**62 + 12_345, 2**63 - 1]
    for n in amounts:
        store_pod(
            "2026-11-01T00:00:00",
            "2026-11-20T23:59:59",
            cpu_millicores=n,
            memory_bytes=n,
            gpus=n,
            micro_ipus=n,
        )
    want = sum(amounts) * (20 * 86_400 - 1)
    for _ in range(2):  # from the pods, then from sums by day
        question = ask("2026-11-01T00:00", "2026-11-21T00:00")
        total = read_sums(question, [question.window.begin], "pods", 1).total
        assert total.millicore_seconds == total.byte_seconds == want
        assert total.gpu_seconds == total.micro_ipu_seconds == want
        refresh(NOW, UTC_ZONE)


def oracle(question: Question, begins: list[datetime]) -> dict[tuple[int, str], Measures]:
    """The same by a loop: slow and plain."""
    found: dict[tuple[int, str], Measures] = {}
    ends = [*begins[1:], question.window.end]
    pods, holdings = list(PodLifetime.objects.all()), list(PartitionLifetime.objects.all())
    for n, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        until = min(end, question.window.until)
        if until <= begin:
            continue
        for row in pods:
            piece = clip(row.scheduled_at, row.finished_at, begin, until)
            if piece is None:
                continue
            s = piece.seconds
            more = Measures(
                1,
                s,
                s * row.estimated,
                s * (not row.user_verified),
                s * row.cpu_millicores,
                s * row.memory_bytes,
                s * row.gpus,
                s * row.micro_ipus,
            )
            key = key_of(question, row)
            found[n, key] = found.get((n, key), Measures()) + more
        for held_one in holdings:
            piece = clip(held_one.reserved_at, held_one.released_at, begin, until)
            if piece is not None:
                more = Measures(partitions=1, partition_ipu_seconds=piece.seconds * held_one.size)
                key = key_of(question, held_one)
                found[n, key] = found.get((n, key), Measures()) + more
    return found


def key_of(question: Question, row: PodLifetime | PartitionLifetime) -> str:
    own = {"job": row.job_uid}
    if isinstance(row, PartitionLifetime):
        own |= {"component": "partition", "instance_type": f"ipu-{row.size}"}
    return "".join(
        own[each.name] if each.name in own else getattr(row, each.name) for each in question.by
    )


def test_a_lifetime_counts_only_inside_the_range() -> None:
    store_pod("2026-10-31T23:00", "2026-11-01T01:00", ipus=4, cpu=2, memory_gib=8)
    got = summary(ask("2026-11-01", "2026-12-01"))["team-a"]
    assert (got.pods, got.seconds) == (1, 3600)
    assert got.micro_ipu_seconds == 4 * 10**6 * 3600
    assert got.millicore_seconds == 2000 * 3600
    assert got.byte_seconds == 8 * 2**30 * 3600


def test_a_pod_that_ends_as_the_range_begins_or_begins_as_it_ends_is_not_in_it() -> None:
    store_pod("2026-10-31T23:00", "2026-11-01T00:00")
    store_pod("2026-12-01T00:00", "2026-12-01T01:00")
    assert summary(ask("2026-11-01", "2026-12-01", now=at("2027-01-01"))) == {}


def test_a_running_pod_counts_up_to_now_and_one_never_scheduled_not_at_all() -> None:
    store_pod("2026-11-21T11:00", None)
    store_pod(None)
    assert summary(ask("2026-11-01", "2026-12-01"))["team-a"].seconds == 3600


def test_pods_and_partitions_stand_apart() -> None:
    store_pod("2026-11-02T00:00", "2026-11-02T01:00", ipus=4)
    store_partition("2026-11-02T00:00", "2026-11-02T02:00", size=4)
    got = summary(ask("2026-11-01", "2026-12-01"))["team-a"]
    assert (got.pods, got.partitions) == (1, 1)
    assert got.micro_ipu_seconds == 4 * 10**6 * 3600
    assert got.partition_ipu_seconds == 4 * 7200


@pytest.mark.parametrize(
    ("by", "want"),
    [
        ("namespace", {"team-a"}),
        ("group", {"vision"}),
        ("user", {"ann"}),
        ("component", {"ipujob", "partition"}),  # as in the files of the month
        ("component_name", {"train"}),
        ("instance_type", {"ipu-4"}),
        ("job", {"uid-1"}),
    ],
)
def test_a_job_s_pods_and_partition_meet_under_one_value(by: str, want: set[str]) -> None:
    store_pod(
        "2026-11-02T00:00",
        "2026-11-02T01:00",
        group="vision",
        user="ann",
        component_name="train",
        job_uid="uid-1",
    )
    store_partition(
        "2026-11-02T00:00",
        "2026-11-02T01:00",
        group="vision",
        user="ann",
        job_name="train",
        job_uid="uid-1",
    )
    assert set(summary(ask("2026-11-01", "2026-12-01", by))) == want


def test_only_what_the_scope_covers_is_added_up() -> None:
    store_pod("2026-11-02T00:00", "2026-11-02T01:00", namespace="team-a", group="g")
    store_pod("2026-11-02T00:00", "2026-11-02T01:00", namespace="team-b", group="g")
    store_partition("2026-11-02T00:00", "2026-11-02T01:00", namespace="team-b", group="g")
    refresh(NOW, UTC_ZONE)
    seen = summary(ask("2026-11-01", "2026-12-01", scope=Scope(frozenset({"team-a"}))))
    assert (seen["g"].pods, seen["g"].partitions) == (1, 0)
    assert summary(ask("2026-11-01", "2026-12-01", scope=Scope(frozenset()))) == {}


def test_a_name_is_a_value_and_never_sql() -> None:
    name = "'; DROP TABLE usage_podlifetime; -- %s %(until)s"
    store_pod("2026-11-02T00:00", "2026-11-02T01:00", group=name)
    assert set(summary(ask("2026-11-01", "2026-12-01", group=name))) == {name}
    assert summary(ask("2026-11-01", "2026-12-01", group="' OR true --")) == {}


def test_the_chart_keeps_the_largest_apart_and_adds_up_the_rest() -> None:
    for n in range(1, 6):
        store_pod("2026-11-02T00:00", "2026-11-02T01:00", group=f"g{n}", ipus=n)
    got = chart(ask("2026-11-01", "2026-12-01"), "day", "micro_ipu_seconds", 2).sums
    hour = 10**6 * 3600
    assert got == {(1, "g5"): 5 * hour, (1, "g4"): 4 * hour, (1, None): 6 * hour}


def test_month_to_date_begins_with_the_month_of_the_zone() -> None:
    store_pod("2026-10-31T18:00", "2026-10-31T19:30")
    assert month_to_date(ALL, NOW, KOLKATA).seconds == 3600  # November begins at 18:30 UTC there
    assert month_to_date(ALL, NOW, UTC_ZONE).seconds == 0


BY = [
    (),
    ("group",),
    ("namespace",),
    ("user",),
    ("component", "instance_type"),
    ("user", "component"),
    ("job",),
    ("job", "group", "namespace"),
]
times = st.integers(0, 12 * 86_400).map(lambda s: at("2026-11-10") + timedelta(seconds=s))
lifetimes = st.lists(
    st.tuples(
        times,
        st.none() | st.integers(-5, 4 * 86_400),
        st.sampled_from(["a", "b", ""]),
        st.integers(0, 64 * 10**6),
        st.integers(0, 2**44),
        st.booleans(),
        st.integers(0, 999_999),
    ),
    max_size=8,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=lifetimes,
    later=lifetimes,
    again=st.none() | times,
    begin=times,
    length=st.integers(1, 10 * 86_400),
    step=st.sampled_from(["hour", "day", "week", "month"]),
    zone=st.sampled_from([UTC_ZONE, KOLKATA]),
    by=st.sampled_from(BY),
    now=times,
)
def test_sums_equal_a_plain_loop_whatever_is_summed_by_day(
    rows, later, again, begin, length, step, zone, by, now
) -> None:
    for model in (PodLifetime, PartitionLifetime):
        model.objects.all().delete()
    _store(rows)
    refresh(now, zone)
    _store(later)  # changes after the refresh: their days are spoilt until the next refresh
    if again is not None:
        refresh(again, zone)  # perhaps with a clock that was put back
    for changed in PodLifetime.objects.filter(finished_at=None)[:2]:
        changed.finished_at = changed.scheduled_at + timedelta(hours=30)
        changed.save()
    PodLifetime.objects.filter(group="b").update(gpus=3)
    PartitionLifetime.objects.filter(group="a").update(size=2)
    PartitionLifetime.objects.filter(released_at=None, group="").delete()
    question = Question(
        ALL, Window.of(begin, begin + timedelta(seconds=length), now), zone, dimensions(by)
    )
    begins = step_begins(question.window, step, zone)
    assert series(question, step)[1] == oracle(question, begins)
    want = {key: found for (_, key), found in oracle(question, [question.window.begin]).items()}
    assert summary(question) == want
    refresh(now, zone)
    assert summary(question) == want
    assert read_coverage().dirt == ()


def _store(rows) -> None:
    for began, length, group, ipus, memory, flag, micro in rows:
        start = began.replace(microsecond=micro)
        end = None if length is None else start + timedelta(seconds=length)
        uid = str(PodLifetime.objects.count())
        common = {"group": group, "namespace": f"n{group}", "job_uid": f"j{group}"}
        common |= {"user": f"u{memory % 2}"}
        store_pod(
            "2026-01-01T00:00",
            uid=f"pod-{uid}",
            **common,
            scheduled_at=start,
            finished_at=end,
            micro_ipus=ipus,
            memory_bytes=memory,
            estimated=flag,
            user_verified=not flag,
            component=f"c{ipus % 2}",
            instance_type=f"i{micro % 2}",
        )
        if end is None or end >= start:
            store_partition(
                "2026-01-01T00:00", key=f"k-{uid}", **common, reserved_at=start, released_at=end
            )


def test_a_refresh_leaves_nothing_to_do_and_today_alone() -> None:
    store_pod("2026-11-18T12:00", "2026-11-21T01:00")
    assert refresh(NOW, UTC_ZONE) == 3
    assert set(UsageDay.objects.values_list("day", flat=True)) == {
        datetime(2026, 11, day, tzinfo=UTC).date() for day in (18, 19, 20)
    }
    assert refresh(NOW, UTC_ZONE) == 0
    assert not RollupDirt.objects.exists()


def test_a_change_that_changes_no_sum_spoils_no_day() -> None:
    row = store_pod("2026-11-18T12:00", "2026-11-19T01:00")
    refresh(NOW, UTC_ZONE)
    PodLifetime.objects.filter(pk=row.pk).update(phase="Succeeded", node="n2")
    assert not RollupDirt.objects.exists()


def test_partitions_are_summed_by_day_and_a_change_of_one_spoils_its_days() -> None:
    row = store_partition("2026-11-18T12:00", "2026-11-19T12:00", size=4)
    refresh(NOW, UTC_ZONE)
    assert PartitionDay.objects.count() == 2
    PartitionLifetime.objects.filter(pk=row.pk).update(size=8)
    (got,) = summary(ask("2026-11-01", "2026-12-01")).values()
    assert got.partition_ipu_seconds == 8 * 86_400
    refresh(NOW, UTC_ZONE)
    assert {day.partition_ipu_seconds for day in PartitionDay.objects.all()} == {8 * 43_200}


def test_deleted_rows_leave_the_day_sums() -> None:
    row = store_pod("2026-11-18T12:00", "2026-11-19T01:00")
    refresh(NOW, UTC_ZONE)
    row.delete()
    assert summary(ask("2026-11-01", "2026-12-01")) == {}
    refresh(NOW, UTC_ZONE)
    assert not UsageDay.objects.exists()


def test_another_zone_sums_all_days_anew() -> None:
    store_pod("2026-11-18T12:00", "2026-11-19T01:00")
    refresh(NOW, UTC_ZONE)
    refresh(NOW, KOLKATA)
    assert read_coverage().zone == "Asia/Kolkata"
    assert [d.seconds for d in UsageDay.objects.order_by("day")] == [6.5 * 3600, 6.5 * 3600]


def test_an_absurd_request_is_added_up_and_not_an_error() -> None:
    store_pod("2026-11-01T00:00", "2026-11-20T00:00", memory_bytes=2**63 - 1, micro_ipus=2**63 - 1)
    refresh(NOW, UTC_ZONE)
    got = summary(ask("2026-11-01", "2026-12-01"))["team-a"]
    assert got.byte_seconds == got.micro_ipu_seconds == (2**63 - 1) * 19 * 86_400


def test_a_large_batch_after_a_small_one_is_not_joined_by_nested_loops() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT proconfig FROM pg_proc WHERE proname = 'usage_mark_dirt'")
        assert cursor.fetchone()[0] == ["enable_nestloop=off"]
