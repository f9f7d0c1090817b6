"""The YAML of a job: as applied, as it runs, the difference, and who reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboard.actions.manifests import read_manifest
from dashboard.job import events, tabs
from dashboard.job.manifests import VIEWS
from jobs.ipujob.conditions import JobState
from jobs.ipujob.validation import problems
from jobs.models import JobRecord
from tests.builders import jobhistory
from tests.integration.recorders.test_job_records import Life, write

if TYPE_CHECKING:
    from django.test import Client


def test_the_manifest_can_be_applied_again(staff: Client, ended: JobRecord) -> None:
    answer = staff.get(f"/jobs/{ended.uid}/yaml/?format=yaml")
    assert answer["Content-Disposition"] == 'attachment; filename="train.yaml"'
    manifest = yaml.safe_load(answer.content)
    assert manifest["metadata"] == {"name": "train", "namespace": "team-a"}
    assert manifest["spec"] == jobhistory.SPEC
    assert staff.get(f"/jobs/{ended.uid}/yaml/?format=exe").status_code == 404


def test_a_recorded_job_can_be_applied_again_with_its_labels(staff: Client) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "research", "team": "vision"}
    life = Life()
    life.builder.manifest["metadata"]["labels"] = labels
    write(life.enters(JobState.COMPLETED, 1))
    page = f"/jobs/{JobRecord.objects.get().uid}/yaml/?format=yaml"
    for view in ("applied", "running"):
        manifest = read_manifest(staff.get(f"{page}&view={view}").content.decode(), "elsewhere")
        names = {"name": "sample", "namespace": "default", "labels": labels}
        assert manifest["metadata"] == names
        assert problems("sample", manifest["spec"]) == []


@pytest.mark.parametrize("tab", ["", "logs/", "pods/", "events/", "usage/", "yaml/"])
def test_only_the_tab_of_manifests_reads_them_and_events_are_listed_once(
    staff: Client, ended: JobRecord, tab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []

    def list_events(*given: Any) -> list[events.Event]:
        listed.append(given)
        return events.list_events(*given)

    monkeypatch.setattr(tabs, "list_events", list_events)
    with CaptureQueriesContext(connection) as queries:
        assert staff.get(f"/jobs/{ended.uid}/{tab}").status_code == 200
    assert len(listed) == 1
    read = [query["sql"] for query in queries.captured_queries if '"applied"' in query["sql"]]
    assert len(read) == (tab == "yaml/")


def test_the_yaml_is_shown_as_applied_as_it_runs_and_as_the_difference(staff: Client) -> None:
    given: dict[str, Any] = {"kind": "IPUJob", "apiVersion": "graphcore.ai/v1alpha1"}
    given |= {"metadata": {"name": "train"}, "spec": {"jobInstances": 2}}
    job = jobhistory.job(
        applied=given,
        applied_by="kubectl apply",
        running={"jobInstances": 1, "modelReplicasPerWorker": 5},
        reason="SpecChanged",
        message="Changed while the job runs: the number of workers",
    )
    page = f"/jobs/{job.uid}/yaml/"
    texts = {view: staff.get(f"{page}?view={view}").content.decode() for view in VIEWS}
    assert "As kubectl apply left it." in texts["applied"]
    manifest = staff.get(f"{page}?format=yaml").content
    assert yaml.safe_load(manifest) == given
    assert [line for line in manifest.decode().splitlines() if line[0] != " "] == [
        *("apiVersion: graphcore.ai/v1alpha1", "kind: IPUJob", "metadata:", "spec:")
    ]
    running = yaml.safe_load(staff.get(f"{page}?view=running&format=yaml").content)
    assert running["spec"] == job.running
    reply = staff.get(f"/api/v1/jobs/{job.uid}/manifest").json()
    assert (reply["applied"], reply["applied_by"], reply["running"]) == (
        given,
        "kubectl apply",
        running,
    )
    assert {"-jobInstances: 2", "+jobInstances: 1"} <= set(reply["difference"])
    assert reply["waits"] == job.message
    for line in ('"removed">-jobInstances: 2', '"added">+jobInstances: 1'):
        assert line in texts["diff"]
    assert all("An edit is not in effect yet." in text for text in texts.values())
    assert "view: &#x27;x&#x27; is not one of" in staff.get(f"{page}?view=x").content.decode()
    ends = "The session ends at 12:00:00 UTC: save your work"
    for state, reason, message, sentence in (
        ("Running", "SpecChanged", ends, "The named fields apply from the next attempt.</p>"),
        ("Running", "InvalidSpec", ends, "Correct the named fields.</p>"),
        ("Running", "InvalidSpec", f"{ends}. spec.x: is 3", ">spec.x: is 3.</p>"),
        ("Restarting", "InvalidSpec", "spec.x: is 3", ">spec.x: is 3.</p>"),
        ("Pending", "InvalidSpec", "spec.x: is 3", ""),
    ):
        JobRecord.objects.update(status=state, reason=reason, message=message)
        text = staff.get(page).content.decode()
        assert sentence in text
        assert ("An edit is not in effect yet." in text) is bool(sentence)
        assert "The session ends" not in text.partition("waits-title")[2]
    old = jobhistory.job("old")
    assert "As first seen in the cluster" in staff.get(f"/jobs/{old.uid}/yaml/").content.decode()
    assert "+modelReplicasPerWorker" not in staff.get(f"/jobs/{old.uid}/yaml/").content.decode()
