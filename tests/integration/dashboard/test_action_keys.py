"""Actions with an Idempotency-Key: when the key is released, and when it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connection
from django.test import Client

from dashboard.actions import writer
from ipuhub.kube.errors import from_answer
from ipuhub.models import AuditEntry
from ipuhub.recording.store import connection_arguments
from jobs.ipujob.names import IPUJOBS
from tests.integration.dashboard.actionslab import SPEC

if TYPE_CHECKING:
    from tests.integration.dashboard.actionslab import ActionsLab
from tests.integration.dashboard.test_actions import post, tool

pytestmark = pytest.mark.django_db


def test_a_repeated_key_changes_nothing_and_gets_the_first_answer(lab: ActionsLab) -> None:
    manifest = {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "spec": SPEC}
    manifest["metadata"] = {"name": "once", "namespace": "team-a"}
    ann, key = tool("ann"), {"Idempotency-Key": "k1"}
    first = post("/api/v1/jobs", ann, manifest, **key)
    assert first.status_code == 201
    uid = lab.run("get", IPUJOBS, "once", "team-a")["metadata"]["uid"]
    again = post("/api/v1/jobs", ann, manifest, **key)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json()["uid"] == uid
    other = post("/api/v1/jobs", ann, manifest | {"metadata": {"name": "x"}}, **key)
    assert other.status_code == 422  # another request, whatever it asks for
    manifest["metadata"]["name"] = "other"
    other = post("/api/v1/jobs", ann, manifest, **key)
    assert (other.status_code, other.json()["title"]) == (422, "Idempotency-Key reused")
    assert AuditEntry.objects.count() == 1
    bad = post("/api/v1/jobs", ann, manifest, **{"Idempotency-Key": "x" * 256})
    assert (bad.status_code, list(bad.json()["errors"])) == (400, ["Idempotency-Key"])
    bobs = post("/api/v1/jobs", tool("bob"), manifest, **key)
    assert bobs.json()["type"] == "urn:ipuhub:problem:cluster-forbids"  # his key is another key


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (504, "Timeout: request did not complete within requested timeout"),
        (500, "etcdserver: request timed out"),
        (502, "<html>Bad Gateway</html>"),
    ],
)
def test_what_may_have_happened_keeps_the_key_and_is_recorded_as_unknown(
    lab: ActionsLab, monkeypatch: pytest.MonkeyPatch, status: int, message: str
) -> None:
    job, ann, key = lab.add(), tool("ann"), {"Idempotency-Key": "k1"}
    real = writer._write

    async def done_and_failed(*given: Any) -> Any:
        await real(*given)
        raise from_answer(status, {"message": message})

    monkeypatch.setattr(writer, "_write", done_and_failed)
    answer = post(f"/api/v1/jobs/{job.uid}/suspend", ann, **key)
    assert answer.json()["type"] == "urn:ipuhub:problem:cluster-unavailable"
    assert "look at the job before you try again" in answer.json()["detail"]
    assert (lab.spec_of(job) or {})["suspend"] is True
    monkeypatch.setattr(writer, "_write", real)
    again = post(f"/api/v1/jobs/{job.uid}/suspend", ann, **key)
    assert again.json()["type"] == "urn:ipuhub:problem:outcome-unknown"
    assert AuditEntry.objects.get().outcome == "unknown"


def test_what_no_webhook_admitted_did_not_happen_and_frees_the_key(
    lab: ActionsLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, ann, key = lab.add(), tool("ann"), {"Idempotency-Key": "k1"}
    message = 'Internal error occurred: failed calling webhook "v.ipuhub.io": refused'

    async def fail(*_: Any) -> Any:
        raise from_answer(500, {"message": message})

    with monkeypatch.context() as broken:
        broken.setattr(writer, "_write", fail)
        answer = post(f"/api/v1/jobs/{job.uid}/suspend", ann, **key)
    assert answer.json()["detail"] == "The Kubernetes API is unavailable."
    assert AuditEntry.objects.get().outcome == "refused"
    assert post(f"/api/v1/jobs/{job.uid}/suspend", ann, **key).status_code == 200


def test_a_change_that_the_audit_cannot_record_is_not_sent_and_frees_the_key(
    lab: ActionsLab,
) -> None:
    job, ann, key = lab.add(), tool("ann"), {"Idempotency-Key": "k1"}
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 200")
    client = Client(raise_request_exception=False)
    sent: dict[str, Any] = {"path": f"/api/v1/jobs/{job.uid}/suspend", "headers": ann | key}
    sent |= {"content_type": "application/json", "data": {}}
    with psycopg.connect(**connection_arguments(connection.settings_dict)) as other:
        other.execute("LOCK TABLE ipuhub_auditentry IN SHARE MODE")  # it can be read
        assert client.post(**sent).status_code == 503
    assert "suspend" not in (lab.spec_of(job) or {})
    assert client.post(**sent).status_code == 200
