"""Features that PrimeHub Usage lacks and IPUHub has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.test import Client

from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import store_partition, store_pod
from tests.builders.roles import grant
from usage.models import PodLifetime

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from tests.integration.usage.peerfaults.conftest import Accountant

SUMS = "/api/v1/usage/summary?by=group"


def summed(client: Client, query: str) -> list[dict[str, Any]]:
    """Sums by group."""
    answer = client.get(f"{SUMS}&{query}")
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def test_20_a_closed_month_stays_when_its_pods_are_gone(accountant: Accountant) -> None:
    """There, all pods and a table for each month are kept forever, since reports need them."""
    store_pod("2026-08-01T00:00", "2026-08-01T01:00")
    accountant.make("2026-08", "2026-11-03T00:00")
    before = [accountant.rows(kind, "2026-08") for kind in ("summary", "details")]
    PodLifetime.objects.all().delete()
    assert [accountant.rows(kind, "2026-08") for kind in ("summary", "details")] == before
    assert before[1][0]["usage_hours"] == "1.00000"


@pytest.mark.django_db
def test_20_tables_are_made_by_migrations_and_by_nothing_else() -> None:
    """There, the program makes its tables itself and the one migration is empty."""
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


def test_21_any_range_group_and_filter_as_json(accountant: Accountant) -> None:
    """There, a month is all there is, as CSV, of everybody."""
    store_pod("2026-10-10T00:00", "2026-10-10T04:00", group="vision", cpu=2)
    store_pod("2026-10-10T00:00", "2026-10-10T04:00", group="speech", user="bob", cpu=1)
    store_partition("2026-10-10T00:00", "2026-10-10T06:00", size=4, group="vision")
    range_ = "from=2026-10-10T01:00:00Z&to=2026-10-10T03:00:00Z"
    sums = {row["key"]["group"]: row for row in summed(accountant.client, range_)}
    assert sums["vision"]["cpu_core_hours"] == "4.00000"
    assert sums["vision"]["partition_ipu_hours"] == "8.00000"
    assert sums["speech"]["cpu_core_hours"] == "2.00000"
    only = summed(accountant.client, f"{range_}&user=bob")
    assert [row["key"]["group"] for row in only] == ["speech"]


def test_21_series_and_a_chart(accountant: Accountant) -> None:
    """There, nothing shows how usage went over time."""
    store_pod("2026-10-10T23:00", "2026-10-11T02:00", ipus=1)
    series = accountant.client.get("/api/v1/usage/series?month=2026-10&step=day").json()
    hours = [row["ipu_hours"] for row in series["results"] if row["ipu_hours"] != "0.00000"]
    assert hours == ["1.00000", "2.00000"]
    user = get_user_model().objects.get(username="ann")
    chart = browser(user).get("/usage/chart.json?month=2026-10").json()
    assert sum(chart["series"][0]["values"]) == 3.0


def test_21_people_see_their_own_and_strangers_nothing(accountant: Accountant) -> None:
    """There, usage is the administrator's alone, behind the console; the API checks no token."""
    store_pod("2026-10-10T00:00", "2026-10-10T01:00", namespace="team-a", group="a")
    store_pod("2026-10-10T00:00", "2026-10-10T01:00", namespace="team-b", group="b")
    alice = get_user_model().objects.create_user("alice", password="x")
    stranger = get_user_model().objects.create_user("charlie", password="x")
    grant(alice, "operator", "team-a")
    month = "month=2026-10"
    assert [row["key"]["group"] for row in summed(api_client(alice), month)] == ["a"]
    assert summed(api_client(stranger), month) == []
    for path in (f"{SUMS}&{month}", "/report/monthly", "/report/monthly/details/2026/10"):
        assert Client().get(path).status_code == 401


def test_21_there_is_no_password_that_everybody_knows(settings: SettingsWrapper) -> None:
    """There, the database's password stands in the chart's values."""
    settings.SECRET_KEY = ""
    with pytest.raises(CommandError, match="50 random characters"):
        call_command("run_web")
