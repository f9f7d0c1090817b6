"""The quick filters of the list of jobs: each shows what it says, and is taken back by a click."""

from __future__ import annotations

import datetime as dt
import html
import json
import re
from typing import TYPE_CHECKING

import pytest
from django.utils import timezone

from tests.builders import jobhistory
from tests.builders.clients import api_client, browser

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client
    from pytest_django.fixtures import SettingsWrapper

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def _history(db: None) -> None:
    now = timezone.now()
    jobhistory.job("waits", status="Pending", started_at=None)
    jobhistory.job("waits-too", "team-b", status="Pending", user="alice", started_at=None)
    jobhistory.job("gave-up", status="Pending", deleted_at=now - HOUR, started_at=None)
    jobhistory.job("runs", user="alice")
    jobhistory.job("suspended", status="Suspended")
    jobhistory.job("failed", status="Failed", user="alice", completed_at=now - 23 * HOUR)
    jobhistory.job("failed-before", status="Failed", completed_at=now - 25 * HOUR)
    jobhistory.job("done", status="Completed", completed_at=now - HOUR, deleted_at=now)


def chips(client: Client, address: str) -> dict[str, tuple[str, bool]]:
    """The address of each quick filter, and whether it is on."""
    answer = client.get(address)
    assert answer.status_code == 200
    nav = re.search(r'<nav class="chips".*?</nav>', answer.content.decode(), re.DOTALL)
    assert nav
    found = re.findall(
        r'<a class="chip[^>]*?( aria-current="true")? href="([^"]+)">([^<]+)', nav[0]
    )
    return {label: (html.unescape(link), bool(on)) for on, link, label in found}


def names(client: Client, address: str) -> set[str]:
    answer = client.get(f"{address}{'&' if '?' in address else '?'}format=json")
    return {row["name"] for row in json.loads(b"".join(answer))}


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize(
    ("label", "want"),
    [
        ("Waiting", {"waits", "waits-too"}),
        ("Running", {"runs"}),
        ("Failed 24 h", {"failed"}),
        ("Mine", {"waits-too", "runs", "failed"}),
    ],
)
def test_a_chip_filters_what_it_says_and_is_taken_back(
    django_user_model: type, label: str, want: set[str]
) -> None:
    user = django_user_model.objects.create_user("alice", password="x", is_staff=True)
    client = browser(user)
    link, is_on = chips(client, "/jobs/")[label]
    assert not is_on
    assert names(client, link) == want
    there = chips(client, link)
    assert [name for name, (_, on) in there.items() if on] == [label]
    assert there[label][0] == "/jobs/"


@pytest.mark.usefixtures("_history")
def test_chips_show_no_other_namespace(alice: User) -> None:
    client = browser(alice)
    by_chip = {label: names(client, link) for label, (link, _) in chips(client, "/jobs/").items()}
    assert by_chip == {
        "Waiting": {"waits"},
        "Running": {"runs"},
        "Failed 24 h": {"failed"},
        "Mine": {"runs", "failed"},
    }


@pytest.mark.usefixtures("_history")
def test_chips_of_a_state_exclude_each_other_and_keep_the_rest(alice: User) -> None:
    client = browser(alice)
    address = "/jobs/?sort=-ipus&namespace=team-a"
    failed = chips(client, address)["Failed 24 h"][0]
    assert failed == f"{address}&status=Failed&ended=24h"
    there = chips(client, failed)
    assert there["Running"][0] == f"{address}&status=Running"
    assert there["Mine"][0] == f"{failed}&user=alice"
    assert there["Failed 24 h"] == (address, True)
    both = chips(client, there["Mine"][0])
    assert (both["Mine"][1], both["Failed 24 h"][1], both["Waiting"][1]) == (True, True, False)


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize(
    ("span", "want"),
    [
        ("24h", {"gave-up", "failed", "done"}),
        ("7d", {"gave-up", "failed", "failed-before", "done"}),
    ],
)
def test_the_time_of_the_end_is_a_filter_of_page_and_api(
    admin: User, span: str, want: set[str]
) -> None:
    assert names(browser(admin), f"/jobs/?ended={span}") == want
    rows = api_client(admin).get(f"/api/v1/jobs?ended={span}").json()["results"]
    assert {row["name"] for row in rows} == want


def test_an_unknown_span_is_refused(admin: User) -> None:
    answer = browser(admin).get("/jobs/?ended=1h")
    assert answer.status_code == 400
    assert "ended: Select a valid choice" in answer.content.decode()


def test_a_list_without_matches_keeps_its_chips(admin: User) -> None:
    there = chips(browser(admin), "/jobs/?status=Running")
    assert there["Running"] == ("/jobs/", True)


def test_failed_jobs_of_the_overview_lead_to_that_chip(admin: User) -> None:
    client = browser(admin)
    text = client.get("/").content.decode()
    chip = chips(client, "/jobs/")["Failed 24 h"][0]
    assert f'href="{html.escape(chip)}"' in text


@pytest.mark.usefixtures("_history")
def test_mine_are_also_those_of_the_kubernetes_user_that_one_is(
    alice: User, settings: SettingsWrapper
) -> None:
    settings.ACTIONS_USERS = {"alice": "oidc:alice", "bob": "oidc:bob"}
    jobhistory.job("by-kubectl", user="oidc:alice")
    jobhistory.job("of-bob", user="oidc:bob")
    client = browser(alice)
    link, is_on = chips(client, "/jobs/")["Mine"]
    assert (link, is_on) == ("/jobs/?user=alice&user=oidc%3Aalice", False)
    assert names(client, link) == {"runs", "failed", "by-kubectl"}
    assert chips(client, link)["Mine"] == ("/jobs/", True)
    assert not chips(client, "/jobs/?user=alice")["Mine"][1]
    rows = api_client(alice).get(f"/api/v1{link.replace('/?', '?')}").json()["results"]
    assert {row["name"] for row in rows} == {"runs", "failed", "by-kubectl"}
