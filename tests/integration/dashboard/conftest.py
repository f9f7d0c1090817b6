"""A web process that reads a real embedded API, a real proxy and a real Postgres."""

from __future__ import annotations

import datetime as dt
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from dashboard import health, live, observing
from dashboard.overview import month, page, trends
from dashboard.queue import typical
from jobs.ipujob.names import IPUJOBS
from partitions.connections import fleet_reader, opened, sources
from tests.builders.roles import grant
from tests.fakes.background import Background, Cluster, Proxy
from tests.fakes.receivers import http_receiver
from tests.integration.dashboard.actionslab import ActionsLab
from usage import selectors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.contrib.auth.models import User
    from django.test import Client
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.receivers import HttpReceiver


class Clock:
    """The moment at which a test began, plus what it adds: no age depends on the machine."""

    def __init__(self) -> None:
        self._added = dt.timedelta()
        self._held: dt.datetime | None = dt.datetime.now(dt.UTC)

    def now(self) -> dt.datetime:
        return (self._held or dt.datetime.now(dt.UTC)) + self._added

    def go(self) -> None:
        """Go with real time from now on, for what a page does after some seconds."""
        self._held = None

    def later(self, seconds: float) -> None:
        self._added += dt.timedelta(seconds=seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timezone, "now", made.now)
    return made


def _forget_readers() -> None:
    if opened.cache_info().currsize:
        sources().close()
    for cached in (live.live_reader, observing._reader, fleet_reader, opened):
        cached.cache_clear()
    health._POLLED._slots.clear()
    selectors._OWNERS._slots.clear()
    month._KEPT._slots.clear()
    trends._kept.clear()
    page._POLLED._slots.clear()
    typical._KEPT._slots.clear()


@pytest.fixture(autouse=True)
def alone(settings: SettingsWrapper, tmp_path: Path) -> Iterator[None]:
    """Plain HTTP, without any other service."""
    settings.SECURE_SSL_REDIRECT = False
    settings.KUBECONFIG = str(tmp_path / "no-kubeconfig")
    settings.PROXY_URL = "http://127.0.0.1:9"
    settings.SERVICE_ACCOUNT = ""
    settings.PROXY_TOKEN = "web"
    _forget_readers()
    yield
    _forget_readers()


@pytest.fixture(scope="module")
def background() -> Iterator[Background]:
    made = Background()
    yield made
    made.close()


@pytest.fixture
def cluster(background: Background, tmp_path: Path, settings: SettingsWrapper) -> Iterator[Cluster]:
    made = Cluster(background, tmp_path / "cluster")
    settings.KUBECONFIG = made.kubeconfig
    yield made
    made.stop()


@pytest.fixture
def proxy(background: Background, cluster: Cluster, settings: SettingsWrapper) -> Iterator[Proxy]:
    made = Proxy(background)
    settings.PROXY_URL = made.url
    yield made
    made.close()


@pytest.fixture
def admin(client: Client) -> Client:
    client.force_login(get_user_model().objects.create_user("root", is_staff=True))
    return client


@pytest.fixture
def user(client: Client) -> Client:
    """Sees team-a only."""
    somebody = get_user_model().objects.create_user("anna")
    grant(somebody, "operator", "team-a")
    client.force_login(somebody)
    return client


@pytest.fixture
def receiver(settings: SettingsWrapper) -> Iterator[HttpReceiver]:
    settings.NOTIFY_NETWORKS = [ip_network("127.0.0.0/8")]
    settings.PUBLIC_URL = "https://ipuhub.example/"
    with http_receiver() as found:
        yield found


@pytest.fixture
def ann() -> User:
    user = get_user_model().objects.create_user("ann")
    grant(user, "viewer", "team-a")
    return user


@pytest.fixture(scope="module")
def actions_cluster(
    background: Background, tmp_path_factory: pytest.TempPathFactory, given_cluster: str
) -> Iterator[ActionsLab]:
    made = ActionsLab(background, tmp_path_factory.mktemp("actions"), given_cluster)
    yield made
    made.close()


@pytest.fixture
def lab(actions_cluster: ActionsLab, settings: SettingsWrapper) -> Iterator[ActionsLab]:
    """The cluster without jobs, and a dashboard whose users change jobs in it."""
    settings.KUBECONFIG = actions_cluster.kubeconfig
    settings.ACTIONS = True
    settings.ACTIONS_USERS = {"ann": "ann@lab", "bob": "bob@lab", "eve": "eve@lab"}
    settings.ACTIONS_SINGLE_SIGN_ON = ""
    yield actions_cluster
    for namespace in ("team-a", "team-b"):
        for item in actions_cluster.run("list", IPUJOBS, namespace).items:
            actions_cluster.run("delete", IPUJOBS, item["metadata"]["name"], namespace)
