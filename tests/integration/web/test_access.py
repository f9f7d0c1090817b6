"""Access rules: for each, a user with access and a stranger without."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from dashboard import metrics
from ipuhub.models import ApiToken, RoleGrant
from ipuhub.web.access import Scope, is_accountant, is_admin, scope_of
from tests.builders import jobhistory
from tests.builders.clients import api_client, browser
from tests.builders.roles import grant

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.contrib.auth.models import User
    from django.test import Client

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _two_teams(db: None) -> None:
    for team in ("team-a", "team-b"):
        job = jobhistory.job(namespace=team)
        jobhistory.pod(job)


def test_a_part_polled_after_the_session_ended_leads_to_the_sign_in_page(client: Client) -> None:
    answer = client.get("/jobs/", headers={"HX-Request": "true"})
    assert answer.status_code == 401
    assert answer["HX-Redirect"].startswith("/login/?next=%2Fjobs%2F")


@pytest.mark.parametrize("address", ["/api/v1/jobs", "/api/v1/schema/"])
def test_nobody_calls_the_api_without_a_token(client: Client, address: str) -> None:
    answer = client.get(address)
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["detail"].endswith(".")


def test_a_user_sees_the_jobs_of_his_namespaces_only(alice: User, charlie: User) -> None:
    text = browser(alice).get("/jobs/").content.decode()
    assert "uid-team-a-train" in text
    assert "uid-team-b-train" not in text
    assert "No jobs yet" in browser(charlie).get("/jobs/").content.decode()
    found = api_client(alice).get("/api/v1/jobs").json()["results"]
    assert {job["namespace"] for job in found} == {"team-a"}
    assert api_client(charlie).get("/api/v1/jobs").json() == {"next": None, "results": []}


def test_an_admin_sees_all(admin: User) -> None:
    assert len(api_client(admin).get("/api/v1/jobs").json()["results"]) == 2
    assert "uid-team-b-train" in browser(admin).get("/jobs/").content.decode()


def test_the_twins_show_no_more_than_the_page(alice: User) -> None:
    for kind in ("csv", "json"):
        text = b"".join(browser(alice).get(f"/jobs/?format={kind}")).decode()
        assert "uid-team-a-train" in text
        assert "uid-team-b-train" not in text


@pytest.mark.parametrize("query", ["namespace=team-b", "namespace=team-b&format=csv"])
def test_asking_for_a_foreign_namespace_is_refused_in_words(
    alice: User, admin: User, query: str
) -> None:
    answer = browser(alice).get(f"/jobs/?{query}")
    assert answer.status_code == 403
    assert "not have access to namespace" in answer.content.decode()
    assert browser(admin).get(f"/jobs/?{query}").status_code == 200


def test_the_api_refuses_a_foreign_namespace_with_the_same_sentence(
    alice: User, admin: User
) -> None:
    answer = api_client(alice).get("/api/v1/jobs?namespace=team-b")
    assert answer.status_code == 403
    assert "not have access to namespace 'team-b'" in answer.json()["detail"]
    assert api_client(alice).get("/api/v1/jobs?namespace=team-a").status_code == 200
    assert api_client(admin).get("/api/v1/jobs?namespace=team-b").status_code == 200


@pytest.mark.parametrize("address", ["/api/v1/jobs/uid-team-a-train", "/jobs/uid-team-a-train/"])
def test_a_foreign_job_is_as_unknown_as_none(alice: User, charlie: User, address: str) -> None:
    sign_in = api_client if address.startswith("/api/") else browser
    assert sign_in(alice).get(address).status_code == 200
    foreign = sign_in(charlie).get(address)
    missing = sign_in(charlie).get(address.replace("uid-team-a-train", "nobody-has-this"))
    assert foreign.status_code == missing.status_code == 404
    assert b"not have access to its namespace" in foreign.content
    assert b"not have access to its namespace" in missing.content


def test_a_session_calls_the_api_too(alice: User) -> None:
    assert browser(alice).get("/api/v1/jobs").status_code == 200


def test_an_inactive_user_has_no_rights_left(alice: User) -> None:
    caller = api_client(alice)
    alice.is_active = False
    alice.save()
    assert caller.get("/api/v1/jobs").status_code == 401
    alice.is_staff = True
    assert not is_admin(alice)
    assert not is_accountant(alice)
    assert scope_of(alice) == Scope(frozenset())


def test_metrics_are_for_admins_and_the_metrics_token(
    client: Client,
    alice: User,
    admin: User,
    settings: pytest.FixtureRequest,
) -> None:
    settings.METRICS_TOKEN = "scrape-me"
    assert client.get("/metrics").status_code == 401
    assert api_client(alice).get("/metrics").status_code == 403
    assert browser(admin).get("/metrics").status_code == 401  # a page that a browser was sent to
    assert api_client(admin).get("/metrics").status_code == 200
    answer = client.get("/metrics", headers={"Authorization": "Bearer scrape-me"})
    assert answer.status_code == 200
    assert b"django_http_requests_total" in answer.content


def test_a_revoked_token_reads_no_metrics_and_is_trusted_for_minutes_without_postgres(
    admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that could read metrics still can while no API server says whether it was revoked."""
    caller, at = api_client(admin), time.monotonic()

    def ask(read: Callable[[], None], otherwise: Callable[[], None]) -> None:
        otherwise() if is_silent else read()

    monkeypatch.setattr(metrics, "query_briefly", ask)
    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: at))
    is_silent = True
    assert caller.get("/metrics").status_code == 503
    is_silent = False
    assert caller.get("/metrics").status_code == 200
    is_silent, at = True, at + 329
    assert caller.get("/metrics").status_code == 200
    at += 2
    assert caller.get("/metrics").status_code == 503
    is_silent = False
    ApiToken.objects.all().delete()
    assert caller.get("/metrics").status_code == 401
    is_silent = True
    assert caller.get("/metrics").status_code == 503


def test_methods_that_a_client_invents_are_one_series(client: Client, settings: Any) -> None:
    settings.METRICS_TOKEN = "scrape-me"
    for number in range(3):
        client.generic(f"BREW{number}", "/healthz")
    page = client.get("/metrics", headers={"Authorization": "Bearer scrape-me"}).content
    assert b"BREW" not in page


def test_without_a_metrics_token_an_empty_one_opens_nothing(client: Client, db: None) -> None:
    assert client.get("/metrics", headers={"Authorization": "Bearer "}).status_code == 401


@pytest.mark.parametrize("sign_in", [browser, api_client])
def test_what_is_taken_back_holds_from_the_next_request_on(alice: User, sign_in: Any) -> None:
    grant(alice, "accountant")
    client = sign_in(alice)
    job, reports = "/api/v1/jobs/uid-team-a-train", "/api/v1/usage/reports"
    assert [client.get(address).status_code for address in (job, reports)] == [200, 200]
    RoleGrant.objects.all().delete()
    assert [client.get(address).status_code for address in (job, reports)] == [404, 403]
