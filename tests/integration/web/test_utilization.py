"""Utilization on its page, in its files and in the API: for administrators, exact, in pages."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from django.http import QueryDict
from django.utils import timezone
from django.utils.html import escape

from ipuhub.models import WatchCheckpoint, WatchGap
from partitions.models import CapacityChange
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.integration.web.test_overview_pages import empty_state
from usage.query import given
from usage.utilization.amounts import NAMES, Utilization
from usage.utilization.answers import CapacityQuestion, answer_capacity
from usage.utilization.rollups import refresh
from usage.utilization.selectors import read_capacity

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db
NOW = at("2026-11-21T12:00:00")
API = "/api/v1/usage/capacity"
PARTITIONS = "/api/v1/usage/partitions"
RANGE = "from=2026-11-02&to=2026-11-03"


@pytest.fixture(autouse=True)
def _rows(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    for name, total in (("v1:8090", 16), ("=v2", 64)):
        CapacityChange.objects.create(
            controller=name, at=at("2026-11-01T00:00"), total=total, free=total
        )
    job = {"job_uid": "uid-1", "partition": "p-1"}
    store_partition("2026-11-02T00:00", "2026-11-02T02:00", controller="v1:8090", **job)
    store_partition(
        "2026-11-03T00:00", "2026-11-03T01:00", controller="v1:8090", namespace="team-b"
    )
    store_pod("2026-11-02T00:00", "2026-11-02T01:00", ipus=4, **job)
    WatchCheckpoint.objects.create(name="capacity", position_at=NOW)


def get_json(user: User, address: str, status: int = 200) -> dict:
    answer = api_client(user).get(address)
    assert answer.status_code == status, answer.content
    return answer.json()


def test_the_sums_add_up_for_each_controller_and_in_all(admin: User) -> None:
    got = get_json(admin, f"{API}?{RANGE}")
    assert [(r["controller"], r["begin"]) for r in got["results"]] == [
        (name, f"2026-11-0{day}T00:00:00Z") for day in (2, 3) for name in ("=v2", "v1:8090")
    ]
    first = got["results"][1]
    assert first["held_idle_ipu_hours"] == "4.00000"
    assert first["exact"] == {
        "capacity_ipu_seconds": 16 * 86_400,
        "reserved_ipu_seconds": 4 * 7200,
        "pod_micro_ipu_seconds": 4 * 3600 * 10**6,
        "held_idle_ipu_seconds": 4 * 3600,
        "by_others_ipu_seconds": 0,
        "idle_ipu_seconds": 16 * 86_400 - 4 * 7200,
        "down_ipu_seconds": 0,
        "unknown_ipu_seconds": 0,
    }
    for name in first["exact"]:
        assert got["total"]["exact"][name] == sum(r["exact"][name] for r in got["results"])


@pytest.mark.parametrize(
    ("query", "action"),
    [
        ("?month=2026-01", "/utilization/"),
        ("?from=2026-01-01&to=2026-01-02", "/utilization/"),
        (f"?{RANGE}&controller=gone", f"/utilization/?{RANGE}"),
        ("", "/system/"),
    ],
)
def test_a_range_without_capacity_says_so_and_leads_on(
    admin: User, monkeypatch: pytest.MonkeyPatch, query: str, action: str
) -> None:
    if not query:
        monkeypatch.setattr(timezone, "now", lambda: at("2026-01-15T00:00"))
    text = browser(admin).get(f"/utilization/{query}").content.decode()
    words = "No capacity was recorded in this range."
    assert empty_state(text) == (words, escape(action))


@pytest.mark.parametrize("step", ["hour", "day", "week", "month", "all"])
def test_steps_of_any_length_have_one_total(admin: User, step: str) -> None:
    got = get_json(admin, f"{API}?{RANGE}&step={step}&by=total&page_size=1000")
    assert len(got["results"]) == {"hour": 48, "day": 2}.get(step, 1)
    assert got["total"]["capacity_ipu_hours"] == f"{80 * 48}.00000"
    assert {r["controller"] for r in got["results"]} == {""}


@pytest.mark.parametrize("more", ["", "&controller=v1:8090"])
def test_the_total_of_each_step_is_the_sum_of_the_controllers(admin: User, more: str) -> None:
    refresh(at("2026-11-03T20:07"))  # a part is summed, the rest is not
    by_step: dict[str, Utilization] = {}
    address = f"{API}?{RANGE}&step=hour&page_size=1000{more}"
    for row in get_json(admin, address)["results"]:
        before = by_step.get(row["begin"], Utilization())
        by_step[row["begin"]] = before + _amounts(row)
    whole = get_json(admin, f"{address}&by=total")["results"]
    assert {row["begin"]: _amounts(row) for row in whole} == by_step


def _amounts(row: dict) -> Utilization:
    exact = row["exact"]
    held = {name: exact[f"{name}_ipu_seconds"] for name in NAMES if name != "pod_micro"}
    return Utilization(**held, pod_micro=exact["pod_micro_ipu_seconds"])


@pytest.mark.parametrize("by", ["controller", "total"])
def test_pages_follow_each_other_without_a_hole(
    admin: User, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counted(begins: list[datetime], *rest: Any, **options: Any) -> Any:
        read.append(len(begins))
        return read_capacity(begins, *rest, **options)

    monkeypatch.setattr("usage.utilization.answers.read_capacity", counted)
    whole = get_json(admin, f"{API}?{RANGE}&step=hour&page_size=96&by={by}")
    assert whole["next"] is None
    assert len(whole["results"]) == (96 if by == "controller" else 48)
    seen, address, read[:] = [], f"{API}?{RANGE}&step=hour&page_size=7&by={by}", []
    while address:
        got = get_json(admin, address)
        seen += got["results"]
        assert got["total"] == whole["total"]
        address = got["next"]
    assert seen == whole["results"]
    # Steps before and after a page are read as one: it has 7 rows, and one more to know its end.
    assert max(read) <= 11


def test_the_page_tells_the_share_of_each_state_in_the_capacity(admin: User) -> None:
    CapacityChange.objects.create(
        controller="v1:8090", at=at("2026-11-03T12:00"), total=16, free=4, faulty=8
    )
    page = browser(admin).get(f"/utilization/?{RANGE}&controller=v1:8090")
    assert [(name, share) for name, share, _ in page.context["figures"]] == [
        ("Running pods", "0.5 %"),  # 4 of 768 IPU-hours
        ("Held idle", "1.0 %"),
        ("By others", "6.3 %"),
        ("Free", "79.7 %"),
        ("Down", "12.5 %"),
        ("Unknown", "0.0 %"),
    ]
    assert sum(amount for *_, amount in page.context["figures"]) == 16 * 48


@pytest.mark.parametrize("summed", [False, True])
def test_the_heat_map_shows_each_hour_of_the_week_by_the_clocks_of_reports(
    admin: User, settings: SettingsWrapper, summed: bool
) -> None:
    settings.REPORT_ZONE = ZoneInfo("Asia/Kolkata")  # 5:30 ahead: no hour of it is an hour of UTC
    if summed:
        refresh(at("2026-11-03T00:10"))  # the rest is read from rows
    query = "from=2026-11-02T00:00:00Z&to=2026-11-03T00:40:00Z"
    page = browser(admin).get(f"/utilization/?{query}&controller=v1:8090")
    cells = {(c.day, c.hour): c for _, row in page.context["heat"].rows for c in row}
    assert cells[0, 4].words == "Mon 04:00: no data"
    assert cells[0, 5].words == "Mon 05:00: 25.0 % held"
    assert cells[0, 6].words == "Mon 06:00: 25.0 % held, 12.5 % held idle"
    assert cells[0, 7].words == "Mon 07:00: 12.5 % held, 12.5 % held idle"
    assert cells[1, 5].words == "Tue 05:00: 12.5 % held, 12.5 % held idle"
    assert cells[1, 6].words == "Tue 06:00: 25.0 % held, 25.0 % held idle"
    text = page.content.decode()
    assert text.count("<title>") == 1 + 7 * 24
    assert "<title>Mon 06:00: 25.0 % held, 12.5 % held idle</title>" in text
    assert 'style="' not in text


def test_the_heat_map_can_be_downloaded_as_it_is_shown(
    admin: User, settings: SettingsWrapper
) -> None:
    settings.REPORT_ZONE = ZoneInfo("Asia/Kolkata")
    query = "from=2026-11-02T00:00:00Z&to=2026-11-03T00:40:00Z&controller=v1:8090"
    page = browser(admin).get(f"/utilization/?{query}")
    link = page.context["week_csv"]
    assert f'href="{escape(link)}"' in page.content.decode()
    text = browser(admin).get(link).getvalue().decode()
    *rows, total = csv.DictReader(io.StringIO(text, newline=""))
    assert len(rows) == 7 * 24
    assert (total["weekday"], total["hour"]) == ("total", "")
    for name in (name for name in total if name.endswith("_seconds")):
        assert int(total[name]) == sum(int(row[name]) for row in rows), name
    bare = browser(admin).get(f"{link}&total=no").getvalue().decode()
    assert bare == "".join(text.splitlines(keepends=True)[:-1])
    shares = {
        (name, str(cell.hour)): cell.share
        for name, cells in page.context["heat"].rows
        for cell in cells
    }
    reply = api_client(admin).get(f"{API}/week?{query}").json()
    hours = [(each["weekday"], str(each["hour"])) for each in reply["results"]]
    assert hours == [(row["weekday"], row["hour"]) for row in rows]
    assert [each["reserved_percent"] or "" for each in reply["results"]] == [
        row["reserved_percent"] for row in rows
    ]
    assert reply["total"]["exact"]["reserved_ipu_seconds"] == int(total["reserved_ipu_seconds"])
    assert api_client(admin).get(f"{API}/week.csv?{query}").getvalue().decode() == text
    for row in rows:
        share = shares[row["weekday"], row["hour"]]
        held = row["reserved_percent"]
        assert bool(held) is (share != "no data")
        assert not held or float(held) == float(share.removesuffix(" %"))
    idle = {(row["weekday"], row["hour"]): row["held_idle_ipu_seconds"] for row in rows}
    assert idle["Mon", "6"] == "7200"
    assert sum(int(row["capacity_ipu_seconds"]) for row in rows) == 16 * 88_800
    assert browser(admin).get("/utilization/week.csv?step=minute").status_code == 400


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "Australia/Lord_Howe"])
@pytest.mark.parametrize("step", ["hour", "day", "week", "month"])
def test_the_hours_of_the_week_add_up_to_the_totals(zone: str, step: str) -> None:
    refresh(at("2026-11-03T20:00"))
    for query in ("from=2026-11-01T00:07:01Z&to=2026-11-05T03:50:00Z", "window=7d"):
        params = given(QueryDict(f"{query}&step={step}"))
        question = CapacityQuestion.of(params, NOW, ZoneInfo(zone))
        answer = answer_capacity(question, with_week=True)
        assert answer.total.capacity
        assert sum(answer.record.week.values(), Utilization()) == answer.total


@pytest.mark.parametrize(("seconds", "warned"), [(172, False), (174, True)])
def test_unknown_time_is_a_warning_only_above_a_thousandth(
    admin: User, seconds: int, warned: bool
) -> None:
    begin = at("2026-11-03T12:00")
    WatchGap.objects.create(
        watch="capacity", began_at=begin, ended_at=begin + timedelta(seconds=seconds), cause=""
    )
    page = browser(admin).get(f"/utilization/?{RANGE}&controller=v1:8090").content.decode()
    assert ("alert-warning" in page) is ("usage-state" in page) is warned
    assert ("Complete for the whole range." in page) is not warned
    assert ("of the capacity is unknown. No data for 2 min 54 s" in page) is warned


def test_time_that_nobody_asked_is_told(admin: User) -> None:
    WatchGap.objects.create(
        watch="capacity", began_at=at("2026-11-02T05:00"), ended_at=at("2026-11-02T06:00"), cause=""
    )
    WatchCheckpoint.objects.update(position_at=at("2026-11-03T12:00"))
    got = get_json(admin, f"{API}?{RANGE}&step=all&controller=v1:8090")
    assert got["silent_seconds"] == 13 * 3600
    assert got["known_until"] == "2026-11-03T12:00:00Z"
    assert got["total"]["unknown_ipu_hours"] == f"{16 * 13}.00000"
    page = browser(admin).get(f"/utilization/?{RANGE}").content.decode()
    assert "2026-11-03 12:00:00 UTC" in page
    assert "No data for 13 h" in page
    assert "?watch=capacity" in page
    WatchGap.objects.all().delete()
    page = browser(admin).get(f"/utilization/?{RANGE}").content.decode()
    assert "; no data for 12 h since then." in page  # not in the list of gaps
    assert "?watch=capacity" not in page


def test_a_range_that_goes_on_tells_the_age_of_the_last_poll_and_one_that_is_over_does_not(
    admin: User,
) -> None:
    WatchCheckpoint.objects.update(position_at=NOW - timedelta(minutes=3))
    page = browser(admin).get("/utilization/?window=7d")
    assert datetime.fromisoformat(page.headers["X-As-Of"]) == NOW - timedelta(minutes=3)
    assert re.search(r'<p id="as-of".*?>Read <time [^>]*>3 min</time> ago', page.content.decode())
    over = browser(admin).get(f"/utilization/?{RANGE}")
    assert "X-As-Of" not in over.headers
    assert 'id="as-of"' not in over.content.decode()


def test_the_csv_can_be_opened_in_a_spreadsheet(admin: User) -> None:
    for answer in (
        api_client(admin).get(f"{API}?{RANGE}&format=csv"),
        browser(admin).get(f"/utilization/?{RANGE}&format=csv"),
    ):
        *rows, total = csv.DictReader(io.StringIO(answer.getvalue().decode(), newline=""))
        assert (total["begin"], total["end"], total["controller"]) == ("total", "", "")
        for name in (name for name in total if name.endswith("_seconds")):
            assert int(total[name]) == sum(int(row[name]) for row in rows), name
        assert [row["controller"] for row in rows] == ["'=v2", "v1:8090"] * 2
        assert rows[1]["held_idle_ipu_hours"] == "4.00000"
    for address in (f"{API}?{RANGE}&format=csv", f"{API}?{RANGE}&format=jsonl"):
        bare = api_client(admin).get(f"{address}&total=no").getvalue().decode()
        assert "total" not in bare.partition("\n")[2]
    assert "total" not in api_client(admin).get(f"{API}?{RANGE}&format=jsonl").getvalue().decode()
    twin = browser(admin).get(f"/utilization/?{RANGE}&format=json")
    assert json.loads(twin.getvalue())[1]["idle_ipu_seconds"] == 16 * 86_400 - 4 * 7200


def test_the_page_shows_each_controller_and_its_chart_the_bands(admin: User) -> None:
    page = browser(admin).get(f"/utilization/?{RANGE}").content.decode()
    assert "=v2" in page
    assert "All controllers" in page
    chart = browser(admin).get(f"/utilization/chart.json?{RANGE}").json()
    assert chart["days"] == ["2026-11-02", "2026-11-03"]
    assert {s["name"]: s["values"] for s in chart["series"]} == {
        "Running pods": [4.0, 0.0],
        "Held idle": [4.0, 4.0],
        "Free": [80 * 24 - 8.0, 80 * 24 - 4.0],
    }


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("step=minute", "step: 'minute' is not one of"),
        ("by=planet", "by: 'planet' is not one of controller, total"),
        ("from=2026-11-03&to=2026-11-02", "The range from 2026-11-03T00:00:00Z ends"),
        ("from=2020-01-01&to=2026-01-01&step=hour", "more than 2000 steps"),
        ("month=2027-01", "has not begun yet"),
        ("colour=red", "colour: unknown parameter"),
        ("format=xml", "format: 'xml' is not one of"),
        (f"controller={'v' * 501}", "controller: at most 500 characters"),
        ("controller=v%00", "no zero byte"),
        ("cursor=zzz", "not a cursor"),
        ("cursor=%F0%9F", "is not valid UTF-8"),
        ("page_size=0", "must be a whole number"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(admin: User, query: str, want: str) -> None:
    assert want in json.dumps(get_json(admin, f"{API}?{query}", 400))
    if "cursor" not in query and "page_size" not in query:
        assert browser(admin).get(f"/utilization/?{query}").status_code == 400


def test_only_administrators_see_controllers(alice: User, charlie: User) -> None:
    for user in (alice, charlie):
        get_json(user, API, 403)
        get_json(user, f"{API}/week", 403)
        for address in ("/utilization/", "/utilization/chart.json"):
            assert browser(user).get(address).status_code == 403
        assert "/utilization/" not in browser(user).get("/usage/").content.decode()


def test_nobody_signed_in_sees_nothing(client) -> None:
    assert client.get(API).status_code == 401
    assert client.get(PARTITIONS).status_code == 401
    for address in ("/utilization/", "/utilization/chart.json"):
        assert client.get(address).status_code == 302


def test_partitions_tell_what_they_held_in_the_range_and_how_much_of_it_idle(admin: User) -> None:
    got = get_json(admin, f"{PARTITIONS}?from=2026-11-02T00:30:00Z&to=2026-11-02T01:30:00Z")
    (one,) = got["results"]
    assert (one["partition"], one["start"], one["stop"]) == (
        "p-1",
        "2026-11-02T00:30:00Z",
        "2026-11-02T01:30:00Z",
    )
    assert one["partition_ipu_seconds"] == 4 * 3600
    assert one["held_idle_ipu_seconds"] == 4 * 1800
    assert one["pod_micro_ipu_seconds"] == 4 * 1800 * 10**6
    assert one["held_idle_ipu_hours"] == "2.00000"


def test_partitions_come_in_pages_and_as_a_file(admin: User) -> None:
    first = get_json(admin, f"{PARTITIONS}?{RANGE}&page_size=1")
    second = get_json(admin, first["next"])
    assert [r["namespace"] for r in first["results"] + second["results"]] == ["team-b", "team-a"]
    assert second["next"] is None
    answer = api_client(admin).get(f"{PARTITIONS}?{RANGE}&format=csv")
    *rows, total = csv.DictReader(io.StringIO(answer.getvalue().decode(), newline=""))
    assert [r["held_idle_ipu_seconds"] for r in rows] == [str(4 * 3600), str(4 * 3600)]
    whole = {name for name in rows[0] if name.endswith(("_hours", "ipu_seconds"))}
    for name in whole:
        assert total[name] == str(sum(Decimal(row[name]) for row in rows)), name
    empty = {name for name, cell in total.items() if not cell}
    assert {*whole, *empty, "key"} == set(rows[0])
    assert total["key"] == "total"
    bare = api_client(admin).get(f"{PARTITIONS}.csv?{RANGE}&total=no").getvalue().decode()
    assert list(csv.DictReader(io.StringIO(bare, newline=""))) == rows
    get_json(admin, f"{PARTITIONS}?{RANGE}&format=csv&total=maybe", 400)


def test_a_user_sees_partitions_of_granted_namespaces_only(alice: User, charlie: User) -> None:
    assert {r["namespace"] for r in get_json(alice, PARTITIONS)["results"]} == {"team-a"}
    get_json(alice, f"{PARTITIONS}?namespace=team-b", 403)
    assert get_json(charlie, PARTITIONS)["results"] == []
    get_json(alice, f"{PARTITIONS}?planet=mars", 400)
    get_json(alice, f"{PARTITIONS}?month=13", 400)
