"""Notifications, from the fact in PostgreSQL to a receiver on a real socket."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import re
import socket
import threading
from email import message_from_string
from functools import partial
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.utils import timezone

from dashboard.notify import webhook
from dashboard.notify.events import collect
from dashboard.notify.outbox import claim, deliver
from dashboard.notify.webhook import Address, Unsent, parse_url, resolve
from ipuhub.models import Notification, Subscription
from partitions.models import CapacityChange
from tests.builders import jobhistory
from tests.builders.clients import browser, tool
from tests.builders.roles import grant
from tests.fakes.freeport import free_port
from tests.fakes.receivers import http_receiver, smtp_receiver
from usage.models import MonthReport, ReportState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.receivers import HttpReceiver

pytestmark = pytest.mark.django_db
PAGE = "/account/notifications/"
MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def receiver(settings: SettingsWrapper) -> Iterator[HttpReceiver]:
    settings.NOTIFY_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.PUBLIC_URL = "https://ipuhub.example/"
    with http_receiver() as found:
        yield found


@pytest.fixture
def ann() -> User:
    user = get_user_model().objects.create_user("ann")
    grant(user, "viewer", "team-a")
    return user


def subscribe(user: User, event: str = "job-ended", **fields: Any) -> Subscription:
    past = timezone.now() - 60 * MINUTE
    values = {"channel": "webhook", "secret": "s3cret", "created_at": past, "since": past} | fields
    return Subscription.objects.create(owner=user, event=event, **values)


def ended(name: str = "train", namespace: str = "team-a", **fields: Any) -> None:
    fields = {"status": "Failed", "completed_at": timezone.now(), "user": "ann"} | fields
    jobhistory.job(name, namespace, **fields)


def run() -> None:
    collect(timezone.now())
    deliver(timezone.now)


def test_the_end_of_a_job_is_sent_once_and_signed(ann: User, receiver: HttpReceiver) -> None:
    subscribe(ann, target=receiver.url)
    ended()
    ended("yesterday", completed_at=timezone.now() - 90 * MINUTE)
    run()
    run()
    ((path, headers, body),) = receiver.got
    assert path == "/hook?x=1"
    told = json.loads(body)
    assert told["event"] == headers["x-ipuhub-event"] == "job-ended"
    assert told["subject"] == "Job team-a/train ended: Failed"
    assert told["job"]["uid"] == "uid-team-a-train"
    assert told["url"] == "https://ipuhub.example/jobs/uid-team-a-train/"
    text = f"{headers['x-ipuhub-timestamp']}.".encode() + body
    want = hmac.new(b"s3cret", text, hashlib.sha256).hexdigest()
    assert headers["x-ipuhub-signature"] == f"sha256={want}"
    row = Notification.objects.get()
    assert (row.state, row.attempts, row.message) == ("sent", 1, "answered 204")
    assert headers["x-ipuhub-id"] == str(row.pk)


@pytest.mark.parametrize(
    ("narrowed", "want"),
    [
        ({}, {"team-a/mine", "team-a/other"}),
        ({"job_user": "ann"}, {"team-a/mine"}),
        ({"group": "ml"}, {"team-a/other"}),
        ({"namespace": "team-b"}, set()),
    ],
)
def test_a_user_is_told_of_jobs_that_he_means_and_may_see(
    ann: User, receiver: HttpReceiver, narrowed: dict[str, str], want: set[str]
) -> None:
    subscribe(ann, target=receiver.url, **narrowed)
    ended("mine")
    ended("other", user="bob", group="ml")
    ended("foreign", "team-b")
    run()
    jobs = [json.loads(body)["job"] for _path, _headers, body in receiver.got]
    assert {f"{job['namespace']}/{job['name']}" for job in jobs} == want


def test_a_job_that_waits_too_long_is_told_once(ann: User, receiver: HttpReceiver) -> None:
    subscribe(ann, "job-waiting", target=receiver.url, minutes=30)
    now = timezone.now()
    jobhistory.job("long", status="Pending", created_at=now - 31 * MINUTE)
    jobhistory.job("short", status="Pending", created_at=now - 29 * MINUTE)
    jobhistory.job("runs", status="Running", created_at=now - 31 * MINUTE)
    run()
    run()
    assert [json.loads(body)["job"]["name"] for _, _, body in receiver.got] == ["long"]


def test_controllers_are_for_administrators_and_months_for_accountants(
    ann: User, receiver: HttpReceiver
) -> None:
    root = get_user_model().objects.create_user("root", is_staff=True)
    carol = get_user_model().objects.create_user("carol")
    grant(carol, "accountant")
    for user in (ann, root, carol):
        for event in ("controller-down", "month-closed"):
            subscribe(user, event, target=f"{receiver.url}&{user}")
    now = timezone.now()
    CapacityChange.objects.create(controller="pod1:8090", at=now, total=64, free=0, reachable=False)
    CapacityChange.objects.create(controller="pod2:8090", at=now, total=64, free=64)
    MonthReport.objects.create(
        month="2026-10",
        version=1,
        state=ReportState.CLOSED,
        zone="UTC",
        first=now,
        end=now,
        generated_at=now,
        lifetimes=0,
    )
    run()
    told = {
        (path.rpartition("&")[2], json.loads(body)["subject"]) for path, _, body in receiver.got
    }
    down, closed = "V-IPU controller pod1:8090 does not answer", "The month 2026-10 was closed"
    assert told == {("root", down), ("root", closed), ("carol", closed)}


def test_a_receiver_that_is_away_is_tried_again_later_and_at_last_given_up(
    ann: User, receiver: HttpReceiver, settings: SettingsWrapper
) -> None:
    settings.NOTIFY_ATTEMPTS = 4
    found = subscribe(ann, target=f"http://127.0.0.1:{free_port()}/")
    ended()
    now = timezone.now()
    collect(now)
    waits, at = [], now
    while (row := Notification.objects.get()).state == "queued":
        at = row.next_at
        deliver(partial(dt.datetime.__sub__, at, dt.timedelta(milliseconds=1)))
        assert Notification.objects.get().attempts == row.attempts, "not before its time"
        deliver(partial(dt.datetime.__add__, at, dt.timedelta()))
        waits.append((Notification.objects.get().next_at - at).total_seconds())
    assert waits == [30, 60, 120, 240]
    assert (row.state, row.attempts) == ("dead", 4)
    assert "does not answer" in row.message
    Subscription.objects.update(target=receiver.url)
    deliver(lambda: at + 600 * MINUTE)
    assert receiver.got == []
    assert "Retry 1 failed" in browser(ann).get(PAGE).content.decode()
    shown = browser(ann).post(f"{PAGE}{found.pk}/retry", follow=True).content.decode()
    assert "1 failed notification queued again." in shown
    deliver(timezone.now)
    assert len(receiver.got) == 1


@pytest.mark.parametrize(("status", "state"), [(500, "queued"), (410, "dead"), (302, "dead")])
def test_an_answer_that_is_no_success_is_recorded_and_no_redirect_followed(
    ann: User, receiver: HttpReceiver, status: int, state: str
) -> None:
    with http_receiver() as elsewhere:
        receiver.status, receiver.location = status, elsewhere.url
        subscribe(ann, target=receiver.url)
        ended()
        run()
        assert elsewhere.got == []
    row = Notification.objects.get()
    assert (row.state, str(status) in row.message) == (state, True)


@pytest.mark.django_db(transaction=True)
def test_of_two_workers_one_sends(ann: User, receiver: HttpReceiver) -> None:
    subscribe(ann, target=receiver.url)
    for number in range(10):
        ended(f"job-{number}")
    both = threading.Barrier(2)

    def work() -> None:
        both.wait(10)
        try:
            run()
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    names = [json.loads(body)["job"]["name"] for _, _, body in receiver.got]
    assert sorted(names) == [f"job-{number}" for number in range(10)]


def test_the_claim_of_a_worker_that_died_runs_out(ann: User, receiver: HttpReceiver) -> None:
    subscribe(ann, target=receiver.url)
    ended()
    now = timezone.now()
    collect(now)
    assert claim(now) is not None
    assert claim(now + dt.timedelta(seconds=59)) is None
    deliver(lambda: now + dt.timedelta(seconds=61))
    assert len(receiver.got) == 1
    assert Notification.objects.get().attempts == 2


@pytest.mark.parametrize(("damage", "kind"), [("header", "ValueError"), ("channel", "KeyError")])
def test_a_row_that_cannot_be_sent_holds_nobody_back_and_is_given_up(
    ann: User, receiver: HttpReceiver, settings: SettingsWrapper, damage: str, kind: str
) -> None:
    settings.NOTIFY_ATTEMPTS = 2
    bad = subscribe(ann, target=receiver.url, job_user="ann")
    subscribe(ann, target=receiver.url, job_user="bob")
    ended("first")
    ended("second", user="bob")
    at = timezone.now()
    collect(at)
    if damage == "header":
        Notification.objects.filter(subscription=bad).update(event="job-ended\r\nX-Odd: 1")
    else:
        Subscription.objects.filter(pk=bad.pk).update(channel="pigeon")
    assert deliver(lambda: at) == 1
    assert [json.loads(body)["job"]["name"] for _, _, body in receiver.got] == ["second"]
    row = Notification.objects.get(subscription=bad)
    assert (row.state, row.attempts, row.claimed_until) == ("queued", 1, None)
    assert row.next_at == at + MINUTE / 2
    deliver(lambda: at + MINUTE)
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("dead", 2)
    assert deliver(lambda: at + 600 * MINUTE) == 0
    shown = browser(ann).get(PAGE).content.decode()
    assert f"IPUHub failed to send this ({kind})" in shown
    assert len(receiver.got) == 1


def test_a_row_at_which_workers_die_is_given_up(
    ann: User, receiver: HttpReceiver, settings: SettingsWrapper
) -> None:
    settings.NOTIFY_ATTEMPTS = 2
    subscribe(ann, target=receiver.url)
    ended()
    now = timezone.now()
    collect(now)
    for minutes in (0, 2):
        assert claim(now + minutes * MINUTE) is not None
    deliver(lambda: now + 600 * MINUTE)
    row = Notification.objects.get()
    assert (row.state, row.attempts, row.claimed_until) == ("dead", 2, None)
    assert row.message == "The worker stopped during the last attempt."
    assert receiver.got == []


def test_an_answer_of_odd_bytes_holds_nobody_back(ann: User, receiver: HttpReceiver) -> None:
    with http_receiver() as odd:
        odd.raw = b"NO\x00\x1b[2J\r\n\r\n"
        subscribe(ann, target=odd.url, job_user="ann")
        subscribe(ann, target=receiver.url)
        ended()
        run()
    assert (len(odd.got), len(receiver.got)) == (1, 1)
    row = Notification.objects.get(subscription__job_user="ann")
    assert row.state == "queued"
    assert "does not answer: NO??[2J" in row.message


def test_an_odd_subscription_holds_nobody_back(ann: User, receiver: HttpReceiver) -> None:
    subscribe(ann, "job-waiting", target=receiver.url, minutes=2**31 - 1)
    subscribe(ann, target=receiver.url)
    ended()
    run()
    assert len(receiver.got) == 1


def test_a_paused_subscription_is_told_nothing_of_its_pause(
    ann: User, receiver: HttpReceiver
) -> None:
    found = subscribe(ann, target=receiver.url)
    client = browser(ann)
    client.post(f"{PAGE}{found.pk}/pause")
    ended("in-between")
    run()
    client.post(f"{PAGE}{found.pk}/resume")
    ended("after", completed_at=timezone.now() + MINUTE)
    run()
    assert [json.loads(body)["job"]["name"] for _, _, body in receiver.got] == ["after"]


def test_mail_goes_through_the_server_of_the_settings(ann: User, settings: SettingsWrapper) -> None:
    with smtp_receiver() as server:
        settings.MAIL_HOST, settings.MAIL_PORT, settings.MAIL_TLS = "127.0.0.1", server.port, "off"
        settings.MAIL_FROM, settings.PUBLIC_URL = "ipuhub@lab.example", "https://hub.example"
        subscribe(ann, channel="mail", target="ann@lab.example")
        server.refusal = "450 later"
        ended()
        run()
        assert Notification.objects.get().state == "queued"
        server.refusal = ""
        deliver(lambda: timezone.now() + MINUTE)
        ((sender, to, text),) = server.got
    mail = message_from_string(text)
    assert (sender, to) == ("ipuhub@lab.example", ["ann@lab.example"])
    assert mail["Subject"] == "[IPUHub] Job team-a/train ended: Failed"
    assert "https://hub.example/jobs/uid-team-a-train/" in str(mail.get_payload())


@pytest.mark.parametrize(("refusal", "state"), [("450 later", "queued"), ("550 who", "dead")])
def test_a_mail_server_that_does_not_know_the_recipient_is_not_asked_again(
    ann: User, settings: SettingsWrapper, refusal: str, state: str
) -> None:
    with smtp_receiver() as server:
        settings.MAIL_HOST, settings.MAIL_PORT, settings.MAIL_TLS = "127.0.0.1", server.port, "off"
        settings.MAIL_FROM = "ipuhub@lab.example"
        server.refusal = refusal
        subscribe(ann, channel="mail", target="ann@lab.example")
        ended()
        run()
    row = Notification.objects.get()
    assert row.state == state
    assert row.message == f"The mail server refused ann@lab.example: {refusal}."


def test_a_subject_of_several_lines_is_mailed_as_one(ann: User, settings: SettingsWrapper) -> None:
    with smtp_receiver() as server:
        settings.MAIL_HOST, settings.MAIL_PORT, settings.MAIL_TLS = "127.0.0.1", server.port, "off"
        settings.MAIL_FROM = "ipuhub@lab.example"
        subscribe(ann, channel="mail", target="ann@lab.example")
        ended("two\r\nBcc: eve@x.example")
        run()
        ((_sender, to, text),) = server.got
    mail = message_from_string(text)
    assert mail["Subject"] == "[IPUHub] Job team-a/two Bcc: eve@x.example ended: Failed"
    assert (to, mail["Bcc"]) == (["ann@lab.example"], None)


@pytest.mark.parametrize(
    ("tls", "why"),
    [("tls", "WRONG_VERSION_NUMBER"), ("starttls", "STARTTLS extension not supported")],
)
def test_a_mail_server_without_tls_gets_no_mail(
    ann: User, settings: SettingsWrapper, tls: str, why: str
) -> None:
    with smtp_receiver() as server:
        settings.MAIL_HOST, settings.MAIL_PORT, settings.MAIL_TLS = "127.0.0.1", server.port, tls
        settings.MAIL_FROM = "ipuhub@lab.example"
        subscribe(ann, channel="mail", target="ann@lab.example")
        ended()
        run()
        assert server.got == []
    row = Notification.objects.get()
    assert (row.state, why in row.message) == ("queued", True)


def form(**changed: str) -> dict[str, str]:
    known = {"event": "job-ended", "channel": "webhook", "target": "https://chat.example/h"}
    return known | {"job_user": "ann"} | changed


def test_a_user_subscribes_sees_the_secret_once_and_sends_a_test(
    ann: User, receiver: HttpReceiver
) -> None:
    client = browser(ann)
    shown = client.post(PAGE, form(target=receiver.url)).content.decode()
    secret = re.search(r'aria-label="The secret" readonly value="([^"]{40,})"', shown)
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
    rows = tool(ann).get("/api/v1/notifications?event=test").json()["results"]
    assert [(row["state"], row["owner"]) for row in rows] == [("sent", "ann")]
    assert "answered 204" in client.get(PAGE).content.decode()
    other = browser(get_user_model().objects.create_user("eve"))
    assert receiver.url not in other.get(PAGE).content.decode()
    assert tool(get_user_model().objects.get(username="eve")).get(
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


@pytest.mark.parametrize(
    "ip",
    [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "::1",
        "fd00::1",
        "fec0::1",
        "::10.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:0:10.0.0.1",
        "64:ff9b::a00:1",
        "64:ff9b:1::a00:1",
        "2002:a00:1::",
        "2001:0:a00:1::",
    ],
)
def test_a_name_that_leads_inside_is_refused_when_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, ip: str
) -> None:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    public = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 443))
    inside = (family, socket.SOCK_STREAM, 6, "", (ip, 443))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [public, inside])
    address = Address("https", "rebound.example", 443, "/")
    with pytest.raises(Unsent, match="is an address inside"):
        resolve(address, [])
    assert resolve(address, [ip_network("0.0.0.0/0"), ip_network("::/0")]) == "93.184.216.34"


@pytest.mark.parametrize("ip", ["2606:4700::1", "64:ff9b::8.8.8.8", "2002:808:808::1", "8.8.8.8"])
def test_a_public_address_is_taken_also_behind_a_translator(ip: str) -> None:
    address = Address("https", ip, 443, "/")
    webhook.check_literal(address, [])


def test_a_translator_inside_is_allowed_by_either_network() -> None:
    address = Address("https", "64:ff9b::a00:1", 443, "/")
    for network in ("10.0.0.0/8", "64:ff9b::/96"):
        webhook.check_literal(address, [ip_network(network)])


def test_a_receiver_that_dribbles_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, settings: SettingsWrapper
) -> None:
    monkeypatch.setattr(webhook, "WHOLE_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def dribble() -> None:
            taken, _ = server.accept()
            with taken:
                while not stop.wait(0.05):
                    try:
                        taken.sendall(b"H")
                    except OSError:
                        return

        thread = threading.Thread(target=dribble)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        with pytest.raises(Unsent):
            webhook.post(url, b"{}", {}, [ip_network("127.0.0.0/8")])
        stop.set()
        thread.join(10)


def test_parts_of_a_url() -> None:
    assert parse_url("https://x.example") == Address("https", "x.example", 443, "/")
    assert parse_url("http://x.example:8080/a?b=c#d") == Address(
        "http", "x.example", 8080, "/a?b=c"
    )


API = "/api/v1/subscriptions"
JSON = "application/json"


def test_a_program_subscribes_pauses_resumes_and_removes(ann: User, receiver: HttpReceiver) -> None:
    client = tool(ann, "read write")
    asked = {"event": "job-waiting", "channel": "webhook", "target": receiver.url, "minutes": 30}
    made = client.post(API, asked, content_type=JSON)
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
    answer = tool(ann).post(API, form() | changed, content_type=JSON)
    assert answer.status_code == 400
    assert answer.json()["type"] == "urn:ipuhub:problem:invalid-value"
    assert sentence in answer.json()["errors"][field][0]
    assert not Subscription.objects.exists()


def test_nobody_has_more_subscriptions_than_the_limit(ann: User) -> None:
    for number in range(50):
        subscribe(ann, target=f"https://chat.example/{number}")
    answer = tool(ann).post(API, form(), content_type=JSON)
    assert answer.status_code == 400
    assert "You have 50 subscriptions." in answer.json()["detail"]
    assert "You have 50 subscriptions." in browser(ann).post(PAGE, form()).content.decode()
    assert Subscription.objects.count() == 50


def test_subscriptions_of_others_are_not_found_and_reading_tokens_change_nothing(ann: User) -> None:
    one = f"{API}/{subscribe(ann, target='https://chat.example/').pk}"
    root = tool(get_user_model().objects.create_user("root", is_staff=True))
    reader = tool(ann, "read")
    for client, status in ((root, 404), (reader, 403)):
        assert client.patch(one, {"is_paused": True}, content_type=JSON).status_code == status
        assert client.delete(one).status_code == status
    assert reader.post(API, form(), content_type=JSON).json()["scope"] == "write"
    assert root.get(API).json()["results"] == []
    assert not Subscription.objects.get().is_paused
