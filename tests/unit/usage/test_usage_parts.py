"""A window is taken apart into day sums and stretches that overlap nowhere and miss nothing."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from usage.sums.parts import (
    MAX_STRETCHES,
    Coverage,
    Steps,
    days_to_sum,
    hours_to_sum,
    kept_to_sum,
    runs,
    split,
)
from usage.time.windows import Window, day_begin, step_begins

if TYPE_CHECKING:
    from usage.sums.parts import Parts

UTC_ZONE, BERLIN = ZoneInfo("UTC"), ZoneInfo("Europe/Berlin")
ZONES = [UTC_ZONE, BERLIN, ZoneInfo("Asia/Kolkata"), ZoneInfo("America/New_York")]
SUMMED = Coverage("UTC", date(2026, 11, 21))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def summed_days(parts: Parts) -> list[date]:
    return [each.day for each in parts.days]


def test_whole_days_are_taken_from_their_sums_and_the_edges_are_not() -> None:
    parts = split(Steps((at("2026-11-01T12:00"),)), at("2026-11-04T06:00"), UTC_ZONE, SUMMED)
    assert summed_days(parts) == [date(2026, 11, 2), date(2026, 11, 3)]
    assert [(s.bounds[0], s.bounds[-1]) for s in parts.stretches] == [
        (at("2026-11-01T12:00"), at("2026-11-02")),
        (at("2026-11-04"), at("2026-11-04T06:00")),
    ]


def test_days_that_make_a_third_of_a_month_are_taken_as_one() -> None:
    cover = Coverage("UTC", date(2027, 3, 5), accelerated_from=date(1970, 1, 1))
    begins = (at("2026-10-30"), at("2026-11-15"), at("2027-02-01"))
    parts = split(Steps(begins), at("2027-03-01"), UTC_ZONE, cover)
    assert [(each.day, each.bucket, each.opens) for each in parts.spans] == [
        (date(2026, 11, 1), 0, False),
        *((date(2026, 11, 21), 1, False), (date(2026, 12, 1), 1, False)),
        *((date(2026, 12, 11), 1, False), (date(2026, 12, 21), 1, False)),
        *((date(2027, 1, day), 1, False) for day in (1, 11, 21)),
        *((date(2027, 2, 1), 2, True), (date(2027, 2, 11), 2, False)),
        (date(2027, 2, 21), 2, False),
    ]
    want = [*((10, day) for day in (30, 31)), *((11, day) for day in range(11, 21))]
    assert [(each.month, each.day) for each in summed_days(parts)] == want
    assert not split(Steps(begins), at("2027-03-01"), UTC_ZONE, SUMMED).spans


def test_a_range_that_nobody_asks_for_is_left_out_and_cuts_what_is_before_it() -> None:
    """As of a month up to now beside the month before: its rest is in neither."""
    hours = (at("2026-11-21"), at("2026-11-21T10:00"))
    kept = Coverage("UTC", date(2026, 11, 21), (), hours, accelerated_from=date(1970, 1, 1))
    kept = replace(kept, kept_from=at("2026-10-01")).of_kept_hours
    rest = (at("2026-10-21T10:20"), at("2026-11-01"))
    steps = Steps((at("2026-10-01"), *rest))
    parts = split(replace(steps, unasked=rest), at("2026-11-21T10:20"), UTC_ZONE, kept)
    assert [(each.day, each.bucket) for each in parts.spans] == [
        *((date(2026, 10, 1), 0), (date(2026, 10, 11), 0)),
        *((date(2026, 11, 1), 2), (date(2026, 11, 11), 2)),
    ]
    assert not parts.days
    assert [(each.bounds, each.after) for each in parts.stretches] == [
        ((at(f"{day}T10:00"), at(f"{day}T10:20")), at(f"{day}T09:00"))
        for day in ("2026-10-21", "2026-11-21")
    ]
    whole = split(steps, at("2026-11-21T10:20"), UTC_ZONE, kept)
    assert len(whole.days) + len(whole.hours) > len(parts.hours)


def test_a_third_of_a_month_with_a_change_is_taken_by_day() -> None:
    dirt = ((at("2026-11-13T12:00"), at("2026-11-13T12:00")),)
    cover = Coverage("UTC", date(2026, 12, 1), dirt, accelerated_from=date(1970, 1, 1))
    parts = split(Steps((at("2026-11-01"),)), at("2026-12-01"), UTC_ZONE, cover)
    assert [each.day for each in parts.spans] == [date(2026, 11, 1), date(2026, 11, 21)]
    assert len(parts.days) == 9


def test_a_day_with_a_change_is_added_up_from_its_pods() -> None:
    cover = Coverage("UTC", date(2026, 11, 21), ((at("2026-11-02"), at("2026-11-03T23:00")),))
    parts = split(Steps((at("2026-11-01"),)), at("2026-11-05"), UTC_ZONE, cover)
    assert summed_days(parts) == [date(2026, 11, 1), date(2026, 11, 4)]


def test_a_change_without_an_end_spoils_all_later_days() -> None:
    cover = Coverage("UTC", date(2026, 11, 21), ((at("2026-11-03"), None),))
    parts = split(Steps((at("2026-11-01"),)), at("2026-11-05"), UTC_ZONE, cover)
    assert summed_days(parts) == [date(2026, 11, 1), date(2026, 11, 2)]


def test_a_utc_day_of_change_spoils_both_local_days_it_lies_in() -> None:
    cover = Coverage(
        "Asia/Kolkata", date(2026, 11, 21), ((at("2026-11-02"), at("2026-11-02T23:00")),)
    )
    zone = ZoneInfo("Asia/Kolkata")
    good = [day for day in range(1, 5) if cover.has(date(2026, 11, day), zone)]
    assert good == [1, 4]


def test_sums_of_another_zone_are_of_no_use() -> None:
    hours = (at("2026-11-21"), at("2026-11-21T10:00"))
    cover = Coverage("UTC", date(2026, 11, 21), hours=hours)
    parts = split(Steps((at("2026-11-01"),)), at("2026-11-21T10:00"), BERLIN, cover)
    assert not parts.days
    assert not parts.hours


def test_hours_are_never_taken_from_days() -> None:
    window = Window.of(at("2026-11-01"), at("2026-11-03"), at("2026-12-01"))
    parts = split(
        Steps(tuple(step_begins(window, "hour", UTC_ZONE))), window.until, UTC_ZONE, SUMMED
    )
    assert not parts.days
    assert sum(len(s.buckets) for s in parts.stretches) == 48


def test_days_to_sum_are_those_before_today_that_are_new_or_changed() -> None:
    cover = Coverage("UTC", date(2026, 11, 3), ((at("2026-11-01"), at("2026-11-01T05:00")),))
    days = days_to_sum(cover, date(2026, 11, 1), at("2026-11-05T01:00"), UTC_ZONE)
    assert days == [date(2026, 11, n) for n in (1, 3, 4)]
    assert runs(days) == [(days[0], days[0]), (days[1], days[2])]


def test_of_the_day_that_is_not_over_whole_clean_hours_are_taken() -> None:
    today = (at("2026-11-21"), at("2026-11-21T10:00"))
    dirt = ((at("2026-11-21T07:00"), at("2026-11-21T07:00")), (at("2026-11-21T09:00"), None))
    cover = Coverage("UTC", date(2026, 11, 21), dirt, today)
    steps = Steps((at("2026-11-20"), at("2026-11-21T00:30")))
    parts = split(steps, at("2026-11-21T10:20"), UTC_ZONE, cover)
    assert [each.begin.hour for each in parts.hours] == [1, 2, 3, 4, 5, 6, 8]
    assert [(s.bounds[0], s.bounds[-1]) for s in parts.stretches] == [
        (at("2026-11-21"), at("2026-11-21T01:00")),
        (at("2026-11-21T07:00"), at("2026-11-21T08:00")),
        (at("2026-11-21T09:00"), at("2026-11-21T10:20")),
    ]


def test_hours_to_sum_are_those_of_today_and_the_one_before_that_are_new_or_changed() -> None:
    dirt = ((at("2026-11-21T01:00"), at("2026-11-21T01:00")),)
    cover = Coverage("UTC", date(2026, 11, 21), dirt, (at("2026-11-21"), at("2026-11-21T03:00")))
    hours = hours_to_sum(cover, at("2026-11-21T05:59"), UTC_ZONE)
    assert [hour.hour for hour in hours] == [23, 1, 3, 4]
    begins_at_half = hours_to_sum(cover, at("2026-11-21T20:10"), ZoneInfo("Asia/Kolkata"))
    assert begins_at_half == [at("2026-11-21T18:00"), at("2026-11-21T19:00")]


START = at("2026-10-01")
dirt_pairs = st.tuples(st.integers(-80, 1100), st.none() | st.integers(0, 120)).map(
    lambda pair: (
        START + timedelta(hours=pair[0]),
        None if pair[1] is None else START + timedelta(hours=pair[0] + pair[1]),
    )
)


@given(
    zone=st.sampled_from(ZONES),
    same_zone=st.booleans(),
    dirt=st.lists(dirt_pairs, max_size=12),
    hours=st.integers(0, 24),
    kept_days=st.none() | st.integers(0, 30),
    frozen=st.none() | st.integers(1, 25),
    begin=st.integers(0, 20 * 86_400),
    length=st.integers(1, 30 * 86_400),
    step=st.sampled_from(["hour", "day", "week", "month"]),
)
def test_the_parts_cover_each_second_once_and_in_its_own_step(
    zone: ZoneInfo,
    same_zone: bool,
    dirt: list[tuple[datetime, datetime | None]],
    hours: int,
    kept_days: int | None,
    frozen: int | None,
    begin: int,
    length: int,
    step: str,
) -> None:
    today = date(2026, 10, 25)
    start = day_begin(today, zone)
    summed = (start, start + timedelta(hours=hours))
    cover = Coverage(zone.key if same_zone else "Asia/Tokyo", today, tuple(dirt), summed)
    if frozen is not None:
        cover = replace(cover, frozen_before=date(2026, 10, frozen), frozen_zone=zone.key)
    if kept_days is not None:
        cover = replace(cover, kept_from=start - timedelta(days=kept_days)).of_kept_hours
    first = at("2026-10-01") + timedelta(seconds=begin)
    window = Window.of(first, first + timedelta(seconds=length), at("2027-01-01"))
    begins = step_begins(window, step, zone)
    parts = split(Steps(tuple(begins)), window.until, zone, cover)
    found = [
        (day_begin(d.day, zone), day_begin(d.day + timedelta(days=1), zone), d.bucket, d.opens)
        for d in parts.days
    ]
    found += [(h.begin, h.end, h.bucket, h.opens) for h in parts.hours]
    for stretch in parts.stretches:
        ends = stretch.bounds[1:]
        found += list(zip(stretch.bounds, ends, stretch.buckets, stretch.opens, strict=False))
    found.sort()
    assert found[0][0] == window.begin
    assert found[-1][1] == window.until
    assert all(a[1] == b[0] for a, b in itertools.pairwise(found))
    limits = [*begins, window.end]
    for start, end, bucket, opens in found:
        assert limits[bucket] <= start < end <= limits[bucket + 1]
        assert opens == (start == limits[bucket])


def test_many_changes_make_few_stretches_that_still_cover_all() -> None:
    changed = tuple((at(f"2026-11-{n:02}"), at(f"2026-11-{n:02}T01:00")) for n in range(2, 31, 2))
    cover = Coverage("UTC", date(2026, 12, 1), changed)
    parts = split(Steps((at("2026-11-01"),)), at("2026-12-01"), UTC_ZONE, cover)
    assert len(parts.stretches) == MAX_STRETCHES
    covered = [(each.begin, each.end) for each in parts.days]
    covered += [(each.bounds[0], each.bounds[-1]) for each in parts.stretches]
    covered.sort()
    assert (covered[0][0], covered[-1][1]) == (at("2026-11-01"), at("2026-12-01"))
    assert all(one[1] == other[0] for one, other in itertools.pairwise(covered))


def test_of_many_gaps_those_close_together_become_one() -> None:
    old = [at(f"2026-11-02T{hour:02}:00") for hour in range(1, 20, 2)]
    dirt = (*((hour, hour) for hour in old), (at("2026-11-29"), None))
    cover = Coverage("UTC", date(2026, 12, 1), dirt, (at("2026-11-29T23:00"), at("2026-12-01")))
    kept = replace(cover, kept_from=at("1970-01-01")).of_kept_hours
    parts = split(Steps((at("2026-11-01"),)), at("2026-12-01"), UTC_ZONE, kept)
    assert len(parts.stretches) == MAX_STRETCHES
    read = [(each.bounds[0], each.bounds[-1]) for each in parts.stretches]
    assert (at("2026-11-29"), at("2026-12-01")) in read
    assert sum((b - a for a, b in read), timedelta()) < timedelta(days=3)


KEPT = Coverage(
    "UTC",
    date(2026, 11, 21),
    hours=(at("2026-11-20T23:00"), at("2026-11-21T10:00")),
    kept_from=at("2026-11-03"),
).of_kept_hours


def test_hours_are_kept_before_today_up_to_where_their_rows_were_deleted() -> None:
    dirt = ((at("2026-11-01"), at("2026-11-06T01:00")), (at("2026-11-20T09:00"), None))
    whole = replace(KEPT, dirt=dirt, frozen_before=date(2026, 11, 5), frozen_zone="UTC")
    want = [
        (at("2026-11-03"), at("2026-11-05")),  # of rows that are gone, whatever changed
        (at("2026-11-06T02:00"), at("2026-11-20T09:00")),
    ]
    assert whole.summed_hours(at("2026-11-01"), at("2026-12-01")) == want
    halves = replace(whole, frozen_zone="Asia/Kolkata", dirt=())
    want = [(at("2026-11-04T19:00"), at("2026-11-21T10:00"))]  # 18:00 lost some of its rows
    assert halves.summed_hours(at("2026-11-01"), at("2026-12-01")) == want


def test_an_older_release_kept_no_hours() -> None:
    assert not replace(KEPT, kept_from=None).of_kept_hours.has_hour(at("2026-11-21T05:00"))


def test_hours_to_keep_are_those_before_today_that_are_new_or_changed() -> None:
    dirt = ((at("2026-11-05T01:00"), at("2026-11-05T02:00")),)
    cover = replace(KEPT, dirt=dirt, kept_from=at("1970-01-01"))
    now, kolkata = at("2026-11-22T05:00"), ZoneInfo("Asia/Kolkata")
    new = (at("2026-11-21T10:00"), at("2026-11-21T23:00"))
    old = (at("2026-11-05T01:00"), at("2026-11-05T03:00"))
    assert kept_to_sum(cover, at("2026-11-02"), now, UTC_ZONE) == [old, new]
    half = (at("2026-11-21T10:00"), at("2026-11-21T18:00"))  # today began at 18:30
    assert kept_to_sum(cover, at("2026-11-02"), now, kolkata) == [old, half]
    none = replace(cover, kept_from=None)
    whole = [(at("2026-11-02T07:00"), at("2026-11-21T23:00"))]
    assert kept_to_sum(none, at("2026-11-02T07:30"), now, UTC_ZONE) == whole
    purged = replace(none, frozen_before=date(2026, 11, 10), frozen_zone="Asia/Kolkata")
    rest = [(at("2026-11-09T19:00"), at("2026-11-21T23:00"))]
    assert kept_to_sum(purged, at("2026-11-02T07:30"), now, UTC_ZONE) == rest


def test_a_day_that_begins_in_purged_time_is_none_of_another_zone() -> None:
    day = date(2026, 11, 4)
    east, west = ZoneInfo("Pacific/Kiritimati"), ZoneInfo("Etc/GMT+12")
    cases = [
        (UTC_ZONE, east, {day: True, day + timedelta(days=1): False}),
        (west, east, {day + timedelta(days=1): True, day + timedelta(days=2): False}),
        # It begins later, and has the sum of a day of the other zone.
        (east, west, {day - timedelta(days=1): True, day: False}),
    ]
    for of, zone, want in cases:
        cover = Coverage(zone.key, date(2026, 11, 10), frozen_before=day, frozen_zone=of.key)
        assert {each: cover.is_frozen(each, zone) for each in want} == want
        assert {each: not cover.has(each, zone) for each in want} == want


def test_sums_of_purged_days_stand_in_their_own_zone_only_and_are_never_made_anew() -> None:
    changed = ((at("2026-11-02"), at("2026-11-02T05:00")),)
    known: dict[str, Any] = {
        "until": date(2026, 11, 10),
        "dirt": changed,
        "frozen_before": date(2026, 11, 4),
    }
    ours = Coverage("UTC", **known, frozen_zone="UTC")
    other = Coverage("UTC", **known, frozen_zone="Europe/Berlin")
    assert [ours.has(date(2026, 11, n), UTC_ZONE) for n in (2, 3, 4)] == [True, True, True]
    assert [other.has(date(2026, 11, n), UTC_ZONE) for n in (2, 3, 4)] == [False, False, True]
    for cover in (ours, other):
        assert days_to_sum(cover, date(2026, 11, 1), at("2026-11-10T12:00"), UTC_ZONE) == []
