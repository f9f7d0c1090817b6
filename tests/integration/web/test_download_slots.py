"""The limit on concurrent downloads: a client beyond it gets Retry-After, and no request blocks."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.utils import timezone

from ipuhub.web.middleware import slots
from tests.builders.clients import browser
from tests.builders.lifetimes import at, store_pod
from tests.integration.usage.reading import make

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client
    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db(transaction=True)
FILE = "/api/v1/usage/reports/2026-10/details.csv"


@pytest.fixture
def client(admin: User, settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch) -> Client:
    """An administrator's browser on a server that streams three files at once, of October."""
    monkeypatch.setattr(timezone, "now", lambda: at("2026-11-21T12:00"))
    settings.WEB_DOWNLOADS, settings.WEB_THREADS = 3, 8
    store_pod("2026-10-01T00:00", "2026-10-02T00:00")
    make("2026-10", "2026-11-03T00:00")
    return browser(admin)


def test_one_user_leaves_a_download_to_the_others(client: Client) -> None:
    other = browser(get_user_model().objects.create_superuser("other"))
    with ExitStack() as open_files:
        for _ in range(2):
            open_files.callback(client.get(FILE).close)
        refused = client.get(FILE)
        assert (refused.status_code, refused["Retry-After"]) == (503, "5")
        assert "You have reached the limit of simultaneous downloads" in refused.json()["detail"]
        # Each client of these tests is a server of its own: the next one asks this server.
        other.handler = client.handler
        theirs: Any = other.get(FILE)
        open_files.callback(theirs.close)
        assert theirs.status_code == 200


def test_one_more_download_is_refused_with_when_to_come_again(
    client: Client, settings: SettingsWrapper
) -> None:
    settings.WEB_DOWNLOADS = 1
    with ExitStack() as open_files:
        open_files.callback(client.get(FILE).close)
        refused = client.get(FILE)
        assert (refused.status_code, refused["Retry-After"]) == (503, "5")
        assert "Try again in 5 seconds" in refused.json()["detail"]
        page = client.get("/usage/pods/?format=csv", headers={"Accept": "text/html"})
        assert (page.status_code, page["Retry-After"]) == (503, "5")
        assert "Too many downloads now" in page.content.decode()
        assert client.get("/usage/").status_code == 200
        assert client.get("/api/v1/usage/reports").status_code == 200
    again: Any = client.get(FILE)
    assert again.status_code == 200
    again.close()


def test_a_file_that_was_read_and_closed_twice_frees_one_place(client: Client) -> None:
    whole = client.get(FILE)
    assert whole.getvalue().count(b"\n") == 3  # columns, a pod, the total
    whole.close()
    whole.close()
    with ExitStack() as open_files:
        for want in (200, 200, 503):
            answer: Any = client.get(FILE)
            open_files.callback(answer.close)
            assert answer.status_code == want


@pytest.mark.parametrize("blocks", [0, 1])
@pytest.mark.parametrize(
    "path",
    [
        FILE,
        "/api/v1/usage/summary?month=2026-10&by=group&format=csv",
        "/api/v1/usage/lifetimes?format=jsonl",
        "/usage/pods/?format=csv",
        "/usage/?month=2026-10&by=group&format=csv",
    ],
)
def test_a_file_whose_reader_left_keeps_nothing_open_in_postgres(
    client: Client, path: str, blocks: int
) -> None:
    answer: Any = client.get(path)
    stream = iter(answer)
    for _ in range(blocks):
        assert next(stream)
    answer.close()
    assert open_cursors() == []


def test_a_refused_download_keeps_nothing_open_in_postgres(client: Client) -> None:
    with ExitStack() as open_files:
        for _ in range(2):
            open_files.callback(client.get(FILE).close)
        sums = "/api/v1/usage/summary?month=2026-10&by=group&format=csv"
        assert client.get(sums).status_code == 503
        assert open_cursors() == []


def open_cursors() -> list[str]:
    """Return the cursors that PostgreSQL keeps for the connection of the web process."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_cursors")
        return [statement for (statement,) in cursor.fetchall()]


@pytest.mark.parametrize(
    ("downloads", "threads", "want"), [(3, 8, 3), (3, 4, 3), (3, 3, 2), (9, 4, 3), (3, 1, 1)]
)
def test_a_thread_always_stays_for_the_rest(downloads: int, threads: int, want: int) -> None:
    assert slots(downloads, threads) == want
