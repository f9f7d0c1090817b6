"""Subscriptions on the page and in the API."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from dashboard.notify.events import EVENTS
from dashboard.notify.outbox import DEAD, QUEUED, deliver
from ipuhub.models import Notification, Subscription
from tests.builders.clients import api_client, browser
from tests.builders.notifications import PAGE, subscribe

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.receivers import HttpReceiver

pytestmark = pytest.mark.django_db
API = "/api/v1/subscriptions"
JSON = "application/json"


@pytest.fixture
def root() -> User:
    user: User = get_user_model().objects.create_user("root", is_staff=True)
    return user


def form(**changed: str) -> dict[str, str]:
    known = {"event": "job-ended", "channel": "webhook", "target": "https://chat.example/h"}
    return known | {"job_user": "ann"} | changed


def test_people_read_events_in_words(ann: User) -> None:
    subscribe(ann, "job-waiting", target="https://chat.example/h", minutes=30)
    browser(ann).post(PAGE, form())
    html = browser(ann).get(PAGE).content.decode()
    table = html.partition("Your subscriptions")[2]
    assert "A job waits longer than 30 minutes" in table
    assert "A job ended" in table
    audit = browser(ann).get("/audit/").content.decode()
    assert "event: none → A job ended" in audit
    for text in (table, audit):
        assert not re.search(r"job-(waiting|ended)", re.sub(r"<[^>]+>", "", text))


def test_a_user_subscribes_sees_the_secret_once_and_sends_a_test(
    ann: User, receiver: HttpReceiver
) -> None:
    client = browser(ann)
    html = client.post(PAGE, form(target=receiver.url)).content.decode()
    secret = re.search(r'aria-label="The secret" readonly value="([^"]{40,})"', html)
    assert secret
    again = client.get(PAGE).content.decode()
    assert secret[1] not in again
    assert receiver.url.replace("&", "&amp;") in again
    found = Subscription.objects.get()
    assert "A test is queued" in client.post(f"{PAGE}{found.pk}/test", follow=True).content.decode()
    deliver(timezone.now)
    ((_path, headers, body),) = receiver.got
    text = f"{headers['x-ipuhub-timestamp']}.".encode() + body
    want = hmac.new(secret[1].encode(), text, hashlib.sha256).hexdigest()
    assert headers["x-ipuhub-signature"] == f"sha256={want}"
    rows = api_client(ann).get("/api/v1/notifications?event=test").json()["results"]
    assert [(row["state"], row["owner"]) for row in rows] == [("sent", "ann")]
    assert "answered 204" in client.get(PAGE).content.decode()
    other = browser(get_user_model().objects.create_user("eve"))
    assert receiver.url not in other.get(PAGE).content.decode()
    assert api_client(get_user_model().objects.get(username="eve")).get(
        "/api/v1/notifications"
    ).json() == {"next": None, "results": []}
    client.post(f"{PAGE}{found.pk}/delete")
    assert not Subscription.objects.exists()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"target": "ftp://x.example"}, "must begin with https://"),
        ({"target": "https://me:pw@x.example/"}, "without blanks, user or password"),
        ({"target": "https://x.example/\x7f"}, "without blanks, user or password"),
        ({"target": "https://10.1.2.3/"}, "is an address inside"),
        ({"target": "https://[64:ff9b::10.1.2.3]/"}, "is an address inside"),
        ({"target": "http://[::1]/"}, "is an address inside"),
        ({"target": "http://8.8.8.8/"}, "must begin with https://"),
        ({"target": "https://[x"}, "not a URL"),
        ({"namespace": "team-b"}, "do not have access to this namespace"),
        ({"event": "controller-down"}, "Select a valid choice"),
        ({"event": "component-down"}, "Select a valid choice"),
        ({"event": "month-closed"}, "Select a valid choice"),
        ({"event": "job-waiting"}, "after how many minutes"),
        ({"channel": "mail", "target": "a@b.example"}, "Select a valid choice"),
    ],
)
def test_a_wrong_subscription_is_refused_in_words(
    ann: User, changed: dict[str, str], sentence: str
) -> None:
    answer = browser(ann).post(PAGE, form(**changed))
    assert answer.status_code == 400
    assert sentence in answer.content.decode()
    assert not Subscription.objects.exists()


def test_mail_stays_in_the_domains_of_the_settings(ann: User, settings: SettingsWrapper) -> None:
    settings.MAIL_HOST, settings.MAIL_DOMAINS = "mail.lab.example", ["lab.example"]
    for target, status in (("a@elsewhere.example", 400), ("a@lab.example", 302), ("a b@x", 400)):
        answer = browser(ann).post(PAGE, form(channel="mail", target=target))
        assert answer.status_code == status, target


def test_a_program_subscribes_pauses_resumes_and_removes(ann: User, receiver: HttpReceiver) -> None:
    client = api_client(ann, "read write")
    body = {"event": "job-waiting", "channel": "webhook", "target": receiver.url, "minutes": 30}
    made = client.post(API, body, content_type=JSON)
    assert made.status_code == 201, made.content
    found = Subscription.objects.get()
    one = f"{API}/{found.pk}"
    assert made.json()["secret"] == found.secret != ""
    assert (found.owner, found.event, found.minutes, found.job_user) == (ann, "job-waiting", 30, "")
    (listed,) = client.get(API).json()["results"]
    assert (
        listed == client.get(one).json() == {k: v for k, v in made.json().items() if k != "secret"}
    )
    for is_paused in (True, False):
        answer = client.patch(one, {"is_paused": is_paused}, content_type=JSON)
        assert (answer.status_code, answer.json()["is_paused"]) == (200, is_paused)
        for change in ("retry", "test"):
            sent = client.post(f"{one}/{change}", content_type=JSON)
            assert sent.status_code == (400 if is_paused else 202), sent.content
        assert Notification.objects.count() == (not is_paused)
    assert sent.json() == {"queued": 1}
    Notification.objects.update(state=DEAD, attempts=8)
    assert [client.post(f"{one}/retry", content_type=JSON).json() for _ in range(2)] == [
        {"queued": 1},
        {"queued": 0},
    ]
    assert Notification.objects.get().state == QUEUED
    since, found = found.since, Subscription.objects.get()
    assert found.since > since, "the pause is not told"
    assert client.patch(one, {"is_paused": "perhaps"}, content_type=JSON).status_code == 400
    assert client.delete(one).status_code == 204
    assert not Subscription.objects.exists()
    assert client.delete(one).status_code == 404


@pytest.mark.parametrize(
    ("changed", "field", "sentence"),
    [
        ({"target": "https://10.1.2.3/"}, "target", "is an address inside"),
        ({"namespace": "team-b"}, "namespace", "do not have access to this namespace"),
        ({"event": "controller-down"}, "event", "Select a valid choice"),
        ({"event": "component-down"}, "event", "Select a valid choice"),
        ({"event": "pigeons"}, "event", "is not a valid choice"),
        ({"event": "job-waiting"}, "minutes", "after how many minutes"),
        ({"minutes": 10**12}, "minutes", "less than or equal to 43200"),
        ({"job_user": ["ann"]}, "job_user", "Not a valid string"),
        ({"group": "a\x00b"}, "group", "Null characters are not allowed"),
        ({"target": None}, "target", "may not be null"),
    ],
)
def test_the_api_refuses_what_the_page_refuses(
    ann: User, changed: dict[str, Any], field: str, sentence: str
) -> None:
    answer = api_client(ann).post(API, form() | changed, content_type=JSON)
    assert answer.status_code == 400
    assert answer.json()["type"] == "urn:ipuhub:problem:invalid-value"
    assert sentence in answer.json()["errors"][field][0]
    assert not Subscription.objects.exists()


def test_an_administrator_subscribes_to_components(root: User) -> None:
    assert "A component is down" in browser(root).get(PAGE).content.decode()
    answer = api_client(root).post(API, form(event="component-down"), content_type=JSON)
    assert answer.status_code == 201, answer.content


def test_with_usage_off_nobody_subscribes_to_what_is_never_sent(
    root: User, ann: User, settings: SettingsWrapper
) -> None:
    settings.USAGE_ENABLED = False
    html = browser(ann).get(PAGE).content.decode()
    assert ("Usage is off (USAGE_ENABLED)" in html, 'name="event"' in html) == (True, False)
    for user, events in ((ann, EVENTS), (root, EVENTS.keys() - {"component-down"})):
        for event in events:
            assert browser(user).post(PAGE, form(event=event)).status_code == 400
            answer = api_client(user).post(API, form(event=event), content_type=JSON)
            assert "Usage is off (USAGE_ENABLED)" in answer.json()["errors"]["event"][0]
    assert not Subscription.objects.exists()


def test_with_usage_off_administrators_subscribe_to_components(
    root: User, settings: SettingsWrapper
) -> None:
    settings.USAGE_ENABLED = False
    html = browser(root).get(PAGE).content.decode()
    assert ("A component is down" in html, "A job ended" in html) == (True, False)
    answer = api_client(root).post(API, form(event="component-down"), content_type=JSON)
    assert answer.status_code == 201, answer.content
    assert "Send test" in browser(root).get(PAGE).content.decode()


def test_nobody_has_more_subscriptions_than_the_limit(ann: User) -> None:
    for number in range(50):
        subscribe(ann, target=f"https://chat.example/{number}")
    answer = api_client(ann).post(API, form(), content_type=JSON)
    assert answer.status_code == 400
    assert "You have 50 subscriptions." in answer.json()["detail"]
    assert "You have 50 subscriptions." in browser(ann).post(PAGE, form()).content.decode()
    assert Subscription.objects.count() == 50


def test_subscriptions_of_others_are_not_found_and_reading_tokens_change_nothing(ann: User) -> None:
    one = f"{API}/{subscribe(ann, target='https://chat.example/').pk}"
    root = api_client(get_user_model().objects.create_user("root", is_staff=True))
    reader = api_client(ann, "read")
    for client, status in ((root, 404), (reader, 403)):
        for change in ("test", "retry"):
            sent = client.post(f"{one}/{change}", content_type=JSON)
            assert sent.status_code == status
        assert client.patch(one, {"is_paused": True}, content_type=JSON).status_code == status
        assert client.delete(one).status_code == status
    assert reader.post(API, form(), content_type=JSON).json()["scope"] == "write"
    assert root.get(API).json()["results"] == []
    assert not Subscription.objects.get().is_paused
    assert not Notification.objects.exists()
