"""Idempotency-Key: every write of the API takes one, and is carried out once for a key."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

import pytest
from django.contrib.auth import get_user_model
from django.urls import URLResolver, get_resolver
from django.utils import timezone

from ipuhub.api.idempotency import KEPT, is_idempotent
from ipuhub.models import IdempotentRequest, Subscription
from partitions.api import Query
from tests.builders.clients import tool
from usage.api.rates import RatePreview
from usage.models import Rate, ReportRun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.auth.models import User
    from django.http import HttpResponse
    from django.test import Client

JSON: Final = "application/json"
SUBSCRIPTIONS: Final = "/api/v1/subscriptions"
CHANGES_NOTHING: Final = {Query, RatePreview}
"""Views whose POST only reads."""
SUBSCRIPTION: Final = {
    "event": "job-ended",
    "channel": "webhook",
    "target": "https://chat.example/h",
}
RATE: Final = {"resource": "ipu", "price": "1.5", "currency": "EUR", "valid_from": "2026-11-01"}


@pytest.fixture
def root() -> User:
    user: User = get_user_model().objects.create_user("root", is_staff=True)
    return user


def send(
    client: Client, path: str, body: Any = None, key: str = "k1", method: str = "post"
) -> HttpResponse:
    call = getattr(client, method)
    answer: HttpResponse = call(
        path, body or {}, content_type=JSON, headers={"Idempotency-Key": key}
    )
    return answer


def views(resolver: URLResolver) -> Iterator[type]:
    for each in resolver.url_patterns:
        if isinstance(each, URLResolver):
            yield from views(each)
        elif hasattr(each.callback, "view_class") or hasattr(each.callback, "cls"):
            yield getattr(each.callback, "cls", None) or each.callback.view_class


def test_every_write_of_the_api_takes_a_key() -> None:
    found = {
        (view.__name__, method): is_idempotent(view, method)
        for view in views(get_resolver())
        if hasattr(view, "permission_classes") and view not in CHANGES_NOTHING
        for method in ("post", "put", "patch", "delete")
        if hasattr(view, method)
    }
    assert {("RateList", "post"), ("OneSubscription", "delete"), ("ScaleJob", "post")} <= set(found)
    assert [name for name, takes_key in found.items() if not takes_key] == []


@pytest.mark.django_db
def test_a_repeated_request_gets_the_first_answer_and_changes_nothing(root: User) -> None:
    client = tool(root)
    first = send(client, SUBSCRIPTIONS, SUBSCRIPTION)
    again = send(client, SUBSCRIPTIONS, dict(reversed(SUBSCRIPTION.items())))
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    one = f"{SUBSCRIPTIONS}/{Subscription.objects.get().pk}"
    paused = send(client, one, {"is_paused": True}, "k2", "patch")
    Subscription.objects.update(is_paused=False)
    assert send(client, one, {"is_paused": True}, "k2", "patch").content == paused.content
    assert not Subscription.objects.get().is_paused
    gone = [send(client, one, None, "k3", "delete") for _ in range(2)]
    assert [(each.status_code, each.content) for each in gone] == [(204, b"")] * 2


@pytest.mark.django_db
def test_rates_and_runs_are_made_once_for_a_key(root: User) -> None:
    client = tool(root)
    rates = [send(client, "/api/v1/usage/rates", RATE) for _ in range(2)]
    assert [each.status_code for each in rates] == [201, 201], rates[0].content
    assert rates[0].content == rates[1].content
    rate = Rate.objects.get()
    path = f"/api/v1/usage/rates/{rate.pk}/end"
    ends = [send(client, path, {"valid_until": "2027-01-01"}, "k2") for _ in range(2)]
    assert [each.status_code for each in ends] == [200, 200], ends[0].content
    assert ends[0].content == ends[1].content
    runs = []
    for _ in range(2):
        runs.append(send(client, "/api/v1/usage/reports/runs", {"month": "2026-10"}, "k3"))
        ReportRun.objects.update(state=ReportRun.State.DONE)  # another request makes another run
    assert [each.status_code for each in runs] == [202, 202]
    assert runs[0].headers["Location"] == runs[1].headers["Location"]
    assert ReportRun.objects.count() == 1


@pytest.mark.django_db
def test_a_key_of_another_request_is_refused_and_one_of_another_user_is_another(
    root: User,
) -> None:
    client, ann = tool(root), get_user_model().objects.create_user("ann")
    send(client, SUBSCRIPTIONS, SUBSCRIPTION)
    other = send(client, SUBSCRIPTIONS, SUBSCRIPTION | {"event": "job-failed"})
    assert (other.status_code, other.json()["title"]) == (422, "Idempotency-Key reused")
    assert send(client, "/api/v1/usage/rates", SUBSCRIPTION).status_code == 422
    assert send(tool(ann), SUBSCRIPTIONS, SUBSCRIPTION).status_code == 201
    assert Subscription.objects.count() == 2
    bad = send(client, SUBSCRIPTIONS, SUBSCRIPTION, "x" * 256)
    assert (bad.status_code, list(bad.json()["errors"])) == (400, ["Idempotency-Key"])


@pytest.mark.django_db
def test_a_refusal_frees_the_key_and_a_failure_keeps_it(
    root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = tool(root)
    client.raise_request_exception = False
    assert send(client, SUBSCRIPTIONS, SUBSCRIPTION | {"event": "no"}).status_code == 400
    assert IdempotentRequest.objects.count() == 0
    with monkeypatch.context() as broken:
        broken.setattr("dashboard.notify.subscriptionapi.subscribe", lambda *_: 1 / 0)
        assert send(client, SUBSCRIPTIONS, SUBSCRIPTION).status_code == 500
    again = send(client, SUBSCRIPTIONS, SUBSCRIPTION)
    assert (again.status_code, "may have happened" in again.json()["detail"]) == (409, True)


@pytest.mark.django_db
def test_a_key_is_forgotten_after_a_day(root: User, monkeypatch: pytest.MonkeyPatch) -> None:
    client, now = tool(root), timezone.now()
    send(client, SUBSCRIPTIONS, SUBSCRIPTION)
    for late, count in ((KEPT - dt.timedelta(minutes=1), 1), (KEPT + dt.timedelta(minutes=1), 2)):
        monkeypatch.setattr(timezone, "now", lambda late=late: now + late)
        assert send(client, SUBSCRIPTIONS, SUBSCRIPTION).status_code == 201
        assert Subscription.objects.count() == count


@pytest.mark.parametrize("odd", [str(2**64), '"\\ud800"', '"\\u0000"', "1e999"])
@pytest.mark.django_db
def test_a_key_beside_a_body_of_odd_values_is_no_error(root: User, odd: str) -> None:
    client = tool(root)
    for _ in range(2):
        answer = client.post(
            SUBSCRIPTIONS,
            f'{{"event": "job-ended", "channel": "webhook", "target": {odd}}}',
            content_type=JSON,
            headers={"Idempotency-Key": "k1"},
        )
        assert answer.status_code == 400, answer.content
