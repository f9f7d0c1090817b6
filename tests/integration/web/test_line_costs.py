"""The cost of single pods, partitions and jobs: on their pages, in files and in the API."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.builders import jobhistory
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rates import store_rate
from tests.builders.roles import grant
from tests.integration.usage.reading import make
from usage.rates.pages import end_rate

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper

    from jobs.models import JobRecord

pytestmark = pytest.mark.django_db
NOW = at("2026-11-21T12:00")
PODS, HELD = "/api/v1/usage/lifetimes", "/api/v1/usage/partitions"


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)


@pytest.fixture
def carol(django_user_model: type) -> User:
    """An accountant without a grant."""
    user: User = django_user_model.objects.create_user("carol")  # type: ignore[attr-defined]
    grant(user, "accountant")
    return user


_MONEY = {"cost", "cost_micros", "currency"}


def ask(user: User, address: str) -> list[dict[str, Any]]:
    answer = api_client(user).get(address)
    assert answer.status_code == 200, answer.content
    rows: list[dict[str, Any]] = answer.json()["results"]
    return rows


def cost_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["cost"], row["cost_micros"], row["currency"]


def text_of(user: User, address: str) -> str:
    answer = browser(user).get(address)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def file_of(user: User, address: str) -> list[dict[str, str]]:
    text = b"".join(browser(user).get(address)).decode()
    return list(csv.DictReader(io.StringIO(text)))


def test_a_pod_costs_its_whole_time_or_its_part_of_the_range(admin: User) -> None:
    store_rate("cpu", "1.5")
    store_pod("2026-11-09T22:00", "2026-11-10T04:00", cpu=2)
    assert cost_of(ask(admin, PODS)[0]) == ("18.00000", 18_000_000, "EUR")
    for query, want in (
        ("from=2026-11-10", "12.00000"),
        ("to=2026-11-09", "6.00000"),
        ("from=2026-11-10T01:00:00Z&to=2026-11-10T02:00:00Z", "3.00000"),
    ):
        assert ask(admin, f"{PODS}?{query}")[0]["cost"] == want
        assert file_of(admin, f"/usage/pods/?{query}&format=csv")[0]["cost"] == want
        assert f"{want.removesuffix('000')} EUR" in text_of(admin, f"/usage/pods/?{query}")


def test_a_running_pod_costs_what_it_held_so_far(admin: User) -> None:
    store_rate("cpu", "1")
    store_pod("2026-11-21T10:00", cpu=1)
    assert ask(admin, PODS)[0]["cost"] == "2.00000"
    assert ask(admin, f"{PODS}?to=2026-12-31")[0]["cost"] == "2.00000"
    assert "2.00 EUR" in text_of(admin, "/usage/pods/")


def test_pages_and_files_in_every_form_tell_the_same_cost(admin: User) -> None:
    store_rate("cpu", "0.333333")
    store_rate("accelerator", "2", name="g")
    for n in range(5):
        store_pod(f"2026-11-10T0{n}:00", f"2026-11-10T0{n}:17", gpus=n, accelerators={"g": n})
    whole = [cost_of(row) for row in ask(admin, PODS)]
    assert whole[0] == ("2.36111", 2_361_111, "EUR")
    pages, address = [], f"{PODS}?page_size=2"
    while address:
        found = api_client(admin).get(address).json()
        pages += [cost_of(row) for row in found["results"]]
        address = found["next"]
    assert pages == whole
    lines = b"".join(api_client(admin).get(f"{PODS}?format=jsonl")).decode().splitlines()
    assert [cost_of(json.loads(line)) for line in lines] == whole
    twin = json.loads(b"".join(browser(admin).get("/usage/pods/?format=json")))
    assert [cost_of(row) for row in twin] == whole
    as_text = [tuple(map(str, row)) for row in whole]
    *rows, total = file_of(admin, "/usage/pods/?format=csv")
    assert [cost_of(row) for row in rows] == as_text
    assert file_of(admin, "/usage/pods/?format=csv&total=no") == rows
    assert lines == b"".join(api_client(admin).get(f"{PODS}.jsonl?total=yes")).decode().splitlines()
    # The sum of what is printed, in which the thirds were rounded five times.
    printed = sum(Decimal(row["cost"]) for row in rows)
    assert cost_of(total) == (str(printed), str(sum(row[1] for row in whole)), "EUR")
    assert {value for name, value in total.items() if name not in _MONEY} == {"total", ""}
    assert total["pod_name"] == "total"
    text = b"".join(api_client(admin).get(f"{PODS}.csv")).decode()
    assert list(csv.DictReader(io.StringIO(text))) == [*rows, total]
    assert "total" not in b"".join(api_client(admin).get(f"{PODS}.csv?total=no")).decode()
    for client, address in ((api_client(admin), PODS), (browser(admin), "/usage/pods/")):
        assert client.get(f"{address}?format=csv&total=maybe").status_code == 400


def test_a_choice_of_columns_that_leaves_no_place_for_its_name_has_no_total(admin: User) -> None:
    store_rate("cpu", "1")
    store_pod("2026-11-10T00:00", "2026-11-10T01:00")
    address = "/usage/pods/?format=csv&columns="
    assert [row["cost"] for row in file_of(admin, f"{address}pod_name,cost")] == ["1.00000"] * 2
    assert [row["cost"] for row in file_of(admin, f"{address}cost")] == ["1.00000"]
    assert len(file_of(admin, f"{address}pod_name,ipus")) == 1


def test_without_a_price_or_a_node_a_pod_has_no_cost_and_no_zero(admin: User) -> None:
    store_pod("2026-11-10T00:00", "2026-11-10T01:00")
    assert "Cost" not in text_of(admin, "/usage/pods/")
    store_rate("cpu", "1", "2026-11-11")
    store_pod("2026-11-12T00:00", "2026-11-12T01:00")
    store_pod(None, created_at=at("2026-11-13T00:00"))
    found = [cost_of(row) for row in ask(admin, PODS)]
    assert found == [(None, None, None), ("1.00000", 1_000_000, "EUR"), (None, None, None)]
    assert "Cost" in text_of(admin, "/usage/pods/")


def test_pods_of_a_closed_month_cost_what_it_was_closed_with(admin: User) -> None:
    old = store_rate("cpu", "1")
    store_pod("2026-09-30T23:00", "2026-10-01T01:00", cpu=1)
    make("2026-09", f"{NOW:%FT%T}")
    end_rate(old, date(2026, 1, 1), "ada", NOW)
    store_rate("cpu", "5")
    assert ask(admin, PODS)[0]["cost"] == "6.00000"
    assert ask(admin, f"{PODS}?to=2026-09-30")[0]["cost"] == "1.00000"


def test_only_a_pod_with_prices_in_two_currencies_has_no_cost(
    admin: User, settings: SettingsWrapper
) -> None:
    settings.REPORT_CURRENCY = "FRF"
    store_rate("cpu", "1")
    store_pod("2026-09-30T00:00", "2026-09-30T01:00")
    store_pod("2026-09-30T23:00", "2026-10-01T01:00")
    make("2026-09", f"{NOW:%FT%T}")
    settings.REPORT_CURRENCY = "EUR"
    store_pod("2026-10-02T00:00", "2026-10-02T03:00")
    found = [(row["cost"], row["currency"]) for row in ask(admin, PODS)]
    assert found == [("3.00000", "EUR"), (None, None), ("1.00000", "FRF")]
    *_, total = file_of(admin, "/usage/pods/?format=csv")
    assert (total["pod_name"], *cost_of(total)) == ("total", "", "", "")


def test_an_accountant_sees_the_cost_of_pods_and_nobody_else_does(
    admin: User, carol: User, alice: User, charlie: User
) -> None:
    store_rate("cpu", "1000")
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", cpu=2, namespace="team-a")
    for user in (admin, carol):
        assert ask(user, PODS)[0]["cost"] == "4000.00000"
        assert "4,000.00 EUR" in text_of(user, "/usage/pods/")
    assert cost_of(ask(alice, PODS)[0]) == (None, None, None)
    (row,) = file_of(alice, "/usage/pods/?format=csv")  # nothing to add up
    assert cost_of(row) == ("", "", "")
    assert "Cost" not in text_of(alice, "/usage/pods/")
    assert not ask(charlie, PODS)


def test_a_partition_costs_its_part_of_the_range_and_on_its_page_all_its_time(
    admin: User, carol: User, alice: User
) -> None:
    store_rate("partition-ipu", "250")
    store_partition("2026-11-09T22:00", "2026-11-10T04:00", size=4)
    whole, part = ("6000.00000", 6_000_000_000, "EUR"), ("4000.00000", 4_000_000_000, "EUR")
    for user in (admin, carol):
        assert cost_of(ask(user, HELD)[0]) == whole
        assert cost_of(ask(user, f"{HELD}?from=2026-11-10")[0]) == part
    text = b"".join(api_client(admin).get(f"{HELD}?from=2026-11-10&format=csv")).decode()
    row, total = csv.DictReader(io.StringIO(text))
    assert cost_of(row) == cost_of(total) == tuple(map(str, part))
    assert total["key"] == "total"
    assert "6,000.00 EUR" in text_of(admin, "/partitions/")
    (listed,) = ask(admin, "/api/v1/partitions")
    assert cost_of(listed) == ("6000.00000", 6_000_000_000, "EUR")
    api = b"".join(api_client(admin).get("/api/v1/partitions.csv"))
    assert api == b"".join(browser(admin).get("/partitions/?format=csv"))
    assert cost_of(ask(alice, "/api/v1/partitions")[0]) == (None, None, None)
    for line in file_of(admin, "/partitions/?format=csv"):  # the row and the total
        assert cost_of(line) == tuple(map(str, whole))
    assert cost_of(ask(alice, HELD)[0]) == (None, None, None)
    assert cost_of(file_of(alice, "/partitions/?format=csv")[0]) == ("", "", "")
    assert "Cost" not in text_of(alice, "/partitions/")
    assert "p-job-team-a-0" in text_of(alice, "/partitions/")


@pytest.fixture
def running(db: None) -> JobRecord:
    """A job whose pods ran for one hour and for two so far, on four IPUs held for two."""
    job = jobhistory.job(created_at=at("2026-11-21T10:00"))
    ended = {"scheduled_at": job.created_at, "finished_at": at("2026-11-21T11:00")}
    jobhistory.pod(job, "launcher", **ended)
    jobhistory.pod(job, scheduled_at=job.created_at)
    jobhistory.partition(job, controller="c")
    jobhistory.pod(job, namespace="team-b", pod_name="impostor", **ended)
    return job


def test_a_job_costs_what_all_its_pods_and_partitions_cost_so_far(
    admin: User, running: JobRecord
) -> None:
    address = f"/api/v1/jobs/{running.uid}/usage"
    assert api_client(admin).get(address).json()["cost"] is None
    assert "Cost" not in text_of(admin, f"/jobs/{running.uid}/")
    store_rate("cpu", "500")
    store_rate("partition-ipu", "10")
    found = api_client(admin).get(address).json()
    assert (found["cost"], found["currency"]) == ("3080.00", "EUR")  # 3 h of 2 cores, 2 of 4 IPUs
    assert "Cost so far 3,080.00 EUR" in text_of(admin, f"/jobs/{running.uid}/")
    running.completed_at = at("2026-11-21T12:00")
    running.save()
    assert "Cost 3,080.00 EUR" in text_of(admin, f"/jobs/{running.uid}/")


def test_a_job_that_costs_less_than_a_cent_is_not_said_to_cost_nothing(
    admin: User, running: JobRecord
) -> None:
    store_rate("partition-ipu", "0.0001")
    text = html.unescape(text_of(admin, f"/jobs/{running.uid}/"))
    assert text.count("< 0.01 EUR") == 2  # in its head and beside its hours
    assert "0.00 EUR" not in text


def test_a_job_with_prices_in_two_currencies_costs_so_much_of_each(
    admin: User, settings: SettingsWrapper
) -> None:
    settings.REPORT_CURRENCY = "FRF"
    store_rate("cpu", "1")
    job = jobhistory.job(created_at=at("2026-09-30T22:00"))
    jobhistory.pod(job, scheduled_at=job.created_at, finished_at=at("2026-10-01T03:00"))
    make("2026-09", f"{NOW:%FT%T}")
    settings.REPORT_CURRENCY = "EUR"
    assert "Cost so far 6.00 EUR + 4.00 FRF" in text_of(admin, f"/jobs/{job.uid}/")
    found = api_client(admin).get(f"/api/v1/jobs/{job.uid}/usage").json()
    assert (found["cost"], found["currency"]) == (None, None)


def test_only_who_sees_rates_sees_what_a_job_cost(
    alice: User, carol: User, running: JobRecord
) -> None:
    store_rate("cpu", "500")
    for user in (alice, carol):
        grant(user, "operator", "team-a")
    assert "Cost so far 3,000.00 EUR" in text_of(carol, f"/jobs/{running.uid}/")
    assert "Cost" not in text_of(alice, f"/jobs/{running.uid}/")
    assert api_client(alice).get(f"/api/v1/jobs/{running.uid}/usage").json()["cost"] is None
    assert api_client(carol).get(f"/api/v1/jobs/{running.uid}/usage").json()["cost"] == "3000.00"


def test_the_page_of_an_ended_job_is_drawn_anew_where_its_cost_has_changed(admin: User) -> None:
    job = jobhistory.job(created_at=at("2026-11-20T10:00"))
    jobhistory.pod(job, scheduled_at=job.created_at, finished_at=at("2026-11-20T11:00"))
    client, htmx = browser(admin), {"HX-Request": "true"}
    known = client.get(f"/jobs/{job.uid}/", headers=htmx)["ETag"]
    htmx["If-None-Match"] = known
    assert client.get(f"/jobs/{job.uid}/", headers=htmx).status_code == 304
    store_rate("cpu", "1")
    assert client.get(f"/jobs/{job.uid}/", headers=htmx).status_code == 200


@pytest.mark.parametrize(
    "address", ["/usage/pods/", "/partitions/", PODS, HELD, "/usage/pods/?format=csv"]
)
def test_more_rows_and_prices_cost_no_more_queries(admin: User, address: str) -> None:
    caller = api_client(admin) if address.startswith("/api/") else browser(admin)
    counted = []
    for more in (1, 1, 40):
        for n in range(more):
            store_pod("2026-11-20T00:00", f"2026-11-20T01:00:{n:02}")
            store_partition("2026-11-20T00:00", f"2026-11-20T01:00:{n:02}")
            store_rate("instance", "1", name=f"{len(counted)}-{n}")
        with CaptureQueriesContext(connection) as queries:
            answer = caller.get(address)
            assert b"".join(answer) if answer.streaming else answer.content
        counted.append(len(queries))
    assert counted[1] == counted[2]
