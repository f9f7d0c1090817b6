"""Every URL of the URL table, called by every kind of user: status and visible content."""

from __future__ import annotations

from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dashboard.notify.events import Fact, queue
from ipuhub.api.auth import make_token
from ipuhub.models import Subscription
from tests.builders import jobhistory, rates
from tests.builders.clients import api_client, browser
from tests.builders.roles import grant
from tests.fakes.emptytables import empty_tables
from tests.integration.web.addresses import EXAMPLES, FORMS, LIKE, named_addresses
from usage.models import ReportRun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.auth.models import User
    from django.http import HttpResponseBase
    from pytest_django import DjangoDbBlocker

    from tests.integration.web.addresses import Example

pytestmark = pytest.mark.django_db
Browsers: TypeAlias = "dict[str, tuple[Client, str]]"
_SECRET: Final = "secret-plan"
_POLLED: Final = {"HX-Request": "true"}


@pytest.fixture(scope="module")
def users(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[dict[str, User]]:
    """Make the callers: a stranger, users of another and of the job's namespace, and each role.

    They are committed once for all tests, each of which rolls back what its callers change.
    """
    with django_db_blocker.unblock():
        yield _users()
        empty_tables(connection)


@pytest.fixture(scope="module")
def keys(users: dict[str, User], django_db_blocker: DjangoDbBlocker) -> dict[str, int]:
    """Team-a's job with all that is recorded of it, and the keys of other rows."""
    with django_db_blocker.unblock():
        return _keys(users)


@pytest.fixture(scope="module")
def browsers(users: dict[str, User], django_db_blocker: DjangoDbBlocker) -> Browsers:
    """A browser of each user, with the cookies of its session: to sign in, and to make a client,
    takes as long as most pages do."""
    with django_db_blocker.unblock():
        made = {name: browser(user) for name, user in users.items()}
    return {name: (client, client.cookies.output(header="")) for name, client in made.items()}


@pytest.fixture(scope="module")
def tools(users: dict[str, User], django_db_blocker: DjangoDbBlocker) -> dict[str, Client]:
    """A program of each user."""
    with django_db_blocker.unblock():
        return {name: api_client(user) for name, user in users.items()}


def _users() -> dict[str, User]:
    make = get_user_model().objects.create_user
    names = ("stranger", "other", "owner", "accountant", *LIKE)
    found = {name: make(name) for name in names} | {"admin": make("admin", is_staff=True)}
    grant(found["accountant"], "accountant")
    grant(found["other"], "operator", "team-b")
    grant(found["owner"], "operator", "team-a")
    grant(found["viewer"], "viewer", "team-a")
    grant(found["reader"], "viewer")
    grant(found["steward"], "admin", "team-a")
    grant(found["bookkeeper"], "accountant", "team-a")
    return found


def _keys(users: dict[str, User]) -> dict[str, int]:
    job = jobhistory.job("secret-plan")
    jobhistory.pod(job)
    jobhistory.partition(job)
    jobhistory.attempt(job)
    now = timezone.now()
    run = ReportRun.objects.create(requested_at=now, requested_by="carol")
    token, _text = make_token(users["owner"], "mine", now)
    subscription = Subscription.objects.create(
        owner=users["owner"], event="job-ended", channel="mail", created_at=now, since=now
    )
    queue(subscription, [Fact("k", now, "Job team-a/secret-plan ended")], now)
    found = {"subscription": subscription.pk}
    return found | {"token": token.pk, "run": run.pk, "rate": rates.store_rate("ipu", "1").pk}


def test_every_address_has_an_example() -> None:
    assert {name for name, _pattern in named_addresses()} == set(EXAMPLES)


@pytest.mark.parametrize(
    ("name", "example"),
    [*EXAMPLES.items(), *FORMS.items()],
    ids=[*EXAMPLES, *(f"{name} (form)" for name in FORMS)],
)
def test_every_caller_gets_what_he_may(
    name: str,
    example: Example,
    browsers: Browsers,
    tools: dict[str, Client],
    keys: dict[str, int],
) -> None:
    address = _address(name, example, keys)
    is_api = address.startswith(("/api/", "/report/")) and not example.is_page
    by_token = is_api or example.sends_token
    for caller in ("nobody", *browsers):
        want = example.answer_to(caller)
        if caller == "nobody":
            client = Client()
        elif by_token:
            client = tools[caller]
        else:
            client, cookies = browsers[caller]
            client.cookies = SimpleCookie(cookies)  # those from before any test
        if example.answers.nobody == 302 and example.form is None:  # a page may be polled, too
            _call(client, address, example, 401 if caller == "nobody" else want, _POLLED)
        for query in example.queries:
            url = f"{address}{query}"
            text = _call(client, url, example, want)
            if want == 200 and not example.tells_to(caller):
                assert _SECRET not in text, f"{caller} reads of team-a's job in {url}"


def _address(name: str, example: Example, keys: dict[str, int]) -> str:
    given = {
        key: keys[value.strip("{}")] if str(value).startswith("{") else value
        for key, value in example.arguments.items()
    }
    return reverse(name, kwargs=given)


def _call(
    client: Client,
    address: str,
    example: Example,
    want: int,
    headers: dict[str, str] | None = None,
) -> str:
    if example.form is None:
        answer = client.get(address, headers=headers)
    elif address.startswith("/api/"):
        answer = client.post(address, example.form, content_type="application/json")
    else:
        answer = client.post(address, example.form)
    text = _text(answer)
    assert answer.status_code == want, f"{address}: {text[:500]}"
    assert _is_kept_private(answer), f"{address}: {dict(answer.headers)}"
    return text


def _is_kept_private(answer: HttpResponseBase) -> bool:
    """Return whether no cache between us and a browser gives this answer to anybody else."""
    rules = {rule.strip() for rule in answer["Cache-Control"].split(",")}
    if "no-store" in rules:
        return True
    by = {name.strip() for name in answer["Vary"].split(",")}
    return {"private", "no-cache"} <= rules and {"Cookie", "Authorization"} <= by


def _text(answer: HttpResponseBase) -> str:
    body = b"".join(answer) if answer.streaming else answer.content
    return body.decode(errors="replace")
