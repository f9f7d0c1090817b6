"""Outages of components: notifications when a component goes down and when it recovers."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dashboard.components import Component
from dashboard.notify.events import collect
from dashboard.notify.outages import record_outages
from dashboard.notify.outbox import deliver, notify
from dashboard.observing import record
from ipuhub.models import ComponentOutage, Heartbeat, Subscription, TaskMessage, WatchCheckpoint
from tests.builders.notifications import MINUTE, subscribe
from usage.models import MonitorRound

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from tests.fakes.receivers import HttpReceiver

pytestmark = pytest.mark.django_db
START = dt.datetime(2026, 11, 24, 9, 0, tzinfo=dt.UTC)
OBSERVED = (
    "Kubernetes API",
    "IPU Operator",
    "Webhooks",
    "V-IPU Proxy",
    "V-IPU controller pod1:8090",
)
PARTS = ("Dashboard", "Prober", "Monitor", "Worker", "Beat", *OBSERVED)
AGENTS = "V-IPU agents of pod1:8090"
CONTROLLER = OBSERVED[-1]
LONG = ("Dashboard", CONTROLLER)
"""Down for half an hour, one of those with a heartbeat and one that is observed; the others for
minutes."""
ROOM = tuple(f"ag{number}" for number in range(64))


def work(
    at: dt.datetime, *down: str, lost: tuple[str, ...] = (), room: tuple[str, ...] = ROOM
) -> None:
    """Let all components but those give a sign of life at that time; `lost` agents of the room give
    none."""
    if "Prober" not in down:
        WatchCheckpoint.objects.update_or_create(name="pods", defaults={"position_at": at})
    if "Monitor" not in down:
        values = {"began_at": at, "ended_at": at, "checked": 0, "present": 0, "closed": 0}
        MonitorRound.objects.update_or_create(cluster_uid="c", defaults=values | {"left": 0})
    alive = {part.lower() for part in PARTS[:5] if part not in down} - {"dashboard"}
    for name in alive | (set() if {"Worker", "Beat"} & {*down} else {"tasks"}):
        Heartbeat.objects.update_or_create(name=name, defaults={"at": at})
    if "Worker" in down:  # beat goes on to queue tasks
        TaskMessage.objects.get_or_create(queue="celery", body="{}", defaults={"queued_at": at})
    else:
        TaskMessage.objects.all().delete()
    if "Dashboard" not in down:
        Heartbeat.objects.update_or_create(name="web", defaults={"at": at})
        found = [one(name, "down" if name in down else "up") for name in OBSERVED]
        agents = Component(AGENTS, "down" if lost else "up", "", members=room, absent=lost)
        record([*found, *([] if CONTROLLER in down else [agents])], at)


def one(name: str, state: str) -> Component:
    return Component(name, state, f"is {state}")


def look(at: dt.datetime) -> None:
    """Make one round at that time."""
    record_outages(at)
    collect(at)
    deliver(lambda: at)


def live(
    began: dt.datetime,
    minutes: int,
    *down: str,
    lost: tuple[str, ...] = (),
    room: tuple[str, ...] = ROOM,
) -> dt.datetime:
    """Let so many minutes go by, with a look each; return when they are over."""
    for minute in range(minutes):
        at = began + minute * MINUTE
        work(at, *down, lost=lost, room=room)
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
    minutes = 30 if part in LONG else 12
    at = live(START, 2)
    at = live(at, minutes, part)
    live(at, 5)
    down, up = subjects(receiver)
    assert down.startswith(f"{part} is down: ")
    found = re.fullmatch(f"{part} recovered after ([0-9]+) min", up)
    assert found, up
    assert minutes - 10 <= int(found[1]) <= minutes
    components = [json.loads(body)["component"] for _, _, body in receiver.got]
    assert [(each["name"], each["state"]) for each in components] == [(part, "down"), (part, "up")]


@pytest.mark.usefixtures("root")
def test_agents_that_go_together_are_one_message(receiver: HttpReceiver) -> None:
    at = live(START, 2)
    at = live(at, 1, lost=ROOM[:40])
    at = live(at, 1, lost=ROOM)  # the last agents a look later
    at = live(at, 10, lost=ROOM)
    at = live(at, 10, lost=ROOM[:1])
    assert len(subjects(receiver)) == 1
    live(at, 5)
    first = ", ".join(ROOM[:10])
    assert subjects(receiver) == [
        f"64 V-IPU agents of pod1:8090 are down: {first} and 54 more",
        "64 V-IPU agents of pod1:8090 recovered after 22 min",
    ]
    component = json.loads(receiver.got[0][2])["component"]
    assert (component["name"], component["members"]) == (AGENTS, list(ROOM))


@pytest.mark.usefixtures("root")
def test_an_agent_that_goes_later_is_told_of_by_itself(receiver: HttpReceiver) -> None:
    at = live(START, 10, lost=("ag3",))
    at = live(at, 10, lost=("ag3", "ag7"))
    at = live(at, 5, lost=("ag3",))
    live(at, 5)
    assert subjects(receiver) == [
        "V-IPU agent ag3 of pod1:8090 is down: does not answer",
        "V-IPU agent ag7 of pod1:8090 is down: does not answer",
        "V-IPU agent ag7 of pod1:8090 recovered after 10 min",
        "V-IPU agent ag3 of pod1:8090 recovered after 25 min",
    ]


@pytest.mark.usefixtures("root")
def test_agents_keep_their_outage_while_their_controller_is_down(receiver: HttpReceiver) -> None:
    at = live(START, 10, lost=("ag3",))
    at = live(at, 10, CONTROLLER)
    live(at, 5, lost=("ag3",))
    assert [subject for subject in subjects(receiver) if "agent" in subject] == [
        "V-IPU agent ag3 of pod1:8090 is down: does not answer"
    ]


@pytest.mark.usefixtures("root")
def test_a_component_that_comes_and_goes_sends_nothing(receiver: HttpReceiver) -> None:
    at = START
    for _ in range(5):
        at = live(at, 2, CONTROLLER, lost=("ag1",))
        at = live(at, 1)
    assert subjects(receiver) == []
    assert not ComponentOutage.objects.exists()


@pytest.mark.usefixtures("root")
def test_what_the_dashboard_observes_is_not_blamed_for_it(receiver: HttpReceiver) -> None:
    at = live(START, 2)
    at = live(at, 1, "IPU Operator", lost=("ag3",))  # a moment before: nobody saw how it went on
    at = live(at, 10, *OBSERVED, "Dashboard")
    assert [subject.split(" is ")[0] for subject in subjects(receiver)] == ["Dashboard"]


@pytest.mark.usefixtures("root")
def test_a_controller_that_is_taken_off_the_list_is_no_outage(receiver: HttpReceiver) -> None:
    at = live(START, 10, CONTROLLER)
    work(at)
    record([one(name, "up") for name in OBSERVED[:-1]], at + MINUTE)
    look(at + MINUTE)
    assert len(subjects(receiver)) == 1
    assert not ComponentOutage.objects.exists()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("still_lost", [(), ("ag7",)])
def test_an_agent_that_is_removed_while_down_has_not_recovered(
    receiver: HttpReceiver, still_lost: tuple[str, ...]
) -> None:
    at = live(START, 10, lost=("ag3", *still_lost))
    live(at, 5, lost=still_lost, room=tuple(each for each in ROOM if each != "ag3"))
    (subject,) = subjects(receiver)
    assert "down" in subject
    assert set(ComponentOutage.objects.values_list("member", flat=True)) == {*still_lost}


def test_it_is_for_administrators_and_from_their_subscription_on(
    ann: User, root: User, receiver: HttpReceiver
) -> None:
    subscribe(ann, "component-down", target=receiver.url, since=START)
    at = live(START, 10, CONTROLLER)
    assert len(subjects(receiver)) == 1
    Subscription.objects.update(since=at)  # as after a pause
    late = subscribe(root, "component-down", target=receiver.url, since=at, job_user="late")
    at = live(at, 5, CONTROLLER)
    live(at, 5)
    assert len(subjects(receiver)) == 2  # its end, to who knew of it
    assert not late.notifications.exists()


@pytest.mark.usefixtures("root")
def test_a_worker_of_the_former_version_still_records_outages(receiver: HttpReceiver) -> None:
    """It does not know the columns `member` and `episode`."""
    at = live(START, 2)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ipuhub_componentoutage (name, since, ended_at, detail)"
            " VALUES (%s, %s, NULL, 'is down') ON CONFLICT DO NOTHING",
            [CONTROLLER, at],
        )
    live(at, 10, CONTROLLER)
    assert subjects(receiver) == [f"{CONTROLLER} is down: is down"]


@pytest.mark.usefixtures("root")
def test_the_task_looks(receiver: HttpReceiver) -> None:
    work(timezone.now() - 10 * MINUTE)
    notify()
    # What the dashboard observed is not known.
    down = {"Dashboard", "Prober", "Monitor", "Worker", "Beat"}
    assert set(ComponentOutage.objects.values_list("name", flat=True)) == down
    ComponentOutage.objects.update(since=timezone.now() - 4 * MINUTE)
    Subscription.objects.update(since=timezone.now() - 60 * MINUTE)
    notify()
    assert len(subjects(receiver)) == 5


@pytest.mark.usefixtures("receiver")
def test_a_day_of_outages_is_asked_for_at_once(root: User) -> None:
    def questions(count: int) -> int:
        ComponentOutage.objects.all().delete()
        for number in range(count):
            began = START + number * 30 * MINUTE
            ComponentOutage.objects.create(
                name="Beat", episode=began, since=began, ended_at=began + 20 * MINUTE
            )
        with CaptureQueriesContext(connection) as queries:
            collect(START + dt.timedelta(hours=22))
        return len(queries)

    assert root.pk
    assert questions(20) == questions(1)
