"""The components on System, in the header and in the API, during real outages."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from django.contrib.auth import get_user_model
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dashboard import observing
from dashboard.components import UP, Component
from dashboard.health import read_stored
from dashboard.notify.rounds import make_round
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import LEASES, NAMESPACES
from ipuhub.models import ComponentOutage, Heartbeat, TaskMessage, WatchCheckpoint
from ipuhub.workerhealth import heartbeat
from partitions.vipu.errors import Unavailable
from usage.models import MonitorRound, ReportRun

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.background import Background, Cluster, Proxy
    from tests.integration.dashboard.conftest import Clock

pytestmark = pytest.mark.django_db


def states(admin: Client) -> dict[str, str]:
    found = admin.get("/api/v1/components").json()["results"]
    return {each["name"]: each["state"] for each in found}


def add_lease(background: Background, cluster: Cluster, name: str, renewed: dt.datetime) -> None:
    async def add() -> None:
        async with KubeClient(load_config(cluster.kubeconfig)) as client:
            if not [
                one
                for one in (await client.list(NAMESPACES)).items
                if one["metadata"]["name"] == "ipuhub-system"
            ]:
                await client.create(NAMESPACES, {"metadata": {"name": "ipuhub-system"}})
            meta: dict[str, Any] = {"name": name, "namespace": "ipuhub-system"}
            spec: dict[str, Any] = {
                "holderIdentity": f"{name}-0",
                "leaseDurationSeconds": 15,
                "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            }
            spec["acquireTime"] = "2026-11-20T09:00:00.000000Z"
            meta["annotations"] = {"ipuhub.io/version": "0.0.9"}
            lease = {"metadata": meta, "spec": spec}
            await client.create(LEASES, lease)

    background.run(add())


def test_each_component_is_judged_by_its_own_sign_of_life(
    admin: Client, cluster: Cluster, proxy: Proxy, background: Background, clock: Clock
) -> None:
    add_lease(background, cluster, "ipu-operator", clock.now())
    add_lease(background, cluster, "ipuhub-prober", clock.now() - dt.timedelta(hours=1))
    heartbeat()
    for name in ("worker", "beat", "prober"):  # the prober's may be a standby's
        Heartbeat.objects.create(name=name, at=clock.now(), version="0.0.8")
    found = states(admin)
    assert found == {
        "Dashboard": "unknown",
        "PostgreSQL": "up",
        "Kubernetes API": "up",
        "IPU Operator": "up",
        "V-IPU Proxy": "up",
        "V-IPU controller v1:8090": "up",
        "V-IPU agents of v1:8090": "up",
        "Prober": "down",
        "Monitor": "unknown",
        "Worker": "up",
        "Beat": "up",
    }
    assert "Down: Prober" in admin.get("/system/health").content.decode()
    listed = {each["name"]: each for each in admin.get("/api/v1/components").json()["results"]}
    assert {name: each["version"] for name, each in listed.items() if each["version"]} == {
        "PostgreSQL": listed["PostgreSQL"]["version"],
        "Kubernetes API": listed["Kubernetes API"]["version"],
        "V-IPU controller v1:8090": "1.18.0",
        "V-IPU agents of v1:8090": "2.6.0",
        "IPU Operator": "0.0.9",
        "Prober": "0.0.9",
        "Worker": "0.0.8",
        "Beat": "0.0.8",
    }
    assert re.fullmatch(r"1\d\.\d+", listed["PostgreSQL"]["version"])
    assert re.fullmatch(r"v1\.\d+\.\d+.*", listed["Kubernetes API"]["version"])
    assert listed["IPU Operator"]["leads_since"] == "2026-11-20T09:00:00Z"
    assert listed["Prober"]["leads_since"] is None
    text = tile_text(admin, "IPU Operator")
    assert re.search(r"up: leads Version 0\.0\.9 Leader ipu-operator-0, for \d+ d", text)


def tile_text(admin: Client, name: str) -> str:
    """Return the words of a component's tile on System."""
    tiles = admin.get("/system/").content.decode().split('<ul class="components">')[1]
    (tile,) = [each for each in tiles.split("</li>") if f"<strong>{name}</strong>" in each]
    return " ".join(re.sub(r"<[^>]*>", " ", tile).replace(" ,", ",").split())


def outage(name: str, since: dt.datetime, minutes: float | None, **more: str) -> None:
    ended_at = None if minutes is None else since + dt.timedelta(minutes=minutes)
    values = {"detail": "stopped: no replica leads", "episode": since} | more
    ComponentOutage.objects.create(name=name, since=since, ended_at=ended_at, **values)


def test_recorded_agents_come_after_controllers_as_where_they_are_found() -> None:
    agents = Component("V-IPU agents of v1:8090", UP, "answer", members=("ag0",))
    controllers = [Component(f"V-IPU controller v{n}:8090", UP, "answers") for n in (1, 2)]
    assert observing.missing([], [agents, *controllers]) == [*controllers, agents]


def test_the_last_outage_of_a_component_stays_on_its_tile_after_it(admin: Client) -> None:
    day = dt.datetime(2026, 11, 26, 14, 2, tzinfo=dt.UTC)
    outage("Prober", day - dt.timedelta(days=2), 9, detail="an older one")
    outage("Prober", day, 5)
    outage("Beat", day, 24 * 60)
    outage("Worker", day - dt.timedelta(days=1), 3, detail="an older one")
    outage("Worker", day, None, detail="no heartbeat")
    agents = "V-IPU agents of v1:8090"
    outage(agents, day, 4, member="ag1", detail="does not answer")
    outage(agents, day, 6, member="ag2", detail="does not answer")
    others = "V-IPU agents of v2:8090"
    outage(others, day - dt.timedelta(days=1), None, member="ag3", detail="does not answer")
    outage(others, day, 4, member="ag4", detail="does not answer")
    listed = {each["name"]: each for each in admin.get("/api/v1/components").json()["results"]}
    assert listed["Prober"]["last_outage"] == {
        "began_at": "2026-11-26T14:02:00Z",
        "ended_at": "2026-11-26T14:07:00Z",
        "detail": "stopped: no replica leads",
        "members": [],
    }
    assert listed["Worker"]["last_outage"]["ended_at"] is None
    assert listed["Monitor"]["last_outage"] is None
    stored = read_stored(timezone.now()).outages
    assert (stored[others].members, stored[others].ended_at) == (("ag3",), None), "it lasts"
    last = stored[agents]
    assert (last.members, last.ended_at) == (("ag1", "ag2"), day + dt.timedelta(minutes=6))
    assert last.reason == "ag1, ag2: does not answer"
    assert "Last outage 2026-11-26 14:02 to 14:07 : stopped: no" in tile_text(admin, "Prober")
    assert "2026-11-26 14:02 to 2026-11-27 14:02 :" in tile_text(admin, "Beat")
    assert "Last outage 2026-11-26 14:02 until now: no heartbeat" in tile_text(admin, "Worker")
    assert "Last outage none in 60 days" in tile_text(admin, "Monitor")


def test_how_far_the_work_of_prober_and_worker_is_behind(admin: Client, clock: Clock) -> None:
    for name, lag in (("pods", 0.25), ("jobs", 1.5), ("nodes", None)):
        WatchCheckpoint.objects.create(name=name, position_at=clock.now(), lag_seconds=lag)
    Heartbeat.objects.create(name="worker", at=clock.now())
    queued = clock.now() - dt.timedelta(seconds=12)
    TaskMessage.objects.create(queue="celery", body="{}", queued_at=queued)
    answer = admin.get("/api/v1/components")
    lags = {each["name"]: each["lag_seconds"] for each in answer.json()["results"]}
    assert {name: lag for name, lag in lags.items() if lag is not None} == {
        "Prober": 1.5,
        "Worker": 12.0,
    }
    assert "Lag 1.50 s" in tile_text(admin, "Prober")
    clock.later(1)
    same = admin.get("/api/v1/components", headers={"If-None-Match": answer["ETag"]})
    assert same.status_code == 304


def test_a_new_release_of_postgres_shows_once_a_thread_has_connected_again(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What Django read over the connection that the thread had before.
    monkeypatch.setitem(vars(connections["default"]), "pg_version", 90_001)
    found = {each["name"]: each for each in admin.get("/api/v1/components").json()["results"]}
    assert found["PostgreSQL"]["version"] != "9.1"


def test_a_frozen_operator_is_seen(
    admin: Client, cluster: Cluster, proxy: Proxy, background: Background, clock: Clock
) -> None:
    add_lease(background, cluster, "ipu-operator", clock.now())
    assert states(admin)["IPU Operator"] == "up"
    clock.later(45)
    assert states(admin)["IPU Operator"] == "down"
    text = admin.get("/system/").content.decode()
    assert "has not renewed its Lease for" in text
    assert "ipu-operator-0" in text


def test_a_frozen_controller_is_not_blamed_on_the_proxy(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    proxy.hold("bert", "team-a", 4)
    states(admin)
    proxy.world.vipu.down = Unavailable("v1:8090: deadline exceeded")
    proxy.world.later(5)
    clock.later(5)
    found = states(admin)
    assert (found["V-IPU Proxy"], found["V-IPU controller v1:8090"]) == ("up", "down")


def test_a_proxy_that_is_away_is_named(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    proxy.stop()
    assert states(admin)["V-IPU Proxy"] == "down"
    proxy.start()


def test_a_worker_that_leaves_tasks_waiting_is_down(admin: Client, clock: Clock) -> None:
    heartbeat()
    for name in ("worker", "beat"):
        Heartbeat.objects.create(name=name, at=clock.now())
    assert states(admin)["Worker"] == "up"
    clock.later(300)
    Heartbeat.objects.filter(name="worker").update(at=clock.now())
    assert (states(admin)["Worker"], states(admin)["Beat"]) == ("up", "down")
    Heartbeat.objects.filter(name="beat").update(at=clock.now())
    queued = clock.now() - dt.timedelta(seconds=200)
    TaskMessage.objects.create(queue="celery", body="{}", queued_at=queued)
    assert (states(admin)["Worker"], states(admin)["Beat"]) == ("down", "up")
    outage("Worker", clock.now(), None, detail="its reason stands above")
    assert tile_text(admin, "Worker").endswith(" until now")


@pytest.mark.parametrize("part", ["Prober", "Monitor", "Worker", "Beat"])
def test_a_frozen_process_is_named_by_its_heartbeat(
    admin: Client, cluster: Cluster, proxy: Proxy, background: Background, clock: Clock, part: str
) -> None:
    """All but one go on, and what the frozen process left behind looks as if it worked."""
    names = ("prober", "monitor", "worker", "beat", "tasks", "web")
    for name in names:
        Heartbeat.objects.create(name=name, at=clock.now())
    clock.later(130)
    now = clock.now()
    add_lease(background, cluster, "ipu-operator", now)
    add_lease(background, cluster, "ipuhub-prober", now)
    WatchCheckpoint.objects.create(name="pods", position_at=now)
    values = {"began_at": now, "ended_at": now, "checked": 0, "present": 0, "closed": 0}
    MonitorRound.objects.create(cluster_uid="c", **values, left=0)
    ReportRun.objects.create(state=ReportRun.State.RUNNING, requested_at=now)
    Heartbeat.objects.exclude(name=part.lower()).update(at=now)
    assert [name for name, state in states(admin).items() if state != "up"] == [part]
    assert f"Down: {part}" in admin.get("/system/health").content.decode()
    assert tile_text(admin, part).count("2 min 10 s") == 1


def test_who_only_waits_for_the_api_server_is_not_down(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    now = clock.now()
    WatchCheckpoint.objects.create(name="pods", position_at=now)
    values = {"began_at": now, "ended_at": now, "checked": 0, "present": 0, "closed": 0}
    MonitorRound.objects.create(cluster_uid="c", **values, left=0)
    cluster.stop()
    proxy.stop()
    try:
        clock.later(600)
        for name in ("prober", "monitor"):
            Heartbeat.objects.create(name=name, at=clock.now())
        found = states(admin)
        assert (found["Kubernetes API"], found["Prober"], found["Monitor"]) == ("down", "up", "up")
        make_round(clock.now())
        assert {each.name for each in ComponentOutage.objects.all()} == {"Kubernetes API"}
    finally:
        cluster.start()
        proxy.start()


def test_what_is_known_stays_with_its_age_while_the_proxy_is_away(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    make_round(clock.now())
    proxy.stop()
    clock.later(120)
    found = states(admin)
    assert found["V-IPU Proxy"] == "down"
    assert found["V-IPU controller v1:8090"] == found["V-IPU agents of v1:8090"] == "unknown"
    assert "before that it was up" in admin.get("/system/").content.decode()
    proxy.start()
    clock.later(5)
    assert states(admin)["V-IPU controller v1:8090"] == "up"


def test_agents_that_do_not_answer_are_counted_and_named(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    proxy.world.vipu.lost = {"ag1", "ag3"}
    (agents,) = [
        each
        for each in admin.get("/api/v1/components").json()["results"]
        if each["name"] == "V-IPU agents of v1:8090"
    ]
    assert (agents["state"], agents["members"], agents["absent"]) == ("down", 8, ["ag1", "ag3"])
    text = admin.get("/system/").content.decode()
    assert "6 of 8 answer" in text
    assert "silent: ag1, ag3" in text
    assert "2 V-IPU agents of v1:8090" in admin.get("/system/health").content.decode()


def test_without_a_cluster_the_page_names_the_api_server(admin: Client) -> None:
    answer = admin.get("/system/")
    assert answer.status_code == 200
    assert "Kubernetes API" in answer.content.decode()
    assert states(admin)["Kubernetes API"] == "down"
    assert states(admin)["IPU Operator"] == "unknown"


@pytest.mark.parametrize(
    ("credentials", "cause"),
    [
        ({"tokenFile": "empty"}, "is empty"),
        (
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}},
            "exec plug-in false failed",
        ),
    ],
)
def test_missing_credentials_are_named_and_not_blamed_on_the_proxy(
    admin: Client,
    cluster: Cluster,
    proxy: Proxy,
    settings: SettingsWrapper,
    tmp_path: Path,
    credentials: dict[str, Any],
    cause: str,
) -> None:
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text("utf-8"))
    for each in config["users"]:
        each["user"] = credentials
    (tmp_path / "empty").touch()
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config), "utf-8")
    settings.KUBECONFIG = str(tmp_path / "kubeconfig")
    proxy.stop()
    assert (states(admin)["Kubernetes API"], states(admin)["V-IPU Proxy"]) == ("down", "unknown")
    page = admin.get("/system/").content.decode()
    assert "The web process has no credentials for the Kubernetes API: " in page
    assert cause in page


def test_without_usage_its_components_are_not_missed(
    admin: Client, settings: SettingsWrapper
) -> None:
    settings.USAGE_ENABLED = False
    assert not {"Monitor", "Prober", "Worker", "Beat"} & states(admin).keys()


def test_others_learn_that_something_is_down_and_not_what(
    user: Client, cluster: Cluster, proxy: Proxy, background: Background, clock: Clock
) -> None:
    add_lease(background, cluster, "ipuhub-prober", clock.now() - dt.timedelta(hours=1))
    assert user.get("/api/v1/components").status_code == 403
    assert 'id="health"' in user.get("/").content.decode()
    line = user.get("/system/health").content.decode()
    assert re.search(r'class="nav-link health is-down".*?>\d+ of \d+ components down<', line)
    assert "<a " not in line
    for name in ("Operator", "Prober", "V-IPU", "Dashboard", "Worker"):
        assert name not in line


def test_the_dots_of_all_readers_share_what_is_stored_for_a_few_seconds(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    other = Client()
    other.force_login(get_user_model().objects.create_user("bob"))

    def get_health(client: Client) -> tuple[int, str]:
        with CaptureQueriesContext(connection) as queries:
            text = client.get("/system/health").content.decode()
        return sum(Heartbeat._meta.db_table in each["sql"] for each in queries), text

    Heartbeat.objects.create(name="worker", at=clock.now() - dt.timedelta(minutes=3))
    first, second = get_health(admin), get_health(other)
    assert (first[0], second[0]) == (1, 0)
    assert ("Worker" in first[1], "Worker" in second[1]) == (True, False)
    Heartbeat.objects.update(at=clock.now())
    clock.later(6)
    again = get_health(admin)
    assert (again[0], "Worker" in again[1]) == (1, False)


def test_the_polled_page_is_304_while_nothing_changes(
    admin: Client, cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    heartbeat()
    htmx = {"HX-Request": "true"}
    tag = admin.get("/system/", headers=htmx)["ETag"]
    clock.later(3)
    heartbeat()
    assert admin.get("/system/", headers=htmx | {"If-None-Match": tag}).status_code == 304
