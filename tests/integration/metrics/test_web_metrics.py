"""The dashboard's /metrics: the API server authorizes each scrape; while it is down, they still
work."""

from __future__ import annotations

import asyncio
import datetime as dt
import math
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.utils import timezone

from dashboard import metrics
from ipuhub.api.auth import make_token
from ipuhub.web import readings
from partitions.connections import opened, sources
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper

    from tests.integration.metrics.conftest import Accounts

pytestmark = [pytest.mark.embedded_only, pytest.mark.django_db(transaction=True)]


class FakeClock:
    """A clock in place of the module `time` in `dashboard.metrics`."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture(autouse=True)
def fresh(settings: SettingsWrapper) -> Iterator[None]:
    """No connections before the test, nor after it."""
    settings.SECURE_SSL_REDIRECT = False
    settings.METRICS_TOKEN = "for-the-test"
    settings.KUBE_CONTEXT = ""
    opened.cache_clear()
    yield
    if opened.cache_info().currsize:
        sources().close()
    opened.cache_clear()


async def scraped(token: str) -> Any:
    """The answer to a scrape with a token; empty: without a token."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    def scrape() -> Any:
        try:
            return Client().get("/metrics", headers=headers)
        finally:
            connection.close()  # the thread's own

    return await asyncio.to_thread(scrape)


async def test_who_may_get_metrics_by_rbac_reads_them_and_nobody_else_does(
    accounts: Accounts, settings: SettingsWrapper
) -> None:
    settings.KUBECONFIG = str(await accounts.kubeconfig("ipuhub-web"))
    answer = await scraped(accounts.token("reader"))
    assert (answer.status_code, b"django_http_requests_total" in answer.content) == (200, True)
    answer = await scraped(accounts.token("stranger"))
    assert answer.status_code == 403
    assert "system:serviceaccount:monitoring:stranger may not get" in answer.content.decode()
    for token in ("", "wrong", "w\u00e4rong"):
        answer = await scraped(token)
        assert (answer.status_code, answer["WWW-Authenticate"]) == (401, 'Bearer realm="ipuhub"')


async def test_without_the_api_server_the_metrics_token_counts_and_others_are_not_known(
    accounts: Accounts, settings: SettingsWrapper
) -> None:
    settings.KUBECONFIG = str(await accounts.kubeconfig("ipuhub-web"))
    await accounts.cluster.stop()
    answer = await scraped(accounts.token("reader"))
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert (await scraped("for-the-test")).status_code == 200
    assert (await scraped("")).status_code == 401


async def test_without_a_cluster_the_metrics_token_counts(
    tmp_path: Path, settings: SettingsWrapper
) -> None:
    settings.KUBECONFIG = str(tmp_path / "nowhere")
    assert (await scraped("for-the-test")).status_code == 200
    assert (await scraped("other")).status_code == 503


@pytest.mark.parametrize(
    ("lives", "seconds", "want"),
    [(None, 329, 200), (None, 331, 503), (60, 30, 200), (60, 61, 503), (3600, 331, 503)],
)
def test_while_postgres_is_silent_a_good_token_counts_until_it_expires(
    monkeypatch: pytest.MonkeyPatch, lives: int | None, seconds: int, want: int
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(metrics, "time", clock)
    user, now = get_user_model().objects.create_user("root", is_staff=True), timezone.now()
    expires_at = now + dt.timedelta(seconds=lives) if lives else None
    _, text = make_token(user, "scraper", now, expires_at)
    headers = {"Authorization": f"Bearer {text}"}
    assert Client().get("/metrics", headers=headers).status_code == 200
    monkeypatch.setattr(readings._SILENCE, "until", math.inf)
    clock.seconds += seconds
    assert Client().get("/metrics", headers=headers).status_code == want


@contextmanager
def silent_server(folder: Path) -> Iterator[tuple[socket.socket, Path]]:
    """Takes connections and never answers; and the kubeconfig that leads there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = f"http://127.0.0.1:{listening.getsockname()[1]}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        (folder / "silent.kubeconfig").write_text(yaml.safe_dump(config))
        yield listening, folder / "silent.kubeconfig"


async def test_a_silent_api_server_is_not_waited_for(
    tmp_path: Path, settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "PATIENCE_SECONDS", 0.05)
    with silent_server(tmp_path) as (_, kubeconfig):
        settings.KUBECONFIG = str(kubeconfig)
        answer = await scraped("some")
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert "no answer within 0.05 s" in answer.content.decode()


async def test_tokens_that_wait_for_a_silent_api_server_take_a_few_threads_only(
    tmp_path: Path, settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "PATIENCE_SECONDS", 2.0)
    with silent_server(tmp_path) as (_, kubeconfig):
        settings.KUBECONFIG = str(kubeconfig)
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(scraped(f"t{number}")) for number in range(4)]

            async def full() -> bool:
                free = metrics._REVIEWS.acquire(blocking=False)
                if free:
                    metrics._REVIEWS.release()
                return not free

            await eventually(full)
            answer = await scraped("one-more")
            assert "4 earlier reviews" in answer.content.decode()
            assert (await scraped("for-the-test")).status_code == 200
        assert {task.result().status_code for task in waiting} == {503}
    assert metrics._REVIEWS.acquire(blocking=False)  # given back
    metrics._REVIEWS.release()
