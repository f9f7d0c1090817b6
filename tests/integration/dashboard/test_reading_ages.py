"""Every page with live figures shows their age, also without an outage."""

from __future__ import annotations

import datetime as dt
import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from django.utils import timezone

from dashboard.live import LiveReader, LiveState
from ipuhub.web import readings
from ipuhub.web.readings import Reading
from partitions.connections import sources
from tests.builders.fleetrows import checkpoint, job_row
from tests.fakes.waiting import wait_until
from tests.integration.dashboard.test_fleet_page import get_page

if TYPE_CHECKING:
    from django.test import Client

    from partitions.connections import Sources
    from tests.fakes.background import Cluster, Proxy
    from tests.integration.dashboard.conftest import Clock

pytestmark = pytest.mark.django_db
LIVE = ("/", "/fleet/", "/queue/", "/fleet/machines/v1:8090/ag0/", "/partitions/stats/", "/system/")
FLEET_CALLS = (
    "/api/v1/fleet",
    "/api/v1/queue",
    "/api/v1/stats",
    "/api/v1/fleet/machines/v1:8090/ag0",
    "/api/v1/fleet/machines/v1:8090/ag0/ipus/0",
)
CALLS = (*FLEET_CALLS, "/api/v1/components", "/api/v1/jobs/uid-team-a-bert/usage")
RECORDED = ("/jobs/", "/partitions/", "/usage/", "/usage/pods/", "/jobs/uid-team-a-bert/")


def as_of(text: str) -> tuple[str, str]:
    found = re.search(r'id="as-of"[^>]*>(\w+) <time datetime="([^"]+)"', text)
    assert found is not None, text[:3000]
    return found[1], found[2]


@pytest.mark.parametrize("address", LIVE)
def test_a_page_of_the_present_says_when_it_was_read(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock, address: str
) -> None:
    word, at = as_of(get_page(admin, address))
    assert word == "Read"
    assert abs(dt.datetime.fromisoformat(at) - clock.now()) < dt.timedelta(seconds=1)


@pytest.mark.parametrize("address", RECORDED)
def test_a_page_of_records_says_how_far_they_go(admin: Client, clock: Clock, address: str) -> None:
    seen = clock.now() - dt.timedelta(seconds=20)
    for watch in ("ipujobs", "tracker", "pods"):
        checkpoint(watch, seen)
    job_row("bert")
    word, at = as_of(get_page(admin, address))
    assert word == "Recorded"
    assert abs(dt.datetime.fromisoformat(at) - seen) < dt.timedelta(seconds=1)


def test_an_old_reading_is_loud_and_keeps_its_age(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    read = as_of(get_page(admin, "/fleet/"))
    proxy.stop()
    clock.later(75)
    text = get_page(admin, "/fleet/")
    assert as_of(text) == read
    assert "The V-IPU Proxy does not answer" in text
    proxy.start()


@pytest.mark.parametrize("address", ["/fleet/", LIVE[2], "/jobs/"])
def test_a_poll_says_it_without_a_new_text(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock, address: str
) -> None:
    """An unchanged part is a 304, whose header has the new age."""
    seen = checkpoint("ipujobs", clock.now())
    htmx = {"HX-Request": "true"}
    first = admin.get(address, headers=htmx)
    clock.later(5)
    seen.position_at += dt.timedelta(seconds=5)
    seen.save()
    again = admin.get(address, headers=htmx | {"If-None-Match": first["ETag"]})
    assert again.status_code == 304
    times = [dt.datetime.fromisoformat(each["X-As-Of"]) for each in (first, again)]
    assert times[1] - times[0] == dt.timedelta(seconds=5)


@pytest.mark.parametrize("address", CALLS)
def test_a_call_that_reads_the_same_again_is_a_304_with_the_new_age(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock, address: str
) -> None:
    job_row("bert")
    proxy.hold("bert", "team-a", 2)
    first = admin.get(address)
    clock.later(5)
    again = admin.get(address, headers={"If-None-Match": first["ETag"]})
    assert (first.status_code, again.status_code) == (200, 304)
    times = [dt.datetime.fromisoformat(each["X-As-Of"]) for each in (first, again)]
    assert times[1] - times[0] == dt.timedelta(seconds=5)


def test_a_call_that_reads_something_else_has_another_tag(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    tags = [admin.get(address)["ETag"] for address in FLEET_CALLS]
    proxy.hold("bert", "team-a", 4)
    proxy.hold("large", "team-a", 32)
    clock.later(5)
    for address, tag in zip(FLEET_CALLS, tags, strict=True):
        assert admin.get(address, headers={"If-None-Match": tag}).status_code == 200, address


def test_a_service_that_stops_two_readings_is_named_once_with_the_older_time(
    admin: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, problem = clock.now(), "The V-IPU Proxy does not answer"
    partitions = Reading((), now - dt.timedelta(seconds=75), problem, "no answer in time")
    fleet = Reading({}, now - dt.timedelta(seconds=65), problem, "no answer within 3 s")
    seen = LiveState(partitions=partitions, fleet=fleet)
    monkeypatch.setattr(LiveReader, "read", lambda _self, _now: seen)
    text = get_page(admin, "/")
    assert text.count(problem) == 1
    assert "The page shows the state of <time" in text
    assert ">75 s</time> ago" in text


def test_the_record_does_not_stand_in_for_a_proxy_that_never_answered(
    admin: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its notice has no time: nothing of it is shown. What is recorded of jobs is shown."""
    for watch in ("ipujobs", "pods"):
        checkpoint(watch, clock.now() - dt.timedelta(seconds=54))
    proxy, cluster = "The V-IPU Proxy does not answer", "The Kubernetes API does not answer"
    silent, read = Reading((), problem=proxy), Reading((), clock.now())
    never = LiveState(jobs=read, partitions=silent, fleet=Reading({}, problem=proxy))
    for seen in (never, replace(never, jobs=Reading((), problem=cluster))):
        monkeypatch.setattr(LiveReader, "read", lambda _self, _now, seen=seen: seen)
        notices, figures = get_page(admin, "/").split('<div class="figures">')
        notice = notices.partition(proxy)[2].partition("</div></div>")[0]
        assert "No data has been read yet." in notice
        assert "the fleet has not been read yet" in figures
    assert ">54 s</time> ago" in notices.partition(cluster)[2].partition("</div></div>")[0]


def test_a_notice_with_a_time_says_that_the_fleet_was_never_read(
    admin: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the figure of the fleet below it does."""
    problem = "The V-IPU Proxy does not answer"
    read = Reading((), clock.now() - dt.timedelta(seconds=14), problem)
    seen = LiveState(Reading((), clock.now()), read, Reading({}, problem=problem))
    monkeypatch.setattr(LiveReader, "read", lambda _self, _now: seen)
    notices, figures = get_page(admin, "/").split('<div class="figures">')
    assert ">14 s</time> ago" in notices
    assert "The fleet has not been read yet." in notices
    assert "the fleet has not been read yet" in figures
    seen = replace(seen, fleet=replace(read, value={}))
    assert "The fleet has not been read" not in get_page(admin, "/")


def test_a_keeper_reads_for_the_requests(
    cluster: Cluster, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "_KEPT_SECONDS", 600.0)  # a slow machine's keeper is never late
    readers: list[str] = []

    def connect() -> Sources:
        readers.append(threading.current_thread().name)
        return sources()

    reader = LiveReader(connect)

    def names() -> list[str]:
        return [each["metadata"]["name"] for each in reader.read(timezone.now()).jobs.value]

    keeper = reader.keeper()
    keeper.start()
    assert names() == []
    own = len(readers) - readers.count("live")
    cluster.add_job("bert", "team-a")
    wait_until(lambda: names() == ["bert"])
    first = reader.read(timezone.now()).jobs.read_at
    wait_until(lambda: reader.read(timezone.now()).jobs.read_at != first)
    assert len(readers) - readers.count("live") == own
    keeper.stop()
    known = len(readers)
    cluster.add_job("late", "team-a")
    wait_until(lambda: names() == ["bert", "late"])
    assert "live" not in readers[known:]
