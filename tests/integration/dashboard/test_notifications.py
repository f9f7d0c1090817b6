"""Notifications: the recipients of each event, from PostgreSQL to a receiver on a socket."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from dashboard.notify.events import collect
from ipuhub.models import Notification
from partitions.models import CapacityChange
from tests.builders import jobhistory
from tests.builders.clients import browser
from tests.builders.notifications import MINUTE, PAGE, deliver_all, store_ended_job, subscribe
from tests.builders.roles import grant
from usage.models import MonthReport, ReportState

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from tests.fakes.receivers import HttpReceiver

pytestmark = pytest.mark.django_db


def test_the_end_of_a_job_is_sent_once_and_signed(ann: User, receiver: HttpReceiver) -> None:
    subscribe(ann, target=receiver.url)
    store_ended_job()
    store_ended_job("yesterday", completed_at=timezone.now() - 90 * MINUTE)
    deliver_all()
    deliver_all()
    ((path, headers, body),) = receiver.got
    assert path == "/hook?x=1"
    payload = json.loads(body)
    assert payload["event"] == headers["x-ipuhub-event"] == "job-ended"
    assert payload["subject"] == "Job team-a/train ended: Failed"
    assert payload["job"]["uid"] == "uid-team-a-train"
    assert payload["url"] == "https://ipuhub.example/jobs/uid-team-a-train/"
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
    store_ended_job("mine")
    store_ended_job("other", user="bob", group="ml")
    store_ended_job("foreign", "team-b")
    deliver_all()
    jobs = [json.loads(body)["job"] for _path, _headers, body in receiver.got]
    assert {f"{job['namespace']}/{job['name']}" for job in jobs} == want


def test_a_job_that_waits_too_long_is_told_once(ann: User, receiver: HttpReceiver) -> None:
    subscribe(ann, "job-waiting", target=receiver.url, minutes=30)
    now = timezone.now()
    jobhistory.job("long", status="Pending", created_at=now - 31 * MINUTE)
    jobhistory.job("short", status="Pending", created_at=now - 29 * MINUTE)
    jobhistory.job("runs", status="Running", created_at=now - 31 * MINUTE)
    deliver_all()
    deliver_all()
    assert [json.loads(body)["job"]["name"] for _, _, body in receiver.got] == ["long"]


@pytest.mark.parametrize("event", ["job-ended", "job-waiting", "controller-down"])
def test_a_round_queues_a_part_and_the_next_rounds_the_rest(
    ann: User, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """Notifications that are queued already do not take the place of new ones."""
    monkeypatch.setattr("dashboard.notify.events._MOST", 2)
    root = get_user_model().objects.create_user("root", is_staff=True)
    subscribe(root, event, target="https://chat.example/", minutes=30)
    now = timezone.now()
    for number in range(5):
        at = now - (40 - number) * MINUTE
        if event == "job-ended":
            store_ended_job(f"job{number}", completed_at=at)
        elif event == "job-waiting":
            jobhistory.job(f"job{number}", status="Pending", created_at=at)
        else:
            CapacityChange.objects.create(
                controller=f"pod{number}:8090", at=at, total=64, free=0, reachable=False
            )
    assert [collect(now) for _round in range(4)] == [2, 2, 1, 0]
    assert Notification.objects.count() == 5


def test_waiting_counts_from_when_it_began_and_each_wait_is_told(
    ann: User, receiver: HttpReceiver
) -> None:
    """A job that ran or was suspended waits from when it became pending again."""
    subscribe(ann, "job-waiting", target=receiver.url, minutes=30)
    now = timezone.now()
    for name, waited in (("resumed", 20), ("retried", 40)):
        job = jobhistory.job(name, status="Pending", created_at=now - 120 * MINUTE)
        for state, seconds in (("Pending", 0), ("Running", 60), ("Suspended", 600)):
            jobhistory.transition(job, state, seconds)
        jobhistory.transition(job, "Pending", (120 - waited) * 60)
        jobhistory.transition(job, "Pending", 119 * 60, "NoCapacity")  # another reason, no new wait
    deliver_all()
    assert [json.loads(body)["job"]["name"] for _, _, body in receiver.got] == ["retried"]
    jobhistory.transition(job, "Restarting", 119 * 60 + 1)
    jobhistory.transition(job, "Pending", 119 * 60 + 2)
    collect(now + 20 * MINUTE)
    assert Notification.objects.count() == 2  # of the resumed subscription
    collect(now + 40 * MINUTE)
    assert Notification.objects.filter(key__startswith=f"job-waiting:{job.uid}").count() == 2


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
    deliver_all()
    subjects_sent = {
        (path.rpartition("&")[2], json.loads(body)["subject"]) for path, _, body in receiver.got
    }
    down, closed = "V-IPU controller pod1:8090 does not answer", "The month 2026-10 was closed"
    assert subjects_sent == {("root", down), ("root", closed), ("carol", closed)}


def test_a_paused_subscription_is_told_nothing_of_its_pause(
    ann: User, receiver: HttpReceiver
) -> None:
    found = subscribe(ann, target=receiver.url)
    client = browser(ann)
    client.post(f"{PAGE}{found.pk}/pause")
    store_ended_job("in-between")
    deliver_all()
    client.post(f"{PAGE}{found.pk}/resume")
    store_ended_job("after", completed_at=timezone.now() + MINUTE)
    deliver_all()
    assert [json.loads(body)["job"]["name"] for _, _, body in receiver.got] == ["after"]
