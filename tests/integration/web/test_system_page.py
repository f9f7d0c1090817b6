"""The system page: watches, monitor and faults, and its access rules."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape
from typing import TYPE_CHECKING

import pytest
from django.utils import timezone

from dashboard import system
from dashboard.components import Signs, by_lease
from ipuhub.kube.malformed import ANNOTATION, MalformedObjects
from ipuhub.models import ComponentOutage, Heartbeat, RecordFault, WatchCheckpoint, WatchGap
from tests.builders.clients import browser
from tests.builders.lifetimes import at, store_pod
from usage.models import MonitorRound, PurgeState, RollupState

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client


def page(client: Client, query: str = "") -> str:
    return page_at(client, f"/system/{query}")


def page_at(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    content = b"".join(answer) if answer.streaming else answer.content  # type: ignore[arg-type]
    return content.decode()


@pytest.fixture
def record(db: None) -> None:
    now = timezone.now()
    ages = {"pods": 5, "jobs": 600}
    for name, age in ages.items():
        WatchCheckpoint.objects.create(
            name=name,
            cluster_uid="c",
            resource_version="77",
            epoch=4,
            holder="=prober-1",
            lag_seconds=0.25,
            selection="all <pods>",
            position_at=now - timedelta(seconds=age),
        )
    WatchGap.objects.create(watch="pods", began_at=now, ended_at=now, cause="a test")
    for uid in "ab":
        RecordFault.objects.create(
            watch="pods", uid=uid, code="quantity", message="m", count=3, first_at=now, last_at=now
        )
    MonitorRound.objects.create(
        cluster_uid="c",
        began_at=now,
        ended_at=now,
        checked=7,
        present=4,
        closed=2,
        left=1,
        problem="namespace team-a: no answer",
    )
    store_pod("2026-01-05T12:00")
    store_pod(None)


@pytest.mark.usefixtures("record")
def test_it_shows_watches_monitor_faults_and_gaps(admin: User) -> None:
    html = page(browser(admin))
    assert html.count(">stale<") == 1
    for part in ("epoch 4", "=prober-1", "0.25 s", "all &lt;pods&gt;", "7 pods checked"):
        assert part in html
    assert "2 gone, closed" in html
    assert "namespace team-a: no answer" in html
    assert "?code=quantity&amp;watch=pods" in html
    assert "1 pod</a> running, 1 waiting for a node" in html
    assert "is not recorded" not in html
    assert 'aria-current="page" href="/system/"' in html
    reply = browser(admin).get("/api/v1/system").json()
    watches = [(each["name"], each["is_stale"], each["gaps"]) for each in reply["watches"]]
    assert watches == [("jobs", True, 0), ("pods", False, 1)]
    assert (reply["watches"][1]["epoch"], reply["watches"][1]["lag_seconds"]) == (4, 0.25)
    assert (reply["monitor"]["closed"], reply["monitor"]["problem"][:16]) == (2, "namespace team-a")
    assert (reply["open_pods"], reply["waiting_pods"], reply["unproved_pods"]) == (1, 1, 0)
    (fault,) = reply["faults"]
    assert (fault["code"], fault["objects"], fault["times"]) == ("quantity", 2, 6)
    assert (reply["totals_until"], reply["purges"]) == (None, [])


def test_its_polled_part_changes_with_what_a_row_says_and_not_with_its_name_alone(
    admin: User,
) -> None:
    PurgeState.objects.create(purged_before="2026-01-01", began_at=timezone.now())
    client, htmx = browser(admin), {"HX-Request": "true"}
    first = client.get("/system/", headers=htmx)
    assert "not finished" in first.text
    again = htmx | {"If-None-Match": first["ETag"]}
    assert client.get("/system/", headers=again).status_code == 304
    PurgeState.objects.update(finished_at=timezone.now(), counts={"pods": 3})
    last = client.get("/system/", headers=again)
    assert (last.status_code, "not finished" in last.text) == (200, False)
    (purge,) = client.get("/api/v1/system").json()["purges"]
    assert (purge["purged_before"], purge["counts"]) == ("2026-01-01", {"pods": 3})


@pytest.mark.usefixtures("record")
def test_each_of_its_links_leads_somewhere(admin: User) -> None:
    client = browser(admin)
    html = page(client)
    links = re.findall('href="(/[^"]*)"', html[html.index('id="system"') :])
    assert len(links) > 5
    for link in links:
        assert page_at(client, unescape(link))


@pytest.mark.usefixtures("record")
def test_its_twins_have_every_watch_and_no_formula(admin: User) -> None:
    found = json.loads(page(browser(admin), "?format=json"))
    assert [one["name"] for one in found] == ["jobs", "pods"]
    assert found[1]["epoch"] == 4
    assert "'=prober-1" in page(browser(admin), "?format=csv")


def test_an_empty_record_says_what_to_start(admin: User) -> None:
    html = page(browser(admin))
    assert "run_prober" in html
    assert "run_monitor" in html


def test_it_shows_from_when_on_there_are_hourly_totals(admin: User) -> None:
    client = browser(admin)
    state = RollupState.objects.create(zone="UTC", until="2026-11-21")
    for kept_from, want in (
        (None, "before 2026-11-21; hourly totals of today only"),
        (at("2026-11-05T23:00"), "; hourly totals from 2026-11-05 23:00 UTC on"),
        (at("1970-01-01T00:00"), "before 2026-11-21</li>"),
    ):
        state.kept_from = kept_from
        state.save()
        assert want in page(client)


def test_nobody_but_administrators_sees_it(alice: User, charlie: User) -> None:
    for user in (alice, charlie):
        client = browser(user)
        assert client.get("/system/").status_code == 403
        assert client.get("/system/?format=csv").status_code == 403
        assert 'href="/system/"' not in client.get("/").content.decode()


def test_the_list_of_pods_shows_how_long_each_waited(admin: User) -> None:
    began = timezone.now() - timedelta(hours=1)
    store_pod("2026-01-05T12:01", created_at=at("2026-01-05T12:00"))
    store_pod(None, created_at=began, finished_at=began + timedelta(minutes=2))
    found = json.loads(page_at(browser(admin), "/usage/pods/?format=json"))
    assert [one["waited_seconds"] for one in found] == [120, 60]
    html = page_at(browser(admin), "/usage/pods/")
    assert "never scheduled" in html


def test_a_clock_that_was_off_is_shown(admin: User) -> None:
    store_pod("2026-01-05T12:01", "2026-01-05T12:01", skew_seconds=300)
    html = page_at(browser(admin), "/usage/pods/")
    assert "clock off by 300 s" in html


def test_stamps_of_jobs_that_are_not_recorded_are_counted_and_listed(admin: User) -> None:
    store_pod("2026-01-05T12:01", pod_name="plain")
    store_pod(
        "2026-01-05T12:01", pod_name="forged", stamp={"job_uid": "j", "micro_ipus": 64_000_000}
    )
    html = page(browser(admin))
    assert '?unproved=true">1 pod</a> whose job is not recorded' in html
    for wanted, name in (("true", "forged"), ("false", "plain")):
        found = page_at(browser(admin), f"/usage/pods/?format=json&unproved={wanted}")
        assert [one["pod_name"] for one in json.loads(found)] == [name]


def test_an_outage_of_what_is_up_again_does_not_last_until_now(admin: User) -> None:
    now = timezone.now()
    for name in ("worker", "beat"):
        Heartbeat.objects.create(name=name, at=now)
    ComponentOutage.objects.create(name="Beat", since=now, episode=now, detail="no heartbeat")
    assert " until just now: no heartbeat" in page(browser(admin))


def test_an_unknown_format_is_refused_in_words(admin) -> None:
    answer = browser(admin).get("/system/?format=xml")
    assert answer.status_code == 400
    assert "is not one of csv, json, jsonl." in answer.content.decode()


def test_objects_that_a_leader_read_with_malformed_fields_are_named(
    staff: Client, record: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    objects = MalformedObjects()
    for number in range(6):
        objects.add("Pod", "team-a", f"bert-{number}", ["status.phase", "metadata.labels[<x>]"])
    lease = {
        "metadata": {"annotations": {ANNOTATION: objects.text}},
        "spec": {"holderIdentity": "a", "renewTime": now.isoformat()},
    }
    found = [by_lease("IPU Operator", Signs(lease), now), by_lease("Prober", Signs(), now)]
    monkeypatch.setattr(system, "read_components", lambda *_: found)
    html = page(staff)
    assert html.count("<dt>Malformed</dt>") == 1
    assert "6 objects read without malformed fields, the last:" in html
    named = re.findall(r'<code class="text-break">(.*?)</code>', html)
    assert len(named) == 5
    assert named[0] == "Pod team-a/bert-5: status.phase, metadata.labels[&lt;x&gt;]"
