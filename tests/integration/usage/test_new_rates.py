"""Messages about a rate before it is saved: overlaps, and the cost of last month."""

from __future__ import annotations

import re
from datetime import date
from html import unescape
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.utils import timezone

from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rates import store_rate
from tests.integration.usage.reading import UTC_ZONE, make
from usage.models import Rate
from usage.rates.pages import end_rate
from usage.time.windows import Month

pytestmark = pytest.mark.django_db
_LAST = Month.of(timezone.now(), UTC_ZONE).previous()


@pytest.fixture
def admin() -> Any:
    return get_user_model().objects.create_user("dora", is_staff=True)


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ("ipu", "partition-ipu", ""),
        ("partition-ipu", "ipu", ""),
        ("partition-ipu", "instance", "ipu-4"),
    ],
)
def test_ipus_of_jobs_have_one_price(first: str, second: str, name: str) -> None:
    store_rate(first, "1", "2026-03-01", "2026-06-01")
    for begins, ends in (("2026-05-31", ""), ("2026-01-01", "2026-03-02"), ("2026-04-01", "")):
        with pytest.raises(ValidationError, match="would be charged twice. End that rate first"):
            store_rate(second, "2", begins, ends, name=name)
    assert Rate.objects.count() == 1
    store_rate(second, "2", "2026-06-01", name=name)
    store_rate(second, "2", "2026-01-01", "2026-03-01", name=name)


def test_what_stands_in_for_another_price_or_never_held_is_no_second_one() -> None:
    never = store_rate("ipu", "9")
    end_rate(never, never.valid_from, "ada", at("2026-02-01T00:00"))
    store_rate("partition-ipu", "1")
    for resource, name in (("gpu", ""), ("accelerator", "a"), ("cpu", ""), ("instance", "ipu-big")):
        store_rate(resource, "1", name=name)
    assert Rate.objects.count() == 6


def test_a_second_price_is_refused_by_page_and_api_and_older_ones_are_told(admin: Any) -> None:
    store_rate("ipu", "1", "2026-01-01")
    body = {"resource": "partition-ipu", "price": "2", "valid_from": "2026-05-01"}
    page = browser(admin).post("/usage/rates/", body | {"save": "yes"})
    answer = api_client(admin).post("/api/v1/usage/rates", body, "application/json")
    for each in (unescape(page.content.decode()), answer.json()["detail"]):
        assert "A job's pods use the IPUs of its partition" in each
    assert (page.status_code, answer.status_code, Rate.objects.count()) == (400, 400, 1)
    Rate.objects.create(
        resource="partition-ipu",
        price=2,
        valid_from=date(2026, 5, 1),
        created_by="an older release",
        created_at=at("2026-01-01T00:00"),
    )
    html = unescape(browser(admin).get("/usage/rates/").content.decode())
    assert html.count("A job's pods use the IPUs of its partition") == 2


def _a_month() -> None:
    first = f"{_LAST}-03T0"
    store_pod(f"{first}0:00", f"{first}2:00", cpu=1, ipus=4)
    store_partition(f"{first}0:00", f"{first}3:00", size=4)


def test_a_preview_tells_what_a_rate_would_have_made_of_last_month(admin: Any) -> None:
    store_rate("cpu", "1", "2026-01-01")
    _a_month()
    body = {"resource": "partition-ipu", "price": "0.5", "valid_from": "2030-01-01"}
    preview = api_client(admin).post("/api/v1/usage/rates/preview", body, "application/json").json()
    want = {"cost_now": "2.00", "cost_without": "2.00", "cost_with": "8.00", "adds": "6.00"}
    assert preview == want | {
        "month": str(_LAST),
        "day": "2030-01-01",
        "currency": "EUR",
        "hours": "12.00000",
        "problem": "",
    }
    page = browser(admin).post("/usage/rates/", body).content.decode()
    assert "8.00 EUR" in page
    assert "Set this rate" in page
    assert Rate.objects.count() == 1
    browser(admin).post("/usage/rates/", {**body, "save": "yes"})
    assert Rate.objects.filter(resource="partition-ipu", created_by="dora").count() == 1


def test_a_preview_is_at_the_prices_of_the_rates_first_day_and_beside_what_was_closed(
    admin: Any,
) -> None:
    old = store_rate("cpu", "1", "2026-01-01")
    _a_month()
    make(str(_LAST), f"{timezone.now():%FT%T}")
    end_rate(old, date(2029, 1, 1), "ada", timezone.now())
    store_rate("ipu", "0.25", "2029-06-01")
    body = {"resource": "cpu", "price": "3", "valid_from": "2029-07-01"}
    preview = api_client(admin).post("/api/v1/usage/rates/preview", body, "application/json").json()
    assert [preview[f"cost_{name}"] for name in ("now", "without", "with")] == [
        "2.00",
        "2.00",
        "8.00",
    ]


def test_a_first_price_is_shown_beside_none(admin: Any) -> None:
    _a_month()
    body = {"resource": "instance", "name": "cpu", "price": "0", "valid_from": "2029-07-01"}
    preview = api_client(admin).post("/api/v1/usage/rates/preview", body, "application/json").json()
    assert [preview[name] for name in ("cost_now", "cost_without", "cost_with", "hours")] == [
        None,
        None,
        "0.00",
        None,
    ]


def test_prices_and_the_amounts_of_a_preview_stand_in_one_precision(admin: Any) -> None:
    store_rate("ipu", "1250")
    store_rate("cpu", "0.125")
    store_rate("memory", "2.5")
    store_pod(f"{_LAST}-10T00:00", f"{_LAST}-10T00:20", ipus=1, cpu=1, group="ml")
    body = {"resource": "gpu", "price": "3", "valid_from": "2029-07-01"}
    page = browser(admin).post("/usage/rates/", body).content.decode()
    cells = re.findall(r'<td data-label="[A-Z]+ per hour"[^>]*>([^<]*)</td>', page)
    assert cells == ["0.125", "1,250.000", "2.500"]
    (amounts,) = re.findall(r'<dl class="amounts[^"]*">(.*?)</dl>', page, re.DOTALL)
    money = re.findall(r"<dd>([^<]*)</dd>", amounts)
    assert len(money) == 3
    assert {len(each.split()[0].partition(".")[2]) for each in money} == {2}
    assert "(0.00 hours)" in amounts
