"""Fleet map and queue, on their page and on the overview: real proxy, real cluster, Postgres."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.template.loader import render_to_string
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from dashboard.fleet import IpuSerializer
from dashboard.fleetfits import Fragments
from dashboard.fleetmap import FleetMap
from dashboard.live import live_reader
from dashboard.overview.heldday import STEP_SECONDS
from dashboard.overview.history import read_reach
from ipuhub.web.requests import release
from jobs.history.rows import row_of
from partitions.vipu.errors import Unavailable
from tests.builders.fleetrows import NOON, job_row, partition_row
from tests.builders.ipujobs import ipujob
from tests.builders.questions import count_queries
from tests.integration.recorders.test_job_records import write

if TYPE_CHECKING:
    from django.test import Client

    from tests.fakes.background import Cluster, Proxy
    from tests.integration.dashboard.conftest import Clock

pytestmark = pytest.mark.django_db
IDLE = {
    "lazy": (4, "ada", "lazy"),
    "slow": (8, "ada", "lazy and 1 more"),
    "late": (12, "ada and others", "lazy and 2 more"),
}
RUNNING: dict[str, Any] = {"launcherStatus": "Running", "workersStatus": {"active": 1}}


def get_page(client: Client, address: str = "/fleet/", **headers: str) -> str:
    answer = client.get(address, headers=headers)
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


def hold(cluster: Cluster, proxy: Proxy, name: str, namespace: str, size: int) -> str:
    """A running job with its partition; returns the UID under which the proxy knows it."""
    cluster.add_job(name, namespace, **RUNNING)
    proxy.hold(name, namespace, size)
    return f"uid-{name}"


def hold_without_pods(cluster: Cluster, proxy: Proxy, clock: Clock) -> Any:
    """Reserve a partition for a job that starts no pod; return its reading, at its beginning."""
    uid = cluster.add_job("lazy", "team-a", launcherStatus="Pending")
    proxy.hold("lazy", "team-a", 4, uid=uid)
    first = live_reader().read(clock.now())
    (held,) = first.fleet.value["controllers"][0]["partitions"]
    clock.later((dt.datetime.fromisoformat(held["job"]["since"]) - clock.now()).total_seconds())
    return first


def test_a_job_with_a_malformed_status_breaks_no_page_and_no_list(
    admin: Client, cluster: Cluster, proxy: Proxy
) -> None:
    cluster.drop_status_schema()
    broken = {"workersStatus": {"active": [1]}, "partitions": [None], "conditions": 7}
    uid = cluster.add_job("bert", "team-a", launcherStatus=[1], startTime=7, **broken)
    proxy.hold("bert", "team-a", 4, uid=uid)
    job = ipujob("bert").build() | {"status": broken}
    job["metadata"] |= {"uid": uid, "namespace": "team-a"}
    write(row_of(job, "vision", NOON))
    addresses = ("/", "/fleet/", "/fleet/table/", "/queue/", "/jobs/", f"/jobs/{uid}/")
    for address in (*addresses, "/api/v1/fleet", "/api/v1/jobs", f"/api/v1/jobs/{uid}"):
        assert "bert" in get_page(admin, address), address


@pytest.mark.parametrize("address", ["/", "/fleet/"])
def test_the_map_by_group_has_the_groups_for_which_usage_counts(
    admin: Client, cluster: Cluster, proxy: Proxy, address: str
) -> None:
    for name in ("bert", "unseen"):
        hold(cluster, proxy, name, "team-a", 4)
    job_row("bert", uid="uid-bert", group="vision")
    legend = get_page(admin, f"{address}?fill=group").partition("fleet-legend")[2]
    assert re.search(r"vision\s*<strong>4</strong>", legend)
    assert re.search(r"group not known yet\s*<strong>4</strong>", legend)


@pytest.mark.parametrize("address", ["/", "/fleet/"])
def test_who_holds_which_ipus_is_one_click_away(
    admin: Client, cluster: Cluster, proxy: Proxy, address: str
) -> None:
    uid = hold(cluster, proxy, "bert", "team-a", 4)
    text = get_page(admin, address)
    assert text.count('class="ipu is-free"') == 28 + 1  # and its key in the legend
    assert text.count(reverse("jobs:detail", args=[uid])) >= 5  # each square, and the legend
    assert "team-a/bert, p-bert-team-a-0" in text


@pytest.mark.parametrize("address", ["/", "/fleet/", "/queue/"])
def test_nothing_on_the_map_names_what_one_may_not_see(
    user: Client, cluster: Cluster, proxy: Proxy, address: str
) -> None:
    hold(cluster, proxy, "mine", "team-a", 4)
    hold(cluster, proxy, "secret", "team-b", 8)
    proxy.hold("waiting-secret", "team-b", 32)
    text = get_page(user, address)
    assert "secret" not in text
    assert "team-b" not in text
    assert "a job of another namespace" in text
    assert address == "/queue/" or text.count("ipu is-other") >= 8


def test_held_without_pods_is_said_on_the_overview(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    for name, user in (("lazy", "ada"), ("slow", "ada"), ("late", "bob")):
        uid = cluster.add_job(name, "team-a", user=user, launcherStatus="Pending")
        proxy.hold(name, "team-a", 4, uid=uid)
        clock.later(3600)
        text = get_page(admin, "/")
        figure = text.partition("Held but idle</span>")[2].partition("<svg")[0]
        ipus, owners, figure_label = IDLE[name]
        assert re.search(rf'">{ipus}&nbsp;<span [^>]*>IPUs of {owners}</span>', figure)
        assert f">{figure_label}, " in figure
    assert "url(#hatch)" in text


def test_the_figure_and_the_map_count_one_fleet(
    admin: Client, cluster: Cluster, proxy: Proxy
) -> None:
    hold(cluster, proxy, "bert", "team-a", 4)
    proxy.world.vipu.cordons["ag7"] = "cables"
    text = " ".join(get_page(admin, "/").split())
    assert "IPUs held</span>" in text
    assert re.search(r'<span class="h1">4 <span [^>]*>of 32</span>', text)
    assert "8 IPU-Machines · 32 IPUs" in text
    assert f"IPUHub {release()}</span>" in text
    assert re.search(r"12.5 %</span> now[^<]*<span[^>]*>4 out of service</span>", text)


def test_an_unknown_colouring_is_refused_in_words(admin: Client) -> None:
    for address in ("/", "/fleet/"):
        answer = admin.get(address, {"fill": "shoe-size"})
        assert answer.status_code == 400
        assert "fill: &#x27;shoe-size&#x27; is not one of job, group" in answer.content.decode()


def test_the_colouring_stays_while_the_page_is_polled(
    admin: Client, cluster: Cluster, proxy: Proxy
) -> None:
    for address in ("/?fill=user", "/fleet/?fill=user"):
        assert re.search(r'hx-get="[^"]*\?fill=user"', get_page(admin, address))


def test_the_polled_part_is_304_until_something_changes(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    hold(cluster, proxy, "bert", "team-a", 4)
    htmx = {"HX-Request": "true"}
    tag = admin.get("/fleet/", headers=htmx)["ETag"]
    clock.later(3)
    assert admin.get("/fleet/", headers=htmx | {"If-None-Match": tag}).status_code == 304
    proxy.hold("more", "team-a", 1)
    clock.later(3)
    assert admin.get("/fleet/", headers=htmx | {"If-None-Match": tag}).status_code == 200


def test_while_nothing_changes_a_reading_is_the_same_and_time_alone_makes_a_partition_idle(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    first = hold_without_pods(cluster, proxy, clock)
    states, tags = [], []
    for seconds in (3, 3, 60, 3):
        clock.later(seconds)
        answer = admin.get("/api/v1/fleet")
        states.append({row["state"] for row in answer.json()["ipus"]} - {"free"})
        tags.append(answer["ETag"])
        again = admin.get("/api/v1/fleet", headers={"If-None-Match": answer["ETag"]})
        assert (again.status_code, again["ETag"]) == (304, answer["ETag"])
        assert again["X-As-Of"] == answer["X-As-Of"]
    assert states == [{"held"}, {"held"}, {"idle"}, {"idle"}]
    assert len(set(tags[:2])) == len(set(tags[2:])) == 1
    assert tags[0] != tags[2]
    later = live_reader().read(clock.now())
    assert later.jobs.read_at != first.jobs.read_at
    assert later.jobs.value is first.jobs.value
    assert later.fleet.value is first.fleet.value
    cluster.add_job("next", "team-a")
    clock.later(3)
    assert live_reader().read(clock.now()).jobs.value is not first.jobs.value


def test_while_the_proxy_is_away_the_map_stays_and_is_said_to_be_old(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    hold(cluster, proxy, "bert", "team-a", 4)
    get_page(admin)
    proxy.stop()
    clock.later(75)
    text = get_page(admin)
    assert "The V-IPU Proxy does not answer" in text
    assert "is-stale" in text
    assert "team-a/bert" in text
    proxy.start()


@pytest.mark.parametrize(
    "address", ["/", "/fleet/", "/queue/", "/fleet/machines/v1:8090/ag0/", "/system/"]
)
def test_the_times_in_what_a_proxy_says_are_shown_as_all_others(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock, address: str
) -> None:
    get_page(admin)
    proxy.world.vipu.down = Unavailable("v1:8090: no call since 2026-11-24T08:59:07.250Z")
    proxy.world.later(5)
    clock.later(5)
    text = get_page(admin, address)
    element = '"2026-11-24T08:59:07.250000+00:00">2026-11-24 08:59:07 UTC</time>'
    assert element in text
    assert "2026-11-24T08:59:07" not in text.replace(element, "")


def test_what_was_never_read_is_unknown_and_not_nothing(
    admin: Client, cluster: Cluster, proxy: Proxy
) -> None:
    unknown = "Unknown until the V-IPU Proxy answers."
    proxy.stop()
    for address, count in (("/", 3), ("/fleet/", 1), ("/queue/", 1)):
        text = get_page(admin, address)
        assert text.count(unknown) == count
        for claim in ("No job waits", "No job is waiting", "All that is held", "0 IPU-Machines"):
            assert claim not in text
    proxy.start()


def test_the_page_of_the_fleet_asks_postgres_nothing_but_who_reads_it(
    user: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    with CaptureQueriesContext(connection) as queries:
        get_page(user)
    assert count_queries(queries) <= 3
    hold(cluster, proxy, "all", "team-a", 32)
    proxy.hold("waits", "team-a", 4, uid=cluster.add_job("waits", "team-a"))
    clock.later(3)
    # Both ask for which groups jobs count; the map asks how long such jobs take as those that wait.
    for address, asks in (("/fleet/?fill=group", 5), ("/fleet/table/", 4)):
        with CaptureQueriesContext(connection) as queries:
            get_page(user, address)
        assert count_queries(queries) == asks
    with CaptureQueriesContext(connection) as queries:
        assert "waits" in get_page(user, "/queue/")
    assert count_queries(queries) <= 4


def test_the_failed_jobs_of_a_day_stand_with_their_causes(admin: Client, clock: Clock) -> None:
    ended = clock.now() - dt.timedelta(hours=1)
    failed: dict[str, Any] = {"status": "Failed", "completed_at": ended}
    job_row("a", reason="OOMKilled", **failed)
    job_row("b", reason="OOMKilled", **failed)
    job_row("c", reason="IPUJobFailed", **failed)
    job_row("d", status="Completed", completed_at=ended)
    job_row("old", status="Failed", completed_at=clock.now() - dt.timedelta(hours=25))
    text = get_page(admin, "/")
    assert re.search(r"Failed in 24 h</span>\s*<span class=\"h1\">3 <[^>]*>of 4 that ended", text)
    assert "2 out of memory · 1 exited non-zero" in text


def test_failures_of_other_namespaces_are_not_counted(user: Client, clock: Clock) -> None:
    ended = clock.now() - dt.timedelta(hours=1)
    job_row("mine", "team-a", status="Completed", completed_at=ended)
    job_row("theirs", "team-b", status="Failed", completed_at=ended)
    assert re.search(r"<span class=\"h1\">0 <[^>]*>of 1 that ended", get_page(user, "/"))


def test_the_held_ipus_of_a_day_are_those_of_the_records(clock: Clock) -> None:
    now = clock.now().replace(minute=7, second=0, microsecond=0)
    until = now.replace(minute=0)
    begin = until - dt.timedelta(days=1)
    hour = dt.timedelta(hours=1)
    rows = [
        ("carried", 4, begin - hour, begin + hour),
        ("within", 8, begin + 2 * hour, begin + 2.25 * hour),
        ("held", 2, until - hour, None),
        ("long", 1, begin - 48 * hour, None),
        ("before", 16, begin - 3 * hour, begin - hour),
    ]
    for name, size, reserved, released in rows:
        partition_row(name, size=size, reserved_at=reserved, released_at=released)
    held = read_reach(now, now)[0].trends.held
    assert held.begin == begin
    steps = held.by_owner["team-a", ""]
    assert [amount // STEP_SECONDS for amount in steps[:6]] == [5] * 6
    assert [amount / STEP_SECONDS for amount in steps[12:15]] == [9, 5, 1]
    assert sum(steps) == (4 * 1 + 8 * 0.25 + 2 * 1 + 1 * 24) * 3600


def test_the_api_has_each_ipu_and_who_waits(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    uid = hold(cluster, proxy, "bert", "team-a", 4)
    proxy.hold("large", "team-a", 32)
    found = admin.get("/api/v1/fleet").json()
    assert (found["problem"], len(found["ipus"])) == ("", 32)
    first = found["ipus"][0]
    assert first["state"] in {"held", "idle"}
    assert {**first, "state": ""} == {
        "controller": "v1:8090",
        "cluster": "c",
        "ipulink_domain": 0,
        "machine": "ag0",
        "position": 0,
        "state": "",
        "partition": "p-bert-team-a-0",
        "job_uid": uid,
    }
    assert IpuSerializer(found["ipus"], many=True).data == found["ipus"]  # as it is documented
    assert [ipu["state"] for ipu in found["ipus"]].count("free") == 28
    fits = {fit.pop("size"): fit for fit in found["fits"]}
    assert fits[1]["count"] == 28
    ag1 = {"controller": "v1:8090", "count": 3, "machines": ["ag2", "ag3"]}
    assert fits[8]["places"] == [ag1]
    assert [fits[size]["kind"] for size in (16, 32, 64)] == ["now", "later", "never"]
    assert fits[32]["blockers"] == [uid]
    (waiting,) = found["queue"]
    assert (waiting["ipus"], waiting["kind"], waiting["blockers"]) == (32, "block", [uid])


def test_the_api_names_nothing_that_one_may_not_see(
    user: Client, cluster: Cluster, proxy: Proxy
) -> None:
    hold(cluster, proxy, "secret", "team-b", 8)
    proxy.hold("secret-too", "team-b", 32)
    answer = user.get("/api/v1/fleet")
    assert "secret" not in answer.content.decode()
    assert [ipu["state"] for ipu in answer.json()["ipus"]].count("held") == 8


def test_free_ipus_are_held_against_the_largest_block_a_job_can_get(
    admin: Client, cluster: Cluster, proxy: Proxy
) -> None:
    hold(cluster, proxy, "bert", "team-a", 4)
    found = admin.get("/api/v1/fleet").json()
    (apart,) = found["fragmentation"]
    free = [ipu["state"] for ipu in found["ipus"]].count("free")
    assert apart == {
        "controller": "v1:8090",
        "free": free,
        "largest": 16,
        "possible": 16,
        "percent": 0,
    }
    text = get_page(admin)
    assert "Free: 1 block of 16 IPUs, 1 block of 8 IPUs, 1 block of 4 IPUs" in text
    assert "% fragmented" not in text


def test_controllers_without_a_free_ipu_share_a_line() -> None:
    full = [Fragments(f"v{number}:8090", 0, 0, 0, ()) for number in range(23)]
    some = Fragments("v9:8091", 4, 4, 4, ((4, 1),))
    context = {"map": FleetMap(fragments=(*full, some))}
    text = " ".join(render_to_string("fleet/_fragments.html", context).split())
    assert "No IPU is free on v0:8090, v1:8090, v2:8090 and 20 more controllers." in text
    assert text.count("<li") == 2


@pytest.mark.parametrize(("number", "folded"), [(8, ""), (20, "12 more")])
def test_of_many_fragmented_controllers_the_worst_are_shown_and_the_others_unfold(
    number: int, folded: str
) -> None:
    broken = tuple(Fragments(f"v{at}:8090", 12, 4, 8, ((4, 3),)) for at in range(number))
    text = render_to_string("fleet/_fragments.html", {"map": FleetMap(fragments=broken)})
    first, _, rest = text.partition('<details id="more-fragments">')
    assert first.count("</strong> fragmented") == 8
    assert rest.count("</strong> fragmented") == number - 8
    assert (f"<summary>{folded}</summary>" in rest) is bool(folded)
    assert text.count("<ul") == text.count("</ul>")


def test_the_page_says_of_each_size_whether_it_fits_where_and_when(
    user: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    spec = {"activeDeadlineSeconds": 3600}
    status = RUNNING | {"startTime": clock.now().isoformat()}
    uid = cluster.add_job("bert", "team-a", spec, **status)
    proxy.hold("bert", "team-a", 1, uid=uid)
    sizes = " ".join(get_page(user, "/queue/").split()).partition('id="fits"')[2]
    assert f'once <a href="/jobs/{uid}/">bert</a> ends: by <time' in sizes
    assert "never: no block of the fleet is so large" in sizes
    hold(cluster, proxy, "secret", "team-b", 16)
    clock.later(3)
    sizes = " ".join(get_page(user, "/queue/").split()).partition('id="fits"')[2]
    assert "others end" in sizes
    assert "secret" not in sizes
