"""The pages of an IPU-Machine and of an IPU, and their API: real proxy, real cluster, Postgres."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from dashboard.machines.incidents import record_incidents
from ipuhub.models import ComponentOutage, MachineIncident
from partitions.models import PartitionLifetime
from partitions.vipu.telemetry import Heartbeat, Sensors
from tests.builders.clients import browser as signed_in_client
from tests.builders.fleetrows import job_row, partition_row
from tests.builders.questions import count_queries
from tests.integration.dashboard.test_fleet_page import get_page, hold
from tests.integration.web.livepages import axe_violations, live_server, page_of, show_as
from tests.integration.web.looks import WIDTHS, looks_of

if TYPE_CHECKING:
    from django.test import Client

    from tests.fakes.background import Cluster, Proxy
    from tests.integration.dashboard.conftest import Clock

pytestmark = pytest.mark.django_db
AG0 = "/fleet/machines/v1:8090/ag0/"
API = "/api/v1/fleet/machines/v1:8090/ag0"


def test_a_machine_shows_each_ipu_with_its_job_and_what_it_is_made_of(
    admin: Client, cluster: Cluster, proxy: Proxy
) -> None:
    uid = hold(cluster, proxy, "bert", "team-a", 2)
    text = get_page(admin, AG0)
    assert text.count(reverse("jobs:detail", args=[uid])) == 2
    assert text.count("p-bert-team-a-0") == 2
    assert text.count("ipu is-free") == 2
    assert "2 of 4 IPUs held" in text
    for fact in ("Board serial number", "M2000", "1330\u00a0MHz", "answers"):
        assert fact in text
    ipu = get_page(admin, f"{AG0}ipus/1/")
    assert "ag0, IPU 1" in ipu
    assert ipu.count("p-bert-team-a-0") == 1


def test_a_machine_shows_its_last_heartbeat_and_its_sensors_or_that_nobody_reports_them(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    ipu = f"{AG0}ipus/1/"
    assert 'Last heartbeat</dt><dd><span class="text-secondary">not reported' in get_page(
        admin, AG0
    )
    assert get_page(admin, ipu).count("not reported") == 4
    unknown = admin.get(API).json()
    assert unknown["heard_at"] is None
    assert {one["temperature_celsius"] for one in unknown["ipus"]} == {None}
    heard = clock.now().replace(microsecond=0) - dt.timedelta(seconds=7)
    sensors = {0: Sensors(41.26, 98.4, 1.33e9), 1: Sensors(39.0)}
    proxy.world.vipu.heartbeats["ag0"] = Heartbeat(heard, sensors)
    text = get_page(admin, AG0)
    assert f'datetime="{heard.isoformat()}"' in text
    assert "41.3\u00a0°C, 98\u00a0W, 1330\u00a0MHz" in text
    assert "Power</dt><dd>not reported" in get_page(admin, ipu)
    assert "Temperature</dt><dd>39.0\u00a0°C" in get_page(admin, ipu)
    found = admin.get(f"{API}/ipus/0").json()
    assert found["heard_at"] == heard.isoformat().replace("+00:00", "Z")
    (one,) = found["ipus"]
    assert (one["temperature_celsius"], one["power_watts"], one["clock_hertz"]) == (
        41.26,
        98.4,
        1.33e9,
    )


def test_a_cordoned_machine_says_so_while_jobs_hold_all_of_it(
    admin: Client, cluster: Cluster, proxy: Proxy
) -> None:
    hold(cluster, proxy, "bert", "team-a", 4)
    proxy.world.vipu.cordons["ag0"] = "new cables on Monday"
    text = get_page(admin, AG0)
    assert ">cordoned</span>" in text
    assert "None of its IPUs gets a new partition." in text
    assert admin.get(API).json()["state"] == "cordoned"


def test_map_search_job_and_partition_pages_lead_to_the_machine(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    link = f'href="{AG0}"'
    for address in ("/", "/fleet/", "/search/?q=AG0"):
        assert link in get_page(admin, address), address
    job = job_row("bert")
    partition_row("bert", machines={"ag0": [0, 1, 2, 3]}, job_uid=job.uid)
    for address in (f"/jobs/{job.uid}/", f"/jobs/{job.uid}/pods/", "/partitions/"):
        assert link in get_page(admin, address), address


def test_a_file_has_all_machines_of_a_partition(admin: Client) -> None:
    partition_row("bert", machines={f"ag{n}": [4 * n] for n in (10, 2, 1)})
    assert "ag1 + 2" in get_page(admin, "/partitions/")
    answer: Any = admin.get("/partitions/", {"format": "json"})
    (row,) = json.loads(b"".join(answer))
    assert row["machines"] == "ag1, ag2, ag10"


def test_the_jobs_of_the_last_day_stand_on_the_machine_and_on_their_ipus_alone(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    now, hour = clock.now(), dt.timedelta(hours=1)
    for name, machines, hours, released in (
        ("here", {"ag0": [0, 1]}, 30, now - hour),
        ("stays", {"ag0": [2, 3], "ag1": [4, 5]}, 60, None),
        ("new", {"ag0": [0, 1]}, 1, None),
        ("ran-long", {"ag0": [0, 1]}, 61, now - hour),
        ("elsewhere", {"ag1": [6, 7]}, 30, now - hour),
        ("long-ago", {"ag0": [0, 1]}, 30, now - 25 * hour),
        ("ran-long-ago", {"ag0": [0, 1]}, 60, now - 25 * hour),
    ):
        times = {"reserved_at": now - hours * hour, "released_at": released}
        partition_row(name, machines=machines, **times)
    partition_row("other-controller", machines={"ag0": [0]}, controller="v2:8090")
    text = get_page(admin, AG0)
    for name in ("elsewhere", "long-ago", "ran-long-ago", "other-controller"):
        assert f">{name}<" not in text
    assert "2 of 4" in text
    ipu = get_page(admin, f"{AG0}ipus/2/")
    assert (">stays<" in ipu, ">here<" in ipu) == (True, False)
    found = admin.get(API).json()
    assert [each["job_name"] for each in found["partitions"]] == [
        "new",
        "here",
        "stays",
        "ran-long",
    ]


def test_outages_of_its_agent_and_controller_are_told(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    now, minute = clock.now(), dt.timedelta(minutes=1)
    agents = "V-IPU agents of v1:8090"
    for member, since, until in (
        ("ag0", now - 9 * minute, now - 5 * minute),
        ("ag1", now - 8 * minute, None),
        ("ag0", now - 3000 * minute, now - 2900 * minute),
    ):
        ComponentOutage.objects.create(
            name=agents, member=member, since=since, ended_at=until, detail="", episode=since
        )
    events = admin.get(API).json()["events"]
    assert [event["what"] for event in events] == [
        "Its agent answers again",
        "Its agent stopped answering",
    ]
    assert "Its agent stopped answering" in get_page(admin, AG0)


def test_cordons_and_faults_are_told_with_their_times(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    def look(**fields: Any) -> dt.datetime:
        """A round's look at the fleet a minute later, in which ag0 says this."""
        clock.later(60)
        now = clock.now()
        machine = {"agent": "ag0", "ipus": [{"device": n} | ipus.get(n, {}) for n in range(4)]}
        controller = {"address": "v1:8090", "reachable": True, "machines": [machine | fields]}
        record_incidents({"controllers": [controller | silent]}, now)
        return now

    def event_texts(address: str = API) -> list[str]:
        return [event["what"] for event in admin.get(address).json()["events"]]

    silent: dict[str, Any] = {}
    ipus: dict[int, dict[str, str]] = {n: {"cordon": "ag0 is cordoned: cables"} for n in range(4)}
    began = look()
    look()
    assert event_texts() == ["ag0 is cordoned: cables"]
    ipus = {2: {"fault": "ag0: IPU 2 is hot"}}
    look()
    assert event_texts() == ["ag0: IPU 2 is hot", "No longer cordoned", "ag0 is cordoned: cables"]
    at = admin.get(API).json()["events"][-1]["at"]
    assert dt.datetime.fromisoformat(at) == began
    ipus = {n: {"fault": "ag0 has not answered"} for n in range(4)}
    look(lost="ag0 has not answered")
    ipus, silent = {}, {"reachable": False}
    look()
    assert len(event_texts()) == 3  # nobody knows
    silent = {}
    look()
    assert event_texts()[0] == "IPU 2 works again"
    assert "IPU 2 works again" in get_page(admin, AG0)
    assert event_texts(f"{API}/ipus/2") == event_texts()
    assert event_texts(f"{API}/ipus/1") == ["No longer cordoned", "ag0 is cordoned: cables"]
    ipus = {1: {"fault": "ag0: IPU 1 is hot"}}
    look()
    clock.later(60)
    record_incidents({"controllers": []}, clock.now())  # the controller is taken off the list
    assert event_texts()[:2] == ["IPU 1 works again", "ag0: IPU 1 is hot"]
    assert not MachineIncident.objects.filter(ended_at=None).exists()


def test_nothing_names_what_one_may_not_see(user: Client, cluster: Cluster, proxy: Proxy) -> None:
    hold(cluster, proxy, "secret", "team-b", 4)
    partition_row("secret", "team-b", machines={"ag0": [0, 1, 2, 3]})
    for address in (AG0, f"{AG0}ipus/0/", API, f"{API}/ipus/0"):
        text = get_page(user, address)
        assert "secret" not in text, address
        assert "team-b" not in text, address
    assert "held by others" in get_page(user, AG0)


def test_what_does_not_exist_is_not_found_and_what_is_not_known_is_said(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    known = "/fleet/machines/v1:8090"
    for address in (f"{known}/ag99/", f"{AG0}ipus/63/", "/fleet/machines/v9:1/ag0/"):
        assert admin.get(address).status_code == 404, address
    assert admin.get(f"{API}/ipus/63").status_code == 404
    # A machine that left the fleet is known as long as jobs of the last day stood on it.
    partition_row("before", machines={"ag99": [4]}, reserved_at=clock.now(), controller="v9:1")
    gone = "fleet/machines/v9:1/ag99"
    text = get_page(admin, f"/{gone}/")
    assert "not in the fleet any more" in text
    assert ">before<" in text
    found = admin.get(f"/api/v1/{gone}").json()
    assert (found["state"], len(found["partitions"])) == ("gone", 1)
    assert admin.get(f"/{gone}/ipus/9/").status_code == 404
    get_page(admin, AG0)
    proxy.stop()
    clock.later(75)
    text = get_page(admin, AG0)
    assert "The V-IPU Proxy does not answer" in text
    assert "ipu-tiles is-stale" in text
    assert admin.get(API).json()["problem"]
    proxy.start()


def test_before_the_first_reading_the_machine_is_unknown(admin: Client) -> None:
    assert "Nothing is known of this IPU-Machine yet" in get_page(admin, AG0)
    assert admin.get(API).json()["state"] == "unknown"


def test_the_api_has_the_machine_and_one_ipu_of_it(
    admin: Client, cluster: Cluster, proxy: Proxy
) -> None:
    uid = hold(cluster, proxy, "bert", "team-a", 1)
    found = admin.get(API).json()
    assert (found["state"], found["ipulink_domain"], len(found["ipus"])) == ("up", 0, 4)
    assert [ipu["job_uid"] for ipu in found["ipus"]] == [uid, "", "", ""]
    (ipu,) = admin.get(f"{API}/ipus/2").json()["ipus"]
    assert (ipu["position"], ipu["device"], ipu["state"]) == (2, 2, "free")


def test_the_polled_part_is_304_until_something_changes(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    htmx = {"HX-Request": "true"}
    tag = admin.get(AG0, headers=htmx)["ETag"]
    clock.later(3)
    assert admin.get(AG0, headers=htmx | {"If-None-Match": tag}).status_code == 304
    hold(cluster, proxy, "bert", "team-a", 4)
    row = partition_row("past", machines={"ag0": [0]}, reserved_at=clock.now())
    clock.later(3)
    first = admin.get(AG0, headers=htmx | {"If-None-Match": tag})
    assert first.status_code == 200
    # The recorder may write the end of a partition long after the IPUs are seen free.
    PartitionLifetime.objects.filter(pk=row.pk).update(released_at=clock.now())
    again = admin.get(AG0, headers=htmx | {"If-None-Match": first["ETag"]})
    assert (again.status_code, '<td data-label="Until">held' in again.text) == (200, False)


def test_a_machine_costs_six_questions(user: Client, cluster: Cluster, proxy: Proxy) -> None:
    with CaptureQueriesContext(connection) as queries:
        get_page(user, AG0)
    assert count_queries(queries) <= 6


def test_a_machine_breaks_no_rule_and_needs_no_width(
    transactional_db: None, cluster: Cluster, proxy: Proxy
) -> None:
    root: Any = get_user_model().objects.create_user("root", password="x", is_staff=True)
    hold(cluster, proxy, "a-job-with-a-name-that-is-rather-long-for-a-tile", "team-a", 2)
    sensors = {index: Sensors(60.2, 149.7, 1.33e9) for index in range(4)}
    proxy.world.vipu.heartbeats["ag0"] = Heartbeat(dt.datetime.now(dt.UTC), sensors)
    partition_row("past", machines={"ag0": [0, 1]}, reserved_at=dt.datetime.now(dt.UTC))
    cookie = signed_in_client(root).cookies[django_settings.SESSION_COOKIE_NAME].value
    found = []
    with live_server() as address, page_of(address, cookie, WIDTHS[0]) as page:
        for turn, path in enumerate((AG0, f"{AG0}ipus/0/", "/fleet/")):
            for first, look in enumerate(looks_of(turn)):
                show_as(page, look.scheme, look.width)
                found += axe_violations(page, "" if first else path, look.rules)
            for width in WIDTHS:
                show_as(page, "light", width)
                assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", ["/", "/fleet/"])
def test_patterns_are_painted_when_the_page_has_changed_around_them(
    transactional_db: None, cluster: Cluster, proxy: Proxy, clock: Clock, path: str
) -> None:
    cluster.add_job("lazy", "team-a", launcherStatus="Pending")
    proxy.hold("lazy", "team-a", 4)
    clock.later(3600)  # it is idle
    clock.go()
    root: Any = get_user_model().objects.create_user("root", password="x", is_staff=True)
    cookie = signed_in_client(root).cookies[django_settings.SESSION_COOKIE_NAME].value
    with live_server() as address, page_of(address, cookie, 1280) as page:
        page.goto(path)
        hatched = page.locator('.fleet-legend svg:has(> [fill="url(#hatch)"])').first
        before = hatched.screenshot()
        proxy.stop()
        page.locator(".alert").first.wait_for()
        assert hatched.screenshot() == before
    proxy.start()
