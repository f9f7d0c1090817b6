"""Notifications that do not arrive at once: retries, several workers, odd rows, mail servers."""

from __future__ import annotations

import datetime as dt
import json
import socket
import threading
from contextlib import suppress
from email import message_from_string
from functools import partial
from typing import TYPE_CHECKING

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from dashboard.notify.events import collect
from dashboard.notify.metrics import Count, NotificationCollector, count
from dashboard.notify.outbox import claim, deliver
from ipuhub.models import Notification, NotificationCount, Subscription
from ipuhub.web import readings
from tests.builders.clients import browser
from tests.builders.notifications import (
    MINUTE,
    PAGE,
    deliver_all,
    delivery_counts,
    store_ended_job,
    subscribe,
)
from tests.fakes.freeport import free_port
from tests.fakes.receivers import http_receiver, smtp_receiver

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.receivers import HttpReceiver

pytestmark = pytest.mark.django_db


def test_a_receiver_that_is_away_is_tried_again_later_and_at_last_given_up(
    ann: User, receiver: HttpReceiver, settings: SettingsWrapper
) -> None:
    settings.NOTIFY_ATTEMPTS = 4
    found = subscribe(ann, target=f"http://127.0.0.1:{free_port()}/")
    store_ended_job()
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
    html = browser(ann).post(f"{PAGE}{found.pk}/retry", follow=True).content.decode()
    assert "1 failed notification queued again." in html
    deliver(timezone.now)
    assert len(receiver.got) == 1
    assert delivery_counts() == {"sent": 1, "retried": 3, "dead": 1}


@pytest.mark.parametrize(("status", "state"), [(500, "queued"), (410, "dead"), (302, "dead")])
def test_an_answer_that_is_no_success_is_recorded_and_no_redirect_followed(
    ann: User, receiver: HttpReceiver, status: int, state: str
) -> None:
    with http_receiver() as elsewhere:
        receiver.status, receiver.location = status, elsewhere.url
        subscribe(ann, target=receiver.url)
        store_ended_job()
        deliver_all()
        assert elsewhere.got == []
    row = Notification.objects.get()
    assert (row.state, str(status) in row.message) == (state, True)


@pytest.mark.django_db(transaction=True)
def test_of_two_workers_one_sends(ann: User, receiver: HttpReceiver) -> None:
    subscribe(ann, target=receiver.url)
    for number in range(10):
        store_ended_job(f"job-{number}")
    both = threading.Barrier(2)

    def work() -> None:
        both.wait(10)
        try:
            deliver_all()
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
    store_ended_job()
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
    store_ended_job("first")
    store_ended_job("second", user="bob")
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
    html = browser(ann).get(PAGE).content.decode()
    assert f"IPUHub failed to send this ({kind})" in html
    assert len(receiver.got) == 1
    assert delivery_counts() == {"sent": 1, "retried": 1, "dead": 1, "send": 2}


def test_a_row_at_which_workers_die_is_given_up(
    ann: User, receiver: HttpReceiver, settings: SettingsWrapper
) -> None:
    settings.NOTIFY_ATTEMPTS = 2
    subscribe(ann, target=receiver.url)
    store_ended_job()
    now = timezone.now()
    collect(now)
    for minutes in (0, 2):
        assert claim(now + minutes * MINUTE) is not None
    deliver(lambda: now + 600 * MINUTE)
    row = Notification.objects.get()
    assert (row.state, row.attempts, row.claimed_until) == ("dead", 2, None)
    assert row.message == "The worker stopped during the last attempt."
    assert receiver.got == []
    assert delivery_counts() == {"dead": 1}


def test_an_answer_of_odd_bytes_holds_nobody_back(ann: User, receiver: HttpReceiver) -> None:
    with http_receiver() as odd:
        odd.raw = b"NO\x00\x1b[2J\r\n\r\n"
        subscribe(ann, target=odd.url, job_user="ann")
        subscribe(ann, target=receiver.url)
        store_ended_job()
        deliver_all()
    assert (len(odd.got), len(receiver.got)) == (1, 1)
    row = Notification.objects.get(subscription__job_user="ann")
    assert row.state == "queued"
    assert "does not answer: NO??[2J" in row.message


def test_an_odd_subscription_holds_nobody_back(ann: User, receiver: HttpReceiver) -> None:
    subscribe(ann, "job-waiting", target=receiver.url, minutes=2**31 - 1)
    subscribe(ann, target=receiver.url)
    store_ended_job()
    deliver_all()
    assert len(receiver.got) == 1
    assert delivery_counts() == {"sent": 1, "collect": 1}


def test_without_postgresql_the_last_counts_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OperationalError

    def totals(collector: NotificationCollector) -> list[float]:
        monkeypatch.setattr(readings._SILENCE, "until", 0.0)
        return [each.value for family in collector.collect() for each in family.samples]

    count(Count.SENT, 2)
    ran, new = NotificationCollector(), NotificationCollector()
    assert totals(ran) == [2, 0, 0, 0, 0]
    with monkeypatch.context() as away:
        away.setattr(NotificationCount.objects, "values_list", fail)
        assert (totals(ran), totals(new)) == ([2, 0, 0, 0, 0], [])
    assert totals(new) == [2, 0, 0, 0, 0]


def test_mail_goes_through_the_server_of_the_settings(ann: User, settings: SettingsWrapper) -> None:
    with smtp_receiver() as server:
        settings.MAIL_HOST, settings.MAIL_PORT, settings.MAIL_TLS = "127.0.0.1", server.port, "off"
        settings.MAIL_FROM, settings.PUBLIC_URL = "ipuhub@lab.example", "https://hub.example"
        subscribe(ann, channel="mail", target="ann@lab.example")
        server.refusal = "450 later"
        store_ended_job()
        deliver_all()
        assert Notification.objects.get().state == "queued"
        server.refusal = ""
        deliver(lambda: timezone.now() + MINUTE)
        ((sender, to, text),) = server.got
        # As after a worker that died before it could note the answer.
        Notification.objects.update(state="queued", next_at=timezone.now())
        deliver(lambda: timezone.now() + 2 * MINUTE)
        again = message_from_string(server.got[1][2])
    mail = message_from_string(text)
    assert (sender, to) == ("ipuhub@lab.example", ["ann@lab.example"])
    assert mail["Subject"] == "[IPUHub] Job team-a/train ended: Failed"
    assert str(mail["Message-ID"]).endswith("@lab.example>")
    assert mail["Message-ID"] == again["Message-ID"], "so that nobody reads it twice"
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
        store_ended_job()
        deliver_all()
    row = Notification.objects.get()
    assert row.state == state
    assert row.message == f"The mail server refused ann@lab.example: {refusal}."


def test_a_subject_of_several_lines_is_mailed_as_one(ann: User, settings: SettingsWrapper) -> None:
    with smtp_receiver() as server:
        settings.MAIL_HOST, settings.MAIL_PORT, settings.MAIL_TLS = "127.0.0.1", server.port, "off"
        settings.MAIL_FROM = "ipuhub@lab.example"
        subscribe(ann, channel="mail", target="ann@lab.example")
        store_ended_job("two\r\nBcc: eve@x.example")
        deliver_all()
        ((_sender, to, text),) = server.got
    mail = message_from_string(text)
    assert mail["Subject"] == "[IPUHub] Job team-a/two Bcc: eve@x.example ended: Failed"
    assert (to, mail["Bcc"]) == (["ann@lab.example"], None)


@pytest.mark.parametrize(
    ("tls", "problem"),
    [("tls", "WRONG_VERSION_NUMBER"), ("starttls", "STARTTLS extension not supported")],
)
def test_a_mail_server_without_tls_gets_no_mail(
    ann: User, settings: SettingsWrapper, tls: str, problem: str
) -> None:
    with smtp_receiver() as server:
        settings.MAIL_HOST, settings.MAIL_PORT, settings.MAIL_TLS = "127.0.0.1", server.port, tls
        settings.MAIL_FROM = "ipuhub@lab.example"
        subscribe(ann, channel="mail", target="ann@lab.example")
        store_ended_job()
        deliver_all()
        assert server.got == []
    row = Notification.objects.get()
    assert (row.state, problem in row.message) == ("queued", True)


def chatter(server: socket.socket, stop: threading.Event) -> None:
    """Greet one client line by line, without an end."""
    channel, _ = server.accept()
    with channel, suppress(OSError):
        while not stop.is_set():
            channel.sendall(b"220-be patient\r\n")


def test_a_mail_server_that_talks_without_an_end_is_cut_off(
    ann: User, settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.notify.mail.MAIL_SECONDS", 0.3)
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=chatter, args=(server, stop))
        thread.start()
        late = threading.Timer(10, stop.set)  # the server ends, so that the test does
        late.start()
        settings.MAIL_HOST, settings.MAIL_PORT = server.getsockname()
        settings.MAIL_TLS, settings.MAIL_FROM = "off", "ipuhub@lab.example"
        subscribe(ann, channel="mail", target="ann@lab.example")
        store_ended_job()
        deliver_all()
        assert not stop.is_set()
        late.cancel()
        stop.set()
        thread.join(10)
    row = Notification.objects.get()
    assert (row.state, row.attempts) == ("queued", 1)
    assert "The mail server did not take it" in row.message
