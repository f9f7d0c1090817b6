"""The event component-down: outages as PostgreSQL shows them, told once, and their ends."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from dashboard.notify.events import collect
from dashboard.notify.outages import record_outages
from dashboard.notify.outbox import deliver, notify
from ipuhub.models import ComponentOutage, Subscription, WatchCheckpoint
from partitions.models import CapacityChange
from tests.builders.notifications import MINUTE, subscribe
from usage.models import MonitorRound

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from tests.fakes.receivers import HttpReceiver

pytestmark = pytest.mark.django_db
START = dt.datetime(2026, 11, 24, 9, 0, tzinfo=dt.UTC)
PARTS = ("Prober", "Monitor", "V-IPU Proxy", "V-IPU controller pod1:8090")


def work(at: dt.datetime, *down: str) -> None:
    """Let all components but those give a sign of life at that time."""
    if "Prober" not in down:
        WatchCheckpoint.objects.update_or_create(name="pods", defaults={"position_at": at})
    if "V-IPU Proxy" not in down:
        WatchCheckpoint.objects.update_or_create(name="capacity", defaults={"position_at": at})
    if "Monitor" not in down:
        values = {"began_at": at, "ended_at": at, "checked": 0, "present": 0, "closed": 0}
        MonitorRound.objects.update_or_create(cluster_uid="c", defaults=values | {"left": 0})
    last = CapacityChange.objects.order_by("-at").first()
    answers = PARTS[3] not in down
    if last is None or last.reachable != answers:
        CapacityChange.objects.create(
            controller="pod1:8090", at=at, total=64, free=0, reachable=answers
        )


def look(at: dt.datetime) -> None:
    """Make one round of the worker at that time."""
    record_outages(at)
    collect(at)
    deliver(lambda: at)


def live(began: dt.datetime, minutes: int, *down: str) -> dt.datetime:
    """Let so many minutes go by, with a look each; return when they are over."""
    for minute in range(minutes):
        at = began + minute * MINUTE
        work(at, *down)
        look(at)
    return began + minutes * MINUTE


def subjects(receiver: HttpReceiver) -> list[str]:
    return [json.loads(body)["subject"] for _, _, body in receiver.got]


@pytest.fixture
def root(receiver: HttpReceiver) -> User:
    user: User = get_user_model().objects.create_user("root", is_staff=True)
    subscribe(user, "component-down", target=receiver.url, since=START)
    return user


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("part", PARTS)
def test_an_outage_is_told_once_and_its_end_once(part: str, receiver: HttpReceiver) -> None:
    at = live(START, 2)
    at = live(at, 30, part)
    live(at, 5)
    down, up = subjects(receiver)
    assert down.startswith(f"{part} is down: ")
    assert re.fullmatch(f"{part} recovered after 2[0-9] min|{part} recovered after 30 min", up)
    told = [json.loads(body)["component"] for _, _, body in receiver.got]
    assert [(each["name"], each["state"]) for each in told] == [(part, "down"), (part, "up")]


@pytest.mark.usefixtures("root")
def test_a_component_that_comes_and_goes_sends_nothing(receiver: HttpReceiver) -> None:
    at = START
    for _ in range(5):
        at = live(at, 2, PARTS[3])
        at = live(at, 1)
    assert subjects(receiver) == []
    assert not ComponentOutage.objects.exists()


@pytest.mark.usefixtures("root")
def test_what_the_prober_records_is_not_blamed_for_it(receiver: HttpReceiver) -> None:
    at = live(START, 2)
    at = live(at, 10, "Prober", "V-IPU Proxy")
    assert [subject.split(" is ")[0] for subject in subjects(receiver)] == ["Prober"]
    live(at, 10, PARTS[3], "V-IPU Proxy")
    assert [subject.split(" is ")[0] for subject in subjects(receiver)][2:] == ["V-IPU Proxy"]


@pytest.mark.usefixtures("root")
def test_a_controller_that_is_taken_off_the_list_is_no_outage(receiver: HttpReceiver) -> None:
    at = live(START, 10, PARTS[3])
    CapacityChange.objects.create(controller="pod1:8090", at=at, total=0, free=0, reachable=False)
    work(at, PARTS[3])
    look(at)
    assert len(subjects(receiver)) == 1
    assert not ComponentOutage.objects.exists()


def test_it_is_for_administrators_and_from_their_subscription_on(
    ann: User, root: User, receiver: HttpReceiver
) -> None:
    subscribe(ann, "component-down", target=receiver.url, since=START)
    at = live(START, 10, PARTS[3])
    assert len(subjects(receiver)) == 1
    Subscription.objects.update(since=at)  # as after a pause
    late = subscribe(root, "component-down", target=receiver.url, since=at, job_user="late")
    at = live(at, 5, PARTS[3])
    live(at, 5)
    assert len(subjects(receiver)) == 2  # its end, to who knew of it
    assert not late.notifications.exists()


@pytest.mark.usefixtures("root")
def test_the_task_looks(receiver: HttpReceiver) -> None:
    work(timezone.now() - 10 * MINUTE)
    notify()
    assert set(ComponentOutage.objects.values_list("name", flat=True)) == {"Prober", "Monitor"}
    ComponentOutage.objects.update(since=timezone.now() - 4 * MINUTE)
    Subscription.objects.update(since=timezone.now() - 60 * MINUTE)
    notify()
    assert len(subjects(receiver)) == 2
