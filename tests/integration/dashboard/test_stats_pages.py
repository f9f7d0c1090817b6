"""Statistics and capacity: the proxy's numbers, the recorded numbers, and both while a service is
unavailable."""

from __future__ import annotations

import datetime as dt
import html
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from partitions.models import CapacityChange
from partitions.selectors import capacity_now
from tests.builders.fleetrows import NOON, capacity_row

if TYPE_CHECKING:
    from django.test import Client
    from pytest_django import DjangoAssertNumQueries

    from tests.fakes.background import Proxy
    from tests.integration.dashboard.conftest import Clock

pytestmark = pytest.mark.django_db
PAGE, API, CAPACITY = "/partitions/stats/", "/api/v1/stats", "/api/v1/capacity"


@pytest.fixture
def held(proxy: Proxy) -> Proxy:
    proxy.hold("bert", "team-a", 4)
    proxy.hold("secret", "team-b", 8)
    return proxy


def test_an_admin_sees_the_numbers_of_stats(admin: Client, held: Proxy) -> None:
    found = admin.get(API).json()
    assert found["total"] == {"namespace": "total", "used": 12, "available": 20}
    assert [(row["namespace"], row["used"]) for row in found["namespaces"]] == [
        ("team-a", 4),
        ("team-b", 8),
    ]
    assert found["problem"] == ""
    text = admin.get(PAGE).content.decode()
    assert "team-b" in text
    assert "Total" in text


def test_a_user_sees_his_rows_only(user: Client, held: Proxy) -> None:
    found = user.get(API).json()
    assert found["namespaces"] == [{"namespace": "team-a", "used": 4, "available": 20}]
    assert (found["total"], found["available"]) == (None, 20)
    text = user.get(PAGE).content.decode()
    assert "team-a" in text
    assert "team-b" not in text
    assert "Capacity per V-IPU controller" not in text
    body = b"".join(user.get(f"{PAGE}?format=json").streaming_content)  # type: ignore[attr-defined]
    assert [row["namespace"] for row in json.loads(body)] == ["team-a"]


def test_a_stranger_gets_nothing(client: Client) -> None:
    assert client.get(PAGE).status_code == 302
    assert client.get(API).status_code == 401
    assert client.get(CAPACITY).status_code == 401


def test_while_the_proxy_is_away_the_last_numbers_show_with_their_age(
    admin: Client, held: Proxy, clock: Clock
) -> None:
    before = admin.get(API).json()
    held.stop()
    try:
        clock.later(90)
        after = admin.get(API).json()
        assert after["namespaces"] == before["namespaces"]
        assert after["read_at"] == before["read_at"]
        assert "The V-IPU Proxy does not answer" in after["problem"]
        text = admin.get(PAGE).content.decode()
        assert "The V-IPU Proxy does not answer" in text
        assert "90 s" in text
        assert "team-b" in text
    finally:
        held.start()
    clock.later(10)
    assert admin.get(API).json()["problem"] == ""


def test_without_the_proxy_the_page_says_how_to_get_numbers(admin: Client) -> None:
    answer = admin.get(PAGE)
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "No statistics yet" in text
    assert "run_vipu_proxy" in text
    assert "No capacity recorded yet" in text
    assert "run_prober" in text


def test_capacity_is_the_newest_row_of_each_controller(admin: Client) -> None:
    later = NOON + dt.timedelta(hours=1)
    capacity_row("v1:8090", free=64)
    capacity_row("v1:8090", free=30, cordoned=4, faulty=2, at=later)
    capacity_row("v2:8090", free=0, at=later, reachable=False)
    capacity_row("v0:8090", total=16, free=16)
    found = admin.get(CAPACITY).json()["results"]
    assert [(row["controller"], row["used"], row["free"], row["faulty"]) for row in found] == [
        ("v0:8090", 0, 16, 0),
        ("v1:8090", 28, 30, 2),
        ("v2:8090", 64, 0, 0),
    ]
    text = admin.get(PAGE).content.decode()
    assert "not reachable" in text
    assert 'class="ipus-faulty" x="32" y="0" width="2"' in text
    assert " style=" not in text


def test_numbers_of_a_large_fleet_have_their_thousands_apart(admin: Client) -> None:
    capacity_row("v1:8090", total=12_096, free=3_048, cordoned=2_000, faulty=5_000)
    text = admin.get(PAGE).content.decode()
    cells = re.findall(r'<td class="text-end[^"]*">([^<]+)</td>', text)
    assert not [number for number in cells if len(number) > 3 and "," not in number]
    assert {"12,096", "2,048", "3,048", "2,000", "5,000"} <= set(cells)
    assert "faulty 5,000" in text
    assert "12,096 IPUs" in text


def test_capacity_is_for_administrators(user: Client) -> None:
    answer = user.get(CAPACITY)
    assert answer.status_code == 403
    assert answer.json()["detail"] == "Only administrators are allowed to do this."


def test_a_long_history_of_capacity_is_not_read_through() -> None:
    CapacityChange.objects.bulk_create(
        CapacityChange(
            controller=f"v{number % 3}:8090",
            at=NOON + dt.timedelta(seconds=number),
            total=64,
            free=number % 64,
        )
        for number in range(6000)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE partitions_capacitychange")
        from partitions import selectors

        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + selectors._NEWEST_OF_EACH)
        plan = json.dumps(cursor.fetchone())
    assert "Seq Scan" not in plan
    assert len(capacity_now()) == 3


def test_a_controller_taken_off_the_list_is_not_shown_any_more() -> None:
    gone, away = ({"at": NOON, "free": 0, "reachable": False},) * 2
    CapacityChange.objects.create(controller="gone:8090", total=0, **gone)
    CapacityChange.objects.create(controller="away:8090", total=32, **away)
    assert [one.controller for one in capacity_now()] == ["away:8090"]


def test_the_polled_part_is_304_until_a_number_changes(
    admin: Client, held: Proxy, clock: Clock
) -> None:
    answer = admin.get(PAGE, headers={"HX-Request": "true"})
    assert "<html" not in answer.content.decode()
    tag = {"HX-Request": "true", "If-None-Match": answer["ETag"]}
    clock.later(3)
    assert admin.get(PAGE, headers=tag).status_code == 304
    held.hold("another", "team-a", 2)
    clock.later(3)
    assert admin.get(PAGE, headers=tag).status_code == 200


def test_an_unknown_format_is_refused_in_words(admin: Client) -> None:
    answer = admin.get(f"{PAGE}?format=xml")
    assert answer.status_code == 400
    text = html.unescape(answer.content.decode())
    assert "<div>format: 'xml' is not one of csv, json, jsonl.</div>" in text
    assert f'<a href="{PAGE}">' in text


@pytest.mark.parametrize("who", ["admin", "user"])
def test_the_page_asks_few_questions(
    request: pytest.FixtureRequest,
    django_assert_max_num_queries: DjangoAssertNumQueries,
    who: str,
) -> None:
    client: Any = request.getfixturevalue(who)
    with django_assert_max_num_queries(8):
        assert client.get(PAGE).status_code == 200
