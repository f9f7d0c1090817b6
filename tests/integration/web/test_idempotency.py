"""Idempotency-Key: every write of the API takes a key, and is carried out once for a key."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError, connection
from django.urls import URLResolver, get_resolver
from django.utils import timezone
from rest_framework.serializers import Serializer

from dashboard.notify.subscriptions import subscribe
from ipuhub.api.idempotency import SECRETS, SecretField, is_idempotent
from ipuhub.celery import app, forget_keys
from ipuhub.models import IdempotentRequest, Subscription
from ipuhub.models.idempotency import CLAIMED, KEPT, LONGEST, SENDING, ClaimLostError
from ipuhub.recording.store import connection_arguments
from partitions.api import Query
from tests.builders.clients import api_client
from tests.fakes.waiting import wait_until
from usage.api.rates import RatePreview
from usage.models import Rate, ReportRun
from usage.reports.runs import BrokerAway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.auth.models import User
    from django.http import HttpResponse
    from django.test import Client

JSON: Final = "application/json"
RUNS: Final = "/api/v1/usage/reports/runs"
SUBSCRIPTIONS: Final = "/api/v1/subscriptions"
CHANGES_NOTHING: Final = {Query, RatePreview}
"""Views whose POST only reads."""
SUBSCRIPTION: Final = {
    "event": "job-ended",
    "channel": "webhook",
    "target": "https://chat.example/h",
}
TOKEN: Final = {"name": "night", "days": 1, "scopes": ["read"]}
RATE: Final = {"resource": "ipu", "price": "1.5", "valid_from": "2026-11-01"}


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
    client = api_client(root)
    first = send(client, SUBSCRIPTIONS, SUBSCRIPTION)
    again = send(client, SUBSCRIPTIONS, dict(reversed(SUBSCRIPTION.items())))
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json() | {"secret": None}
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
    client = api_client(root)
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
    client, ann = api_client(root), get_user_model().objects.create_user("ann")
    send(client, SUBSCRIPTIONS, SUBSCRIPTION)
    other = send(client, SUBSCRIPTIONS, SUBSCRIPTION | {"event": "job-failed"})
    assert (other.status_code, other.json()["title"]) == (422, "Idempotency-Key reused")
    assert send(client, "/api/v1/usage/rates", SUBSCRIPTION).status_code == 422
    assert send(api_client(ann), SUBSCRIPTIONS, SUBSCRIPTION).status_code == 201
    assert Subscription.objects.count() == 2
    bad = send(client, SUBSCRIPTIONS, SUBSCRIPTION, "x" * 256)
    assert (bad.status_code, list(bad.json()["errors"])) == (400, ["Idempotency-Key"])


@pytest.mark.django_db
def test_what_changes_postgresql_alone_frees_the_key_with_every_failure(
    root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = api_client(root)
    client.raise_request_exception = False
    assert send(client, SUBSCRIPTIONS, SUBSCRIPTION | {"event": "no"}).status_code == 400

    def fail_late(*given: Any) -> None:
        subscribe(*given)
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr("dashboard.notify.subscriptionapi.subscribe", fail_late)
        assert send(client, SUBSCRIPTIONS, SUBSCRIPTION).status_code == 500
    assert not IdempotentRequest.objects.exists()
    assert not Subscription.objects.exists()
    assert send(client, SUBSCRIPTIONS, SUBSCRIPTION).status_code == 201


@pytest.mark.parametrize(
    ("table", "path", "body", "want"),
    [
        ("usage_rate", "/api/v1/usage/rates", RATE, 201),
        ("usage_reportrun", RUNS, {"month": "2026-10"}, 202),
        ("usage_reportrun", RUNS, {"from": "2026-10-01", "to": "2026-10-02"}, 202),
    ],
)
@pytest.mark.django_db
def test_after_a_failure_of_postgresql_a_repetition_is_carried_out(
    root: User, table: str, path: str, body: dict[str, str], want: int
) -> None:
    client = api_client(root)
    client.raise_request_exception = False
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 100")
    with psycopg.connect(**connection_arguments(connection.settings_dict)) as other:
        other.execute(f"LOCK TABLE {table}")
        assert send(client, path, body).status_code == 503
    again = send(client, path, body)
    assert (again.status_code, "Idempotent-Replayed" in again.headers) == (want, False)
    assert Rate.objects.count() + ReportRun.objects.count() == 1


@pytest.mark.django_db
def test_what_failed_after_it_was_sent_keeps_the_key(
    root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = api_client(root)
    client.raise_request_exception = False
    with monkeypatch.context() as broken:
        broken.setattr("usage.reports.runs._send", lambda *_: 1 / 0)
        assert send(client, RUNS, {"month": "2026-10"}).status_code == 500
    again = send(client, RUNS, {"month": "2026-10"})
    assert (again.status_code, again.json()["type"][19:]) == (409, "outcome-unknown")
    assert "may have happened" in again.json()["detail"]
    assert "Retry-After" not in again.headers
    with monkeypatch.context() as broken:
        broken.setattr("usage.reports.runs._send", refuse)
        ReportRun.objects.all().delete()
        assert send(client, RUNS, {"month": "2026-10"}, "k2").status_code == 503
    assert send(client, RUNS, {"month": "2026-10"}, "k2").status_code == 202


def refuse(*_: object) -> None:
    ReportRun.objects.update(state=ReportRun.State.FAILED)
    raise BrokerAway("The task queue is unavailable.")


@pytest.mark.parametrize(
    ("state", "late", "want", "kind"),
    [
        (CLAIMED, False, 409, "request-in-progress"),
        (SENDING, False, 409, "request-in-progress"),
        (CLAIMED, True, 202, ""),
        (SENDING, True, 409, "outcome-unknown"),
    ],
)
@pytest.mark.django_db
def test_a_key_without_an_answer_is_in_progress_or_unknown_or_taken_over(
    root: User, state: str, late: bool, want: int, kind: str
) -> None:
    client, body = api_client(root), {"month": "2026-10"}
    send(client, RUNS, body)
    at = timezone.now() - (LONGEST if late else dt.timedelta())
    IdempotentRequest.objects.update(state=state, at=at, status=None)
    again = send(client, RUNS, body)
    assert (again.status_code, again.json().get("type", "")[19:]) == (want, kind)
    assert again.headers.get("Retry-After") == ("2" if kind == "request-in-progress" else None)
    if want == 202:
        assert send(client, RUNS, body).headers["Idempotent-Replayed"] == "true"


@pytest.mark.django_db
def test_a_row_of_a_release_without_states_is_read_as_that_release_meant_it(root: User) -> None:
    client = api_client(root)
    first = send(client, SUBSCRIPTIONS, SUBSCRIPTION).json() | {"secret": None}
    for status, late, want in ((201, False, 201), (None, False, 409), (None, True, 409)):
        at = timezone.now() - (LONGEST if late else dt.timedelta())
        rows = IdempotentRequest.objects.all()
        rows.update(status=status, at=at, user=None, state=SENDING)  # the column's own default
        again = send(client, SUBSCRIPTIONS, SUBSCRIPTION)
        assert again.status_code == want
        assert (again.json() == first) is (want == 201)
    assert again.json()["type"][19:] == "outcome-unknown"


@pytest.mark.django_db
def test_a_request_whose_key_was_taken_over_sends_nothing_more(root: User) -> None:
    """Its process was slow, not dead."""
    now = timezone.now()
    IdempotentRequest.objects.create(user=root, owner="root", key="k1", digest="", at=now - LONGEST)
    slow, second, third = (IdempotentRequest.objects.get() for _ in range(3))
    assert [second.take_over(now), third.take_over(now)] == [True, False]
    with pytest.raises(ClaimLostError):
        slow.note_sending()
    slow.give_up(is_refused=True)
    slow.keep(500, "", "")
    second.note_sending()
    assert IdempotentRequest.objects.get().state == SENDING


@pytest.mark.django_db
def test_a_key_that_is_freed_while_it_is_claimed_is_claimed_again(
    root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, faults = IdempotentRequest.objects.get_or_create, [IntegrityError()]

    def race(**given: Any) -> Any:
        """Do as Django if the row was there for the INSERT and is gone for the SELECT."""
        if faults:
            raise faults.pop()
        return claim(**given)

    monkeypatch.setattr(IdempotentRequest.objects, "get_or_create", race)
    assert send(api_client(root), SUBSCRIPTIONS, SUBSCRIPTION).status_code == 201
    faults += [IntegrityError()] * 9
    busy = send(api_client(root), SUBSCRIPTIONS, SUBSCRIPTION, "k2")
    assert (busy.status_code, busy.headers["Retry-After"]) == (409, "2")


@pytest.mark.django_db(transaction=True)
def test_equal_requests_at_the_same_time_get_one_answer(root: User) -> None:
    """The second waits for the transaction of the first."""

    def write() -> HttpResponse:
        try:
            return send(api_client(root), "/api/v1/usage/rates", RATE)
        finally:
            connection.close()

    def waiting() -> bool:
        found = other.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
        return found == (2,)

    arguments = connection_arguments(connection.settings_dict)
    with ThreadPoolExecutor(2) as threads, psycopg.connect(**arguments) as other:
        other.execute("LOCK TABLE usage_rate")
        both = [threads.submit(write) for _ in range(2)]
        wait_until(waiting)
        other.rollback()
        answers = [each.result() for each in both]
    assert [each.status_code for each in answers] == [201, 201]
    assert answers[0].content == answers[1].content
    assert sum("Idempotent-Replayed" in each.headers for each in answers) == 1
    assert Rate.objects.count() == 1


@pytest.mark.django_db
def test_answers_go_with_their_time_and_with_their_user(root: User) -> None:
    send(api_client(root), SUBSCRIPTIONS, SUBSCRIPTION)
    assert forget_keys.name in {each["task"] for each in app.conf.beat_schedule.values()}
    for age, count in ((KEPT - dt.timedelta(minutes=1), 1), (KEPT, 0)):
        IdempotentRequest.objects.update(at=timezone.now() - age)
        forget_keys()
        assert IdempotentRequest.objects.count() == count
    send(api_client(root), SUBSCRIPTIONS, SUBSCRIPTION)
    root.delete()
    assert not IdempotentRequest.objects.exists()


@pytest.mark.django_db
def test_a_key_is_forgotten_after_a_day(root: User, monkeypatch: pytest.MonkeyPatch) -> None:
    client, now = api_client(root), timezone.now()
    send(client, SUBSCRIPTIONS, SUBSCRIPTION)
    for late, count in ((KEPT - dt.timedelta(minutes=1), 1), (KEPT + dt.timedelta(minutes=1), 2)):
        monkeypatch.setattr(timezone, "now", lambda late=late: now + late)
        assert send(client, SUBSCRIPTIONS, SUBSCRIPTION).status_code == 201
        assert Subscription.objects.count() == count


@pytest.mark.parametrize("odd", [str(2**64), '"\\ud800"', '"\\u0000"', "1e999"])
@pytest.mark.django_db
def test_a_key_beside_a_body_of_odd_values_is_no_error(root: User, odd: str) -> None:
    client = api_client(root)
    for _ in range(2):
        answer = client.post(
            SUBSCRIPTIONS,
            f'{{"event": "job-ended", "channel": "webhook", "target": {odd}}}',
            content_type=JSON,
            headers={"Idempotency-Key": "k1"},
        )
        assert answer.status_code == 400, answer.content


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "body", "field"),
    [(SUBSCRIPTIONS, SUBSCRIPTION, "secret"), ("/api/v1/tokens", TOKEN, "token")],
)
def test_a_repetition_has_null_instead_of_a_secret_and_nothing_stores_it(
    root: User, path: str, body: Any, field: str
) -> None:
    client = api_client(root, "read write access")
    first, again = (send(client, path, body) for _ in range(2))
    assert (first.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
    assert first.json()[field]
    assert again.json() == first.json() | {field: None}
    assert first.json()[field] not in IdempotentRequest.objects.get().body


def test_each_field_that_is_shown_once_is_known_to_the_store_of_answers() -> None:
    declared, waiting = set(), [Serializer]
    while waiting:
        of = waiting.pop()
        waiting += of.__subclasses__()
        fields = getattr(of, "_declared_fields", {}).items()
        declared |= {name for name, each in fields if isinstance(each, SecretField)}
    assert declared == SECRETS
