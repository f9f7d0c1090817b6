"""Common behaviour of all endpoints: problems, paging, filters, the OpenAPI document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsonschema
import pytest
from django.conf import settings as django_settings
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator

from ipuhub.api.schema import openapi_text
from tests.builders import jobhistory
from tests.builders.clients import api_client, browser
from tests.builders.documents import check_openapi, openapi, read_yaml

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client


@pytest.fixture
def staff(admin: User) -> Client:
    return api_client(admin)


@pytest.mark.parametrize(
    ("method", "address", "status", "kind"),
    [
        ("get", "/api/v1/nothing-here", 404, "not-found"),
        ("get", "/api/v1/jobs/no-such-uid", 404, "not-found"),
        ("post", "/api/v1/partitions", 405, "method-not-allowed"),
        ("get", "/api/v1/jobs?since=soon", 400, "invalid-value"),
        ("get", "/api/v1/jobs?status=Flying", 400, "invalid-value"),
        ("get", "/api/v1/jobs?stauts=Failed", 400, "invalid-value"),
        ("get", "/api/v1/jobs?cursor=rubbish", 400, "invalid-value"),
        ("get", "/api/v1/jobs?page_size=0", 400, "invalid-value"),
        ("get", "/api/v1/jobs?page_size=1001", 400, "invalid-value"),
        ("get", "/api/v1/jobs?page_size=%C2%B2", 400, "invalid-value"),
    ],
)
def test_every_error_is_a_problem_with_a_sentence(
    staff: Client, method: str, address: str, status: int, kind: str
) -> None:
    answer = getattr(staff, method)(address)
    problem = answer.json()
    assert answer["Content-Type"] == "application/problem+json"
    assert (answer.status_code, problem["status"], problem["type"]) == (
        status,
        status,
        f"urn:ipuhub:problem:{kind}",
    )
    assert problem["title"]
    assert len(problem["detail"]) > 15
    assert problem["detail"].endswith(".")


def test_an_answer_in_another_form_than_json_is_refused(staff: Client) -> None:
    answer = staff.get("/api/v1/components", headers={"Accept": "text/html"})
    assert answer.status_code == 406
    assert "detail" in answer.json()


def test_a_wrong_token_is_refused_in_words(client: Client, db: None) -> None:
    answer = client.get("/api/v1/jobs", headers={"Authorization": "Bearer ipuhub_guess"})
    assert answer.status_code == 401
    assert "invalid, revoked or expired" in answer.json()["detail"]


def test_paging_by_next_shows_each_job_once(staff: Client) -> None:
    jobhistory.jobs(25)
    address, uids = "/api/v1/jobs?page_size=10&namespace=team-a", []
    while address:
        page = staff.get(address).json()
        uids += [job["uid"] for job in page["results"]]
        address = page["next"]
        assert address is None or "namespace=team-a" in address
    assert len(uids) == len(set(uids)) == 25


def test_the_detail_has_attempts_and_transitions(staff: Client) -> None:
    job = jobhistory.job()
    jobhistory.attempt(job, 0, exit_code=3, message="it has exited", log="Traceback")
    jobhistory.transition(job, "Running", 5, "IPUJobRunning")
    found = staff.get(f"/api/v1/jobs/{job.uid}").json()
    assert found["attempts"][0]["exit_code"] == 3
    assert (found["attempts"][0]["message"], found["attempts"][0]["log"]) == (
        "it has exited",
        "Traceback",
    )
    assert found["transitions"][0]["reason"] == "IPUJobRunning"
    assert found["spec"]["ipusPerJobInstance"] == "4"
    assert found["state"] == "Running"


def test_pods_of_a_job_come_in_pages(staff: Client) -> None:
    job = jobhistory.job()
    for number in range(5):
        jobhistory.pod(job, pod_name=f"train-worker-{number}")
    page = staff.get(f"/api/v1/jobs/{job.uid}/pods?page_size=3").json()
    rest = staff.get(page["next"]).json()
    assert len(page["results"]) == 3
    assert len(rest["results"]) == 2
    assert rest["next"] is None
    assert page["results"][0]["micro_ipus"] == 4_000_000


def test_a_session_needs_the_csrf_token_to_write_and_a_token_does_not(
    client: Client, admin: User
) -> None:
    client.handler.enforce_csrf_checks = True
    client.force_login(admin)
    assert client.post("/api/v1/partitions").status_code == 403
    strict = api_client(admin)
    strict.handler.enforce_csrf_checks = True
    assert strict.post("/api/v1/partitions").status_code == 405


def test_the_openapi_document_is_valid_and_made_without_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    GENERATOR_STATS.reset()
    document = read_yaml(openapi_text())
    assert capsys.readouterr().err == ""
    check_openapi(document)
    broken = {**document, "info": {**document["info"], "version": 1}}
    with pytest.raises(jsonschema.ValidationError):
        check_openapi(broken)
    assert "/api/v1/jobs/{uid}/usage" in document["paths"]
    assert "namespace" in {
        p["name"] for p in document["paths"]["/api/v1/jobs"]["get"]["parameters"]
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["security"], f"{method} {path} needs nobody"


def test_the_document_that_is_checked_in_is_the_one_of_the_code() -> None:
    kept = django_settings.BASE_DIR / "docs" / "reference" / "openapi.yaml"
    assert kept.read_text(encoding="utf-8") == openapi_text()


def test_the_document_is_served_to_who_is_signed_in(alice: User) -> None:
    answer = browser(alice).get("/api/v1/schema/", headers={"Accept": "application/json"})
    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/json"
    assert answer.json() == openapi()


def test_the_document_is_made_for_the_first_caller_alone(alice: User) -> None:
    client = browser(alice)
    client.get("/api/v1/schema/")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SchemaGenerator, "get_schema", None)
        kind = "application/vnd.oai.openapi+json"
        answer = client.get("/api/v1/schema/", headers={"Accept": kind})
    assert answer["Content-Type"] == kind
