"""The whole way: a pod on the embedded API, the real prober, Postgres, the files and the API."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from tests.builders.clients import api_client
from tests.builders.lifetimes import at
from tests.fakes.background import Background
from tests.fakes.meter import Meter
from tests.integration.usage.reading import make

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.test import Client


@pytest.fixture
def meter(transactional_db: None, tmp_path: Path) -> Iterator[Meter]:
    background = Background()
    meter = Meter(background, tmp_path / "cluster")
    yield meter
    meter.close()
    background.close()


class Accountant:
    """An administrator's tool: makes reports, and reads them and the API over HTTP."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def make(self, month: str = "2026-10", now: str = "2026-11-03T00:00") -> None:
        make(month, now)

    def file(self, kind: str, month: str = "2026-10", profile: str = "default") -> Any:
        """The answer; who does not read it to its end closes it."""
        path = f"/api/v1/usage/reports/{month}/{kind}.csv?profile={profile}"
        return self.client.get(path)

    def rows(
        self, kind: str, month: str = "2026-10", profile: str = "default"
    ) -> list[dict[str, str]]:
        answer = self.file(kind, month, profile)
        assert answer.status_code == 200
        text = answer.getvalue().decode()
        answer.close()
        rows = csv.DictReader(io.StringIO(text, newline=""))
        return [row for row in rows if row["report_month"] != "total"]

    def listed(self, what: str, **query: str) -> list[dict[str, Any]]:
        """The rows of a list of the API."""
        answer = self.client.get(f"/api/v1/usage/{what}", query)
        assert answer.status_code == 200, answer.content
        found: list[dict[str, Any]] = answer.json()["results"]
        return found


@pytest.fixture
def accountant(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Accountant:
    monkeypatch.setattr(timezone, "now", lambda: at("2026-11-21T12:00"))
    user = get_user_model().objects.create_user("ann", password="x", is_staff=True)
    return Accountant(api_client(user))
