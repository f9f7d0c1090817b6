"""A question that reads too many rows is stopped and refused in words; the next question is
answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from dashboard.overview import month
from ipuhub.web.access import Scope
from ipuhub.web.readings import Shared
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_pod
from usage.models import RollupState
from usage.sums.rollups import refresh
from usage.time.months import usage_zone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db(transaction=True)
NOW = at("2026-11-21T12:00")
SUMS = "/api/v1/usage/summary?month=2026-10"


@pytest.fixture(autouse=True)
def _lifetimes(settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A view in the table's place, of which each read takes two seconds."""
    settings.USAGE_QUERY_SECONDS = 1
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    for number in ("10", "11"):
        store_pod(f"2026-{number}-05T00:00", f"2026-{number}-05T01:00", ipus=1)
    refresh(NOW, usage_zone())
    _run("ALTER TABLE usage_podlifetime RENAME TO slow_podlifetime")
    _run(
        "CREATE VIEW usage_podlifetime AS SELECT slow.* FROM slow_podlifetime AS slow,"
        " (SELECT pg_sleep(2) OFFSET 0) AS nap"
    )
    yield
    _run("DROP VIEW usage_podlifetime")
    _run("ALTER TABLE slow_podlifetime RENAME TO usage_podlifetime")


def _run(statement: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.parametrize(
    "path",
    [
        f"{SUMS}&by=job",
        f"{SUMS}&by=job&format=csv",
        "/api/v1/usage/series?month=2026-10&step=hour&by=user",
        "/usage/?month=2026-10&by=job",
        "/usage/chart.json?month=2026-10&by=job",
    ],
)
def test_what_reads_too_many_rows_is_refused_with_the_remedy(
    django_user_model: Any, path: str
) -> None:
    user = django_user_model.objects.create_user("root", is_staff=True)
    answer = (api_client(user) if path.startswith("/api/") else browser(user)).get(path)
    assert answer.status_code == 400
    assert "stopped after 1 s" in answer.content.decode()
    assert "Request a shorter range" in answer.content.decode()
    assert "in steps of a day or longer, by namespace" in answer.content.decode()
    if path.startswith("/api/"):
        assert answer["Content-Type"] == "application/problem+json"
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone()[0] == "0"
    got = api_client(user).get(f"{SUMS}&by=group")
    assert got.json()["total"]["exact"]["micro_ipu_seconds"] == 3600 * 10**6


def test_without_a_limit_it_is_waited_for(
    django_user_model: Any, settings: SettingsWrapper
) -> None:
    settings.USAGE_QUERY_SECONDS = 0
    user = django_user_model.objects.create_user("root", is_staff=True)
    got = api_client(user).get(f"{SUMS}&by=job")
    assert got.json()["total"]["exact"]["micro_ipu_seconds"] == 3600 * 10**6


def test_the_overview_goes_on_without_the_sum_of_the_month(monkeypatch: pytest.MonkeyPatch) -> None:
    RollupState.objects.all().delete()
    monkeypatch.setattr(month, "_KEPT", Shared(seconds=30))
    assert month.read_month(Scope(None), NOW, usage_zone(), costed=True).is_refused
