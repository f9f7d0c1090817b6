"""The cost of jobs in their list: of all their pods and partitions, for those who may see rates."""

from __future__ import annotations

import csv
import datetime as dt
import io
from typing import TYPE_CHECKING

import pytest
from django.utils import timezone

from tests.builders import jobhistory
from tests.builders.clients import browser
from tests.builders.lifetimes import at
from tests.builders.rates import store_rate
from tests.builders.roles import grant
from usage.models import Rate

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client

pytestmark = pytest.mark.django_db
NOW = at("2026-11-21T12:00")


@pytest.fixture(autouse=True)
def _history(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    for number, namespace in enumerate(("team-a", "team-a", "team-b")):
        created = NOW - dt.timedelta(hours=5)
        job = jobhistory.job(f"train-{number}", namespace, created_at=created)
        held = {"scheduled_at": created, "finished_at": created + dt.timedelta(hours=number + 1)}
        for replica in range(2):
            jobhistory.pod(job, pod_name=f"worker-{replica}", micro_ipus=2 * 10**6, **held)
        jobhistory.partition(job, reserved_at=created, released_at=held["finished_at"], size=4)
    jobhistory.job("no-pods", created_at=NOW)


def _costs(client: Client) -> dict[str, str]:
    """Return the cost of each job in the file, by name; the total has an empty name. The API has
    the same."""
    found = []
    for address in ("/jobs/?format=csv", "/api/v1/jobs.csv"):
        text = b"".join(client.get(address)).decode()
        rows = csv.DictReader(io.StringIO(text))
        found.append({row["name"]: f"{row['cost']} {row['currency']}".strip() for row in rows})
    assert found[0] == found[1]
    listed = client.get("/api/v1/jobs").json()["results"]
    reply = {row["name"]: f"{row['cost'] or ''} {row['currency'] or ''}".strip() for row in listed}
    assert reply == {name: cost for name, cost in found[0].items() if name}
    return found[0]


@pytest.mark.parametrize(
    ("resource", "price", "an_hour"), [("ipu", "2", 8), ("partition-ipu", "2.5", 10)]
)
def test_the_list_costs_what_the_pages_of_the_jobs_say(
    admin: User, resource: str, price: str, an_hour: int
) -> None:
    store_rate(resource, price)
    client = browser(admin)
    found = _costs(client)
    assert [found[f"train-{n}"].split()[1] for n in range(3)] == ["EUR"] * 3
    assert [float(found[f"train-{n}"].split()[0]) for n in range(3)] == [
        an_hour * hours for hours in (1, 2, 3)
    ]
    assert found[""] == f"{an_hour * 6:.2f} EUR"
    assert found["no-pods"] == ""
    text = client.get("/jobs/").content.decode()
    assert ">Cost</th>" in text
    assert ".00000" not in text
    for number, namespace in enumerate(("team-a", "team-a", "team-b")):
        page = client.get(f"/jobs/uid-{namespace}-train-{number}/").content.decode()
        assert f"{an_hour * (number + 1)}.00 EUR" in page
        assert f"{an_hour * (number + 1)}.00" in text


def test_without_prices_the_list_has_no_cost(admin: User) -> None:
    assert "Cost</th>" not in browser(admin).get("/jobs/").content.decode()
    assert set(_costs(browser(admin)).values()) == {""}


def test_only_jobs_of_namespaces_whose_rates_one_may_see_have_a_cost(
    alice: User, django_user_model: type
) -> None:
    store_rate("ipu", "2")
    client = browser(alice)
    assert set(_costs(client)) == {"train-0", "train-1", "no-pods"}
    assert set(_costs(client).values()) == {""}
    assert "Cost</th>" not in client.get("/jobs/").content.decode()
    grant(alice, "viewer", "team-b")
    grant(alice, "accountant", "team-a")
    again = django_user_model.objects.get(pk=alice.pk)
    assert {name for name, cost in _costs(browser(again)).items() if cost} == {
        "train-0",
        "train-1",
        "",
    }


def test_jobs_from_before_the_rates_cost_nothing_that_is_known(admin: User) -> None:
    store_rate("ipu", "2")
    Rate.objects.update(valid_from="2026-11-22")
    assert set(_costs(browser(admin)).values()) == {""}
