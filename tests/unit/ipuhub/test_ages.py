"""Spans and ages, as kubectl prints them."""

from __future__ import annotations

import datetime as dt

import pytest

from ipuhub.templatetags.ages import timed
from ipuhub.text import age, human_duration, short_names, spell_duration, spell_soon
from ipuhub.times import spell_instants

NOW = dt.datetime(2026, 11, 21, 9, 0, 0, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (47 * 3600 + 3599, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (731 * 86400, "2y1d"),
        (8 * 365 * 86400, "8y"),
    ],
)
def test_spans_read_as_kubectl_prints_them(seconds, want):
    assert human_duration(seconds) == want


@pytest.mark.parametrize(
    ("timestamp", "want"),
    [
        (None, "<unknown>"),
        ("bad", "<invalid>"),
        ("2026-11-21T08:00:00", "<invalid>"),
        ("2020-01-01T00:00:00Z", "6y326d"),
        ("2026-11-21T08:59:58.500000Z", "1s"),
    ],
)
def test_an_age_is_counted_from_now(timestamp, want):
    assert age(timestamp, NOW) == want


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (-3, "0 s"),
        (0, "0 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (310, "5 min 10 s"),
        (600, "10 min"),
        (3599, "59 min"),
        (6720, "1 h 52 min"),
        (86399, "23 h 59 min"),
        (86400, "1 d"),
        (3 * 86400 + 4 * 3600, "3 d 4 h"),
        (8 * 86400 + 3600, "8 d"),
        (1500 * 86400, "1,500 d"),
    ],
)
def test_pages_spell_a_duration_in_at_most_two_units(seconds: float, want: str) -> None:
    assert spell_duration(seconds) == want


def test_an_instant_to_come_has_its_date_only_where_it_is_farther_than_a_day() -> None:
    now = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
    assert spell_soon(now + dt.timedelta(hours=23, minutes=59), now) == "11:59 UTC"
    assert spell_soon(now + dt.timedelta(hours=24), now) == "2026-11-22 12:00 UTC"


@pytest.mark.parametrize(
    ("sentence", "want"),
    [
        ("no answer", "no answer"),
        ("", ""),
        (
            "no call since 2026-11-21T08:59:07.250Z, next try at 2026-11-21T09:00:07+00:00",
            "no call since 2026-11-21 08:59:07 UTC, next try at 2026-11-21 09:00:07 UTC",
        ),
        ("lost 2026-11-21T10:30:00+01:30.", "lost 2026-11-21 09:00:00 UTC."),
        ("at 2026-13-41T08:59:07Z", "at 2026-13-41T08:59:07Z"),
        ("run-2026-11-21T08:59:07Zx of 2026-11-21", "run-2026-11-21T08:59:07Zx of 2026-11-21"),
    ],
)
def test_instants_in_a_sentence_read_as_those_of_the_pages(sentence: str, want: str) -> None:
    assert spell_instants(sentence) == want


def test_a_page_marks_the_instants_of_a_sentence_and_nothing_in_it_is_markup() -> None:
    assert timed("<b> since 2026-11-21T08:59:07.250Z") == (
        '&lt;b&gt; since <time datetime="2026-11-21T08:59:07.250000+00:00">2026-11-21 08:59:07 UTC'
        "</time>"
    )


@pytest.mark.parametrize(
    ("names", "want"),
    [
        ([], []),
        (["ag0"], ["ag0"]),
        (["ag1", "ag10"], ["ag1", "ag10"]),
        (["pod0-ag1", "pod0-ag10"], ["ag1", "ag10"]),
        (["pod0-a.example.org", "pod1-a.example.org"], ["pod0", "pod1"]),
        (["a-1", "a-1-2"], ["1", "1-2"]),
        (["a", "a-b"], ["a", "a-b"]),
        (["v1:8090", "v2:8090", "w-1:8090"], ["v1", "v2", "w-1"]),
    ],
)
def test_names_in_little_room_keep_what_tells_them_apart(names: list[str], want: list[str]) -> None:
    assert list(short_names(names).values()) == want


def test_addresses_of_hosts_keep_how_they_begin() -> None:
    found = short_names(["ctrl-1.pod.org:1", "ctrl-2.pod.org:1"], keeps_begin=True)
    assert list(found.values()) == ["ctrl-1", "ctrl-2"]
