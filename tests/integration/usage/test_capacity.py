"""Utilization of IPUs from recorded rows: exact, complete, and equal to a plain loop."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipuhub.models import WatchCheckpoint, WatchGap
from partitions.models import CapacityChange, PartitionLifetime
from tests.builders.lifetimes import at, store_partition, store_pod
from usage.models import PodLifetime
from usage.utilization.amounts import Utilization
from usage.utilization.selectors import partition_runs, read_capacity

pytestmark = pytest.mark.django_db
NOON = at("2026-11-10T12:00")
HOUR = 3600


def capacity_change(when: str, total: int = 16, free: int = 16, **fields) -> CapacityChange:
    return CapacityChange.objects.create(
        **({"controller": "v1", "at": at(when), "total": total, "free": free} | fields)
    )


def asked_until(when: str) -> None:
    WatchCheckpoint.objects.create(name="capacity", position_at=at(when))


def one(begin: str, until: str, name: str = "v1") -> Utilization:
    return read_capacity([at(begin)], at(until)).steps[name][0]


def add_up(each: Utilization) -> bool:
    return each.capacity == each.reserved + each.idle + each.down + each.unknown


def test_free_held_cordoned_and_faulty_ipus_are_told_apart() -> None:
    capacity_change("2026-11-01T00:00", 16, 6, cordoned=1, faulty=1)
    store_partition("2026-11-01T00:00", None, controller="v1", size=8)
    asked_until("2026-11-10T12:00")
    got = one("2026-11-02T00:00", "2026-11-02T01:00")
    assert got == Utilization(
        capacity=16 * HOUR, reserved=8 * HOUR, held_idle=8 * HOUR, idle=6 * HOUR, down=2 * HOUR
    )


def test_a_partition_made_by_hand_is_reserved_by_others() -> None:
    capacity_change("2026-11-01T00:00", 16, 4)
    store_partition("2026-11-01T00:00", None, controller="v1", size=8)
    asked_until("2026-11-10T12:00")
    got = one("2026-11-02T00:00", "2026-11-02T01:00")
    assert (got.reserved, got.by_others, got.by_jobs) == (12 * HOUR, 4 * HOUR, 8 * HOUR)


def test_a_job_s_release_is_idle_at_once_and_not_somebody_else_s_until_the_next_poll() -> None:
    capacity_change("2026-11-01T00:00", 16, 8)
    store_partition("2026-11-01T00:00", "2026-11-02T00:30", controller="v1", size=8)
    capacity_change("2026-11-02T00:30:09", 16, 16)
    asked_until("2026-11-10T12:00")
    got = one("2026-11-02T00:00", "2026-11-02T01:00")
    assert (got.by_others, got.reserved, got.idle) == (0, 8 * 1800, 8 * 1800 + 8 * HOUR)


def test_a_partition_in_error_is_the_job_s_and_not_down_too() -> None:
    store_partition("2026-11-01T00:00", None, controller="v1", size=4)
    capacity_change("2026-11-01T01:00", 16, 12, faulty=4)
    asked_until("2026-11-10T12:00")
    got = one("2026-11-02T00:00", "2026-11-02T01:00")
    assert (got.reserved, got.down, got.idle) == (4 * HOUR, 0, 12 * HOUR)


def test_held_without_a_pod_of_the_job_is_held_idle() -> None:
    capacity_change("2026-11-01T00:00", 16, 12)
    asked_until("2026-11-10T12:00")
    common = {"job_uid": "j", "partition": "p-1"}
    store_partition("2026-11-02T00:00", "2026-11-02T01:00", controller="v1", **common)
    store_pod("2026-11-02T00:10", "2026-11-02T00:30", ipus=2, **common)
    store_pod("2026-11-02T00:20", "2026-11-02T00:40", ipus=2, **common)
    store_pod("2026-11-02T00:00", "2026-11-02T01:00", namespace="thief", **common)
    store_pod(
        "2026-11-02T00:00", "2026-11-02T01:00", job_uid="j", partition="p-of-another-instance"
    )
    got = one("2026-11-02T00:00", "2026-11-02T01:00")
    assert (got.busy, got.held_idle) == (4 * 1800, 4 * 1800)
    assert got.pod_micro == 2 * 2 * 1200 * 10**6
    only = PartitionLifetime.objects.get()
    runs = partition_runs([only.pk], at("2026-11-02T00:00"), at("2026-11-02T00:25"))
    assert runs == {only.pk: (4 * 900, 2 * 10**6 * (900 + 300))}


def test_what_nobody_asked_and_what_did_not_answer_is_unknown() -> None:
    capacity_change("2026-11-01T00:00", 16, 16)
    capacity_change("2026-11-02T00:30", 16, 16, reachable=False)
    capacity_change("2026-11-02T00:40", 16, 16)
    asked_until("2026-11-02T02:50")
    WatchGap.objects.create(
        watch="capacity", began_at=at("2026-11-02T01:00"), ended_at=at("2026-11-02T01:15"), cause=""
    )
    begins = [at(f"2026-11-02T0{n}:00") for n in range(3)]
    record = read_capacity(begins, at("2026-11-02T03:00"))
    assert [each.unknown for each in record.steps["v1"]] == [16 * 600, 16 * 900, 16 * 600]
    assert [each.idle for each in record.steps["v1"]] == [16 * 3000, 16 * 2700, 16 * 3000]
    assert record.known_until == at("2026-11-02T02:50")
    assert record.silent_seconds == 900 + 600


def test_what_jobs_held_while_nobody_asked_is_known_all_the_same() -> None:
    capacity_change("2026-11-01T00:00", 16, 16)
    asked_until("2026-11-02T00:00")
    store_partition("2026-11-02T00:00", "2026-11-02T01:00", controller="v1", size=4)
    got = one("2026-11-02T00:00", "2026-11-02T01:00")
    assert (got.capacity, got.reserved, got.unknown) == (16 * HOUR, 4 * HOUR, 12 * HOUR)


def test_a_controller_off_the_list_has_only_what_is_still_held_on_it() -> None:
    capacity_change("2026-11-01T00:00", 16, 12)
    store_partition("2026-11-01T00:00", "2026-11-02T00:30", controller="v1")
    capacity_change("2026-11-02T00:00", 0, 0, reachable=False)
    asked_until("2026-11-10T12:00")
    got = one("2026-11-02T00:00", "2026-11-02T01:00")
    assert got == Utilization(capacity=4 * 1800, reserved=4 * 1800, held_idle=4 * 1800)


def test_before_its_first_row_a_controller_has_no_ipus() -> None:
    capacity_change("2026-11-02T00:30")
    asked_until("2026-11-10T12:00")
    assert one("2026-11-02T00:00", "2026-11-02T01:00").capacity == 16 * 1800
    assert read_capacity([at("2026-10-02T00:00")], at("2026-10-03T00:00")).steps == {}


def test_a_controller_without_any_ipus_in_the_range_is_not_listed() -> None:
    capacity_change("2026-11-01T00:00", 0, 0, controller="gone", reachable=False)
    capacity_change("2026-11-01T00:00")
    asked_until("2026-11-10T12:00")
    assert [*read_capacity([at("2026-11-02T00:00")], at("2026-11-03T00:00")).steps] == ["v1"]


def test_silences_that_overlap_are_counted_once() -> None:
    capacity_change("2026-11-01T00:00")
    asked_until("2026-11-10T12:00")
    for begin, end in (("01:00", "02:00"), ("01:30", "03:00"), ("03:00", "03:10")):
        WatchGap.objects.create(
            watch="capacity",
            began_at=at(f"2026-11-02T{begin}"),
            ended_at=at(f"2026-11-02T{end}"),
            cause="away",
        )
    found = read_capacity([at("2026-11-02T00:00")], at("2026-11-03T00:00"))
    assert found.silent_seconds == 2 * HOUR + 600
    assert found.steps["v1"][0].unknown == 16 * found.silent_seconds


seconds = st.integers(0, 40_000)
micros = st.integers(0, 999_999)
partitions = st.lists(
    st.tuples(seconds, micros, st.none() | st.integers(0, 20_000), st.sampled_from([1, 2, 4])),
    max_size=5,
)
pods = st.lists(
    st.tuples(
        seconds,
        micros,
        st.none() | st.integers(-5, 20_000),
        st.integers(0, 4),
        st.sampled_from(["p0", "p1", ""]),
    ),
    max_size=6,
)
changes = st.lists(
    st.tuples(seconds, st.integers(0, 16), st.integers(0, 8), st.integers(0, 8), st.booleans()),
    max_size=5,
    unique_by=lambda row: row[0],
)


@settings(max_examples=35, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=partitions,
    runs=pods,
    told_rows=changes,
    gap=st.none() | st.tuples(seconds, st.integers(1, 9000)),
    checkpoint=st.none() | seconds,
    begin=seconds,
    length=st.integers(1, 20_000),
    cut=st.integers(1, 20_000),
)
def test_every_second_of_every_ipu_is_counted_once(
    rows, runs, told_rows, gap, checkpoint, begin, length, cut
) -> None:
    for model in (PodLifetime, PartitionLifetime, CapacityChange, WatchGap, WatchCheckpoint):
        model.objects.all().delete()
    _store(rows, runs, told_rows, gap, checkpoint)
    first, until = NOON + timedelta(seconds=begin), NOON + timedelta(seconds=begin + length)
    whole = read_capacity([first], until)
    begins = [first, *([first + timedelta(seconds=cut)] if cut < length else [])]
    pieces = read_capacity(begins, until)
    for name, (all_of_it,) in whole.steps.items():
        assert add_up(all_of_it)
        assert min(all_of_it.held_idle, all_of_it.by_others, all_of_it.busy, all_of_it.idle) >= 0
        assert sum(pieces.steps[name], Utilization()) == all_of_it
    for n, start in enumerate(begins):
        end = begins[n + 1] if n + 1 < len(begins) else until
        got = pieces.steps.get("v1", [Utilization()] * 2)[n]
        assert (got.by_jobs, got.busy, got.pod_micro) == _by_seconds(start, end)


def _store(rows, runs, told_rows, gap, checkpoint) -> None:
    for n, (second, micro, length, size) in enumerate(rows):
        start = NOON + timedelta(seconds=second, microseconds=micro)
        end = None if length is None else start + timedelta(seconds=length)
        fields = {"reserved_at": start, "released_at": end, "size": size, "controller": "v1"}
        store_partition("2026-01-01T00:00", partition=f"p{n % 2}", job_uid="j", **fields)
    for second, micro, length, ipus, partition in runs:
        start = NOON + timedelta(seconds=second, microseconds=micro)
        end = None if length is None else start + timedelta(seconds=length)
        fields = {"scheduled_at": start, "finished_at": end, "ipus": ipus}
        store_pod("2026-01-01T00:00", job_uid="j", partition=partition, **fields)
    for second, free, cordoned, faulty, reachable in told_rows:
        CapacityChange.objects.create(
            controller="v1",
            at=NOON + timedelta(seconds=second),
            total=32,
            free=free,
            cordoned=cordoned,
            faulty=faulty,
            reachable=reachable,
        )
    if gap:
        start = NOON + timedelta(seconds=gap[0])
        end = start + timedelta(seconds=gap[1])
        WatchGap.objects.create(watch="capacity", began_at=start, ended_at=end, cause="")
    if checkpoint is not None:
        asked_at = NOON + timedelta(seconds=checkpoint)
        WatchCheckpoint.objects.create(name="capacity", position_at=asked_at)


def _by_seconds(start, until) -> tuple[int, int, int]:
    """Count second by second what jobs held, with a pod on it, and what pods had."""
    held_now = busy = micro = 0
    first, last = int(start.timestamp()), int(until.timestamp())
    rows = [
        (set(_seconds(p.reserved_at, p.released_at, first, last)), p)
        for p in PartitionLifetime.objects.all()
    ]
    runs = [
        (set(_seconds(p.scheduled_at, p.finished_at, first, last)), p)
        for p in PodLifetime.objects.all()
    ]
    for span, partition in rows:
        mine = [(s, p) for s, p in runs if p.partition in {partition.partition, ""}]
        held_now += partition.size * len(span)
        busy += partition.size * len(span & set().union(*(s for s, _ in mine)))
        micro += sum(
            p.micro_ipus * len(span & s) for s, p in mine if p.partition == partition.partition
        )
    return held_now, busy, micro


def _seconds(began, ended, first: int, last: int) -> range:
    end = last if ended is None else int(ended.timestamp())
    return range(max(int(began.timestamp()), first), min(end, last))
