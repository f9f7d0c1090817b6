"""Refused forms: a sentence says why, the typed values stay, and nothing is changed."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from tests.builders.clients import browser
from tests.builders.rates import store_rate
from usage.models import Rate, ReportRun

if TYPE_CHECKING:
    from django.contrib.auth.models import User

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> User:
    return get_user_model().objects.create_user("root", is_staff=True)


def refusal(user: User, address: str, body: dict[str, str]) -> str:
    answer = browser(user).post(address, body)
    assert answer.status_code == 400
    return html.unescape(answer.content.decode())


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"from": "2026-10-31", "to": "2026-10-01"}, "before"),
        ({"from": "soon", "to": "2026-10-01"}, "soon"),
        (
            {"from": "2026-10-01", "to": "2026-10-02", "kind": "all"},
            "The file must be summary or details",
        ),
        ({"from": "2026-10-01", "to": "2026-10-02", "profile": "x"}, "default or primehub"),
    ],
)
def test_a_refused_range_stands_in_its_form_again(
    admin: User, body: dict[str, str], sentence: str
) -> None:
    body = {"kind": "details", "profile": "primehub", **body}
    page = refusal(admin, "/usage/reports/range/", body)
    alert = page.partition('role="alert">')[2].partition("</div>")[0]
    assert sentence in alert
    assert f'name="from" required value="{body["from"]}"' in page
    assert f'name="to" value="{body["to"]}"' in page
    assert ('value="details" selected' in page) == (body["kind"] == "details")
    assert ('value="primehub" selected' in page) == (body["profile"] == "primehub")
    assert not ReportRun.objects.exists()


@pytest.mark.parametrize(
    ("day", "sentence"),
    [
        ("", "Enter the first day without the rate"),
        ("tomorrow", "Enter the first day without the rate"),
        ("2025-12-31", "2026-01-01"),
    ],
)
def test_a_rate_that_cannot_end_then_goes_on_and_says_why(
    admin: User, day: str, sentence: str
) -> None:
    first, second = store_rate("cpu", "1"), store_rate("gpu", "2")
    page = refusal(admin, f"/usage/rates/{second.pk}/end/", {"valid_until": day})
    row = page.partition(f'id="end-{second.pk}"')[2].partition("</form>")[0]
    assert f'value="{day}"' in row
    assert sentence in row
    assert "invalid-feedback" not in page.partition(f'id="end-{first.pk}"')[2].split("</form>")[0]
    assert not Rate.objects.exclude(valid_until=None).exists()


def test_a_rate_that_is_sent_twice_is_set_once(admin: User) -> None:
    body = {"resource": "cpu", "price": "1.5", "valid_from": "2026-01-01", "save": "yes"}
    assert browser(admin).post("/usage/rates/", body).status_code == 302
    page = refusal(admin, "/usage/rates/", body)
    assert "End it first, or choose other days" in page
    assert 'value="1.5"' in page
    assert Rate.objects.count() == 1


@pytest.mark.parametrize(
    "address",
    [
        "/usage/rates/",
        "/usage/rates/1/end/",
        "/usage/reports/make/",
        "/usage/reports/range/",
        "/account/tokens/",
        "/account/tokens/1/revoke",
        "/logout/",
    ],
)
def test_a_form_without_its_token_does_nothing_and_says_what_helps(
    admin: User, address: str
) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin)
    body = {"resource": "cpu", "price": "1", "valid_from": "2026-01-01", "from": "2026-10-01"}
    answer = client.post(address, body)
    assert answer.status_code == 403
    assert "Reload the page and send it again." in answer.content.decode()
    assert not Rate.objects.exists()
    assert not ReportRun.objects.exists()
    assert client.get("/usage/rates/").status_code == 200  # still signed in
