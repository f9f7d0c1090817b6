"""Rounds of the web process: observed components, queued and sent notifications."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dashboard import observing
from dashboard.health import read_recorded
from dashboard.notify.rounds import claim, make_round
from devcluster.security.certificates import Authority
from ipuhub import __version__
from ipuhub.addresses import EVERYWHERE, address_of
from ipuhub.models import ComponentOutage, Heartbeat, MachineIncident, Notification
from tests.builders.notifications import MINUTE, store_ended_job, subscribe
from tests.fakes.freeport import free_port
from tests.fakes.loopbacks import loopbacks
from tests.fakes.waiting import wait_until
from tests.integration.web.webprocess import ROOT, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.background import Cluster, Proxy
    from tests.fakes.receivers import HttpReceiver
    from tests.integration.dashboard.conftest import Clock


def recorded(now: dt.datetime) -> dict[str, str]:
    return {each.name: each.state for each in read_recorded(now)}


@pytest.fixture
def webhooks(tmp_path: Path, settings: SettingsWrapper) -> Iterator[subprocess.Popen[bytes]]:
    """The process, with a certificate in files, as cert-manager gives it: without a Lease."""
    issued = Authority(tmp_path / "ca").issue("webhooks", (), ("127.0.0.1",))
    (tmp_path / "tls.crt").write_bytes(issued.certificate)
    (tmp_path / "tls.key").write_bytes(issued.key)
    port, health = (free_port() for _ in range(2))
    settings.WEBHOOK_ADDRESS = address_of(loopbacks()[-1], port)  # of IPv6, if there is one
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "",
        "KUBECONFIG": str(tmp_path / "nowhere"),
        "IPUHUB_WEBHOOK_HOST": EVERYWHERE,
        "IPUHUB_WEBHOOK_PORT": str(port),
        "IPUHUB_WEBHOOK_CERTIFICATE_PATH": str(tmp_path / "tls.crt"),
        "IPUHUB_WEBHOOK_KEY_PATH": str(tmp_path / "tls.key"),
        "IPUHUB_HEALTH_PORT": str(health),
    }
    process = subprocess.Popen(
        [sys.executable, "manage.py", "run_webhooks"], cwd=ROOT, env=environment
    )
    try:
        wait_until(lambda: not asyncio.run(observing._ask_webhooks(settings.WEBHOOK_ADDRESS))[0])
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(90)


@pytest.mark.django_db
def test_webhooks_that_are_stopped_are_down_for_the_worker_too(
    webhooks: subprocess.Popen[bytes], cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    make_round(clock.now())
    (found,) = [each for each in read_recorded(clock.now()) if each.name == "Webhooks"]
    assert (found.state, found.version) == ("up", __version__)  # without a Lease that says it
    webhooks.send_signal(signal.SIGSTOP)
    clock.later(30)
    make_round(clock.now())
    assert recorded(clock.now())["Webhooks"] == "down"
    assert ComponentOutage.objects.filter(name="Webhooks", ended_at=None).exists()
    webhooks.send_signal(signal.SIGCONT)
    clock.later(30)
    make_round(clock.now())
    assert recorded(clock.now())["Webhooks"] == "up"


@pytest.mark.django_db
def test_a_round_notes_a_cordon_and_its_end(cluster: Cluster, proxy: Proxy, clock: Clock) -> None:
    proxy.world.vipu.cordons["ag1"] = "cables"
    began = clock.now()
    make_round(began)
    (incident,) = MachineIncident.objects.all()
    assert (incident.machine, incident.what) == ("ag1", "ag1 is cordoned: cables")
    assert (incident.since, incident.ended_at) == (began, None)
    proxy.world.vipu.cordons.clear()
    clock.later(30)
    proxy.stop()
    make_round(clock.now())
    assert MachineIncident.objects.filter(ended_at=None).exists()  # nobody knows
    proxy.start()
    proxy.world.later(600)  # it asks for cordons now and then
    clock.later(30)
    ended = clock.now()
    make_round(ended)
    incident.refresh_from_db()
    assert incident.ended_at == ended


@pytest.mark.django_db
def test_without_the_api_server_only_it_is_down(
    cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    make_round(clock.now())
    cluster.stop()
    proxy.stop()
    clock.later(30)
    make_round(clock.now())
    found = recorded(clock.now())
    assert found["Kubernetes API"] == "down"
    assert (found["IPU Operator"], found["V-IPU Proxy"]) == ("unknown", "unknown")
    cluster.start()
    proxy.start()
    clock.later(30)
    make_round(clock.now())
    assert recorded(clock.now())["Kubernetes API"] == "up"


@pytest.mark.django_db
def test_a_controller_that_is_off_the_list_is_forgotten(
    cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    proxy.world.vipu.lost = {"ag1"}
    make_round(clock.now())
    assert recorded(clock.now())["V-IPU agents of v1:8090"] == "down"
    proxy.world.add_vipu("v2:8090")
    proxy.world.listed = "v2:8090:vipu-ctrl=v1"
    proxy.reload()
    clock.later(30)
    make_round(clock.now())
    names = {name for name in recorded(clock.now()) if "8090" in name}
    assert names == {"V-IPU controller v2:8090", "V-IPU agents of v2:8090"}


@pytest.mark.django_db
def test_more_controllers_cost_a_round_no_more_queries(
    cluster: Cluster, proxy: Proxy, clock: Clock
) -> None:
    counted = []
    for listed in ("v1", "v1,v2,v3"):
        for name in listed.split(","):
            proxy.world.add_vipu(f"{name}:8090")
        each = [f"{name}:8090:vipu-ctrl=v1" for name in listed.split(",")]
        proxy.world.listed = ",".join(each)
        proxy.reload()
        clock.later(30)
        make_round(clock.now())
        clock.later(30)
        with CaptureQueriesContext(connection) as queries:
            make_round(clock.now())
        counted.append(len(queries))
        assert len([name for name in recorded(clock.now()) if "controller" in name]) == len(each)
    assert counted[0] == counted[1] <= 25


@pytest.mark.django_db
def test_of_several_replicas_one_makes_the_round() -> None:
    now = timezone.now()
    assert [claim(now), claim(now), claim(now + dt.timedelta(seconds=20))] == [True, False, False]
    assert claim(now + dt.timedelta(seconds=30))
    assert Heartbeat.objects.get(name="web").version == __version__
    assert Heartbeat.objects.get(name="web").at == now + dt.timedelta(seconds=30)


@pytest.mark.django_db
def test_it_sends_only_while_no_worker_does(
    ann: User, receiver: HttpReceiver, clock: Clock
) -> None:
    subscribe(ann, target=receiver.url)
    store_ended_job()
    Heartbeat.objects.create(name="tasks", at=clock.now())
    make_round(clock.now())
    assert (Notification.objects.get().state, receiver.got) == ("queued", [])
    clock.later(300)
    make_round(clock.now())
    assert (Notification.objects.get().state, len(receiver.got)) == ("sent", 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("usage", ["on", "off"])
def test_a_dashboard_alone_sends_what_it_observes(receiver: HttpReceiver, usage: str) -> None:
    """No worker runs, as where usage is off, and the API server does not answer."""
    root = get_user_model().objects.create_user("root", is_staff=True)
    subscribe(root, "component-down", target=receiver.url)
    since = timezone.now() - 4 * MINUTE
    ComponentOutage.objects.create(
        name="Kubernetes API", since=since, episode=since, detail="no answer"
    )
    more = {"IPUHUB_NOTIFY_NETWORKS": "127.0.0.0/8", "KUBECONFIG": "/nowhere"}
    with served(USAGE_ENABLED=usage, **more):
        wait_until(lambda: receiver.got)
    assert json.loads(receiver.got[0][2])["subject"] == "Kubernetes API is down: no answer"
    assert Heartbeat.objects.filter(name="web", looked_at=None).exists()
