"""The page of one job: what it shows, how it lives on, its twins."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
from typing import TYPE_CHECKING

import pytest
from django.utils import timezone

from dashboard.job import page
from ipuhub.models import AuditEntry
from jobs.models import JobEvent, JobRecord
from jobs.selectors import NO_JOB
from tests.builders import jobhistory
from tests.builders.clients import browser
from tests.integration.web.test_overview_pages import empty_state

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client

HTMX = {"HX-Request": "true"}


def test_the_page_shows_what_is_kept_of_a_job(staff: Client, ended: JobRecord) -> None:
    wanted = {
        "": ("Completed", "IPU-hours", "p-train-team-a-0: held"),
        "pods/": ("train-launcher", "p-train-team-a-0", "Attempts"),
        "events/": ("It is Restarting.", "train-launcher, train-worker-0: started", "released"),
        "usage/": ("IPU-hours", "train-worker-0"),
        "yaml/": ("workersPerJobInstance: 1", "mpirun", "kind: IPUJob"),
    }
    for tab, words in wanted.items():
        text = staff.get(f"/jobs/{ended.uid}/{tab}").content.decode()
        assert [word for word in words if word not in text] == [], tab
        assert re.findall(r">\d\d-\d\d [^<]*|>Phase<", text) == []  # one form of dates, one word
        assert text.count("<h1") == 1
        assert text.count('aria-current="page" href') == 2  # the main navigation, and the tab


def test_the_duration_of_a_job_is_one_on_its_page_and_in_the_list(staff: Client) -> None:
    """From its start to its end, without the wait before."""
    now = timezone.now()
    hour = dt.timedelta(hours=1)
    times = {"created_at": now - 9 * hour, "started_at": now - 2 * hour, "completed_at": now}
    job = jobhistory.job("waited", status="Completed", **times)
    never = jobhistory.job("never", status="Failed", **times | {"started_at": None})
    listed = staff.get("/jobs/?name=waited").content.decode()
    for uid, want in ((job.uid, "2 h"), (never.uid, "–")):
        text = staff.get(f"/jobs/{uid}/").content.decode()
        assert f"<dt>Duration</dt><dd>{want}</dd>" in text
        assert ">Allocated<" in text  # it has ended: nothing is "so far"
    assert re.search(r'data-label="Duration"[^>]*>\s*(<[^>]*>)*2 h<', listed)


def test_a_job_has_an_address_by_its_name_that_leads_to_the_newest(
    staff: Client, alice: User, charlie: User
) -> None:
    hour = dt.timedelta(hours=1)
    jobhistory.job("bert", uid="old", created_at=timezone.now() - hour)
    jobhistory.job("bert", uid="elsewhere", namespace="team-b")
    jobhistory.job("bert-large", uid="longer")
    jobhistory.job("bert", uid="newest", created_at=timezone.now() - hour / 2)
    for reader in (staff, browser(alice)):
        answer = reader.get("/jobs/team-a/bert/")
        assert (answer.status_code, answer["Location"]) == (302, "/jobs/newest/")
    for strange in ("team-a/bert", "team-a/none", "none/bert", "a%00/b"):
        refused = browser(charlie).get(f"/jobs/{strange}/")
        assert (refused.status_code, NO_JOB in refused.content.decode()) == (404, True), strange
    assert browser(alice).get("/jobs/team-b/bert/").status_code == 404


@pytest.mark.parametrize("tab", ["logs", "pods", "events", "usage", "yaml"])
def test_a_job_named_like_a_tab_has_its_address_too(tab: str, staff: Client, charlie: User) -> None:
    jobhistory.job(tab, uid="its-own")
    assert staff.get(f"/jobs/team-a/{tab}/")["Location"] == "/jobs/its-own/"
    assert staff.get(f"/jobs/its-own/{tab}/").status_code == 200
    assert browser(charlie).get(f"/jobs/team-a/{tab}/").status_code == 404


def test_usage_sums_scheduled_to_ended_and_keeps_partition_hours_apart(
    staff: Client, ended: JobRecord
) -> None:
    usage = staff.get(f"/api/v1/jobs/{ended.uid}/usage").json()
    assert usage["pods"] == 4
    assert usage["ipu_microseconds"] == 2 * 100 * 4_000_000
    assert usage["cpu_millicore_seconds"] == 4 * 100 * 2000
    assert usage["memory_byte_seconds"] == 4 * 100 * 4 * 2**30
    assert usage["partition_ipu_seconds"] == 290 * 4
    assert usage["ipu_hours"] == pytest.approx(800 / 3600)
    text = staff.get(f"/jobs/{ended.uid}/").content.decode()
    assert re.search(r"0\.22\s*<span[^>]*>IPU-hours", text)
    assert "<span>0.32 IPU-h held</span>" in text  # of the partition, which the pods' are part of


def test_a_running_pod_counts_up_to_now_and_a_pending_one_not_at_all(staff: Client) -> None:
    job = jobhistory.job(created_at=timezone.now() - dt.timedelta(seconds=110))
    jobhistory.pod(job)  # scheduled 10 s after the job was made
    jobhistory.pod(job, pod_name="waits", scheduled_at=None, started_at=None, phase="Pending")
    usage = staff.get(f"/api/v1/jobs/{job.uid}/usage").json()
    assert usage["ipu_microseconds"] // 4_000_000 in range(99, 110)


def test_a_pod_elsewhere_that_claims_the_uid_is_no_part_of_the_job(staff: Client) -> None:
    job = jobhistory.job()
    jobhistory.pod(job, namespace="team-b", pod_name="impostor")
    text = staff.get(f"/jobs/{job.uid}/").content.decode()
    assert "impostor" not in text
    assert staff.get(f"/api/v1/jobs/{job.uid}/usage").json()["pods"] == 0


def test_the_timeline_is_drawn_by_the_server_with_a_text_beside_it(
    staff: Client, ended: JobRecord
) -> None:
    text = staff.get(f"/jobs/{ended.uid}/").content.decode()
    assert text.count('class="bar bar-launcher"') == 1
    assert text.count('class="bar bar-failed"') == 2
    assert 'role="img"' in text
    assert "train-launcher: ran, exit code 1 for 90 s" in text
    marks = re.findall(r'<g class="restart"><title>(.*?)</title><line x1="(.*?)"', text)
    assert marks == [("Restarted at 09:02:30 UTC: attempt 1 failed (OOMKilled)", "51.72%")]
    assert "key-restart" in text
    assert text.count("Restarted at 09:02:30 UTC") == 2  # also in the drawing's text
    assert " style=" not in text
    assert "<script>" not in text


@pytest.mark.parametrize("tab", ["", "pods/", "events/", "yaml/"])
def test_the_tabs_say_how_many_pods_and_events_there_are(
    staff: Client, ended: JobRecord, tab: str
) -> None:
    AuditEntry.objects.create(
        at=ended.created_at, user_name="ada", action="suspend", change={}, uid=ended.uid
    )
    address = f"/jobs/{ended.uid}/"
    lines = staff.get(f"{address}events/").content.decode().count("<tr>\n      <td")
    text = staff.get(address + tab).content.decode()
    counts = re.findall(r'>([^<]*)<span class="tab-count">(\d+)<', text)
    assert counts == [("Pods and attempts", "4"), ("Events", str(lines))]
    assert lines > 10


def test_the_page_of_a_deleted_job_stays_and_says_so(staff: Client, ended: JobRecord) -> None:
    JobRecord.objects.update(deleted_at=dt.datetime(2026, 11, 20, 10, tzinfo=dt.UTC))
    text = staff.get(f"/jobs/{ended.uid}/").content.decode()
    assert "This job was deleted from the cluster" in text
    assert "2026-11-20 10:00:00 UTC" in text
    assert "train-launcher" in text
    assert "kubectl" not in text  # there is nothing left for it
    events = staff.get(f"/jobs/{ended.uid}/events/").content.decode()
    assert '"Deleted"' in events


def tell(job: JobRecord, count: int) -> None:
    """Store Kubernetes Events of a job, newer than all else of it."""
    now = timezone.now()
    for number in range(count):
        moment = now - dt.timedelta(seconds=count - number)
        JobEvent.objects.create(
            job=job,
            uid=f"e-{number}",
            pod="train-worker-0",
            reason="Pulled",
            message=f"Image is there {number}",
            first_at=moment,
            last_at=moment,
        )


def test_kubernetes_events_give_way_to_what_became_of_the_job(
    staff: Client, ended: JobRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"/jobs/{ended.uid}/events/"
    row = re.compile(r"<tr>\n      <td.*?</tr>", re.DOTALL)
    own = row.findall(staff.get(address).content.decode())
    monkeypatch.setattr(page, "SHOWN_EVENTS", len(own) + 2)
    tell(ended, 5)
    text = staff.get(address).content.decode()
    lines = row.findall(text)
    assert lines[2:] == own
    assert ["Image is there 4" in lines[0], "Image is there 3" in lines[1]] == [True, True]
    assert "3 older events are not shown" in text
    monkeypatch.setattr(page, "SHOWN_EVENTS", 3)  # fewer than the job's own
    assert row.findall(staff.get(address).content.decode()) == own[:3]


def test_a_job_without_pods_says_why_it_waits(staff: Client) -> None:
    job = jobhistory.job(status="Pending", message="No controller has 4 free IPUs.")
    text = staff.get(f"/jobs/{job.uid}/").content.decode()
    assert "No controller has 4 free IPUs." in text
    words = "The operator creates the pods when the partition is ready."
    assert empty_state(text, "pod") == (words, "/queue/")


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ("Suspended", "The operator creates the pods when the job is resumed."),
        ("Failed", "No pod of this job was recorded."),
    ],
)
def test_a_job_that_gets_no_pods_leads_to_its_events(staff: Client, status: str, want: str) -> None:
    ended = timezone.now() if status == "Failed" else None
    job = jobhistory.job(status=status, completed_at=ended)
    events = f"/jobs/{job.uid}/events/"
    assert empty_state(staff.get(f"/jobs/{job.uid}/").content.decode(), "pod") == (want, events)
    assert staff.get(events).status_code == 200


@pytest.mark.parametrize(
    ("table", "key", "want"),
    [
        ("pods", "pod_name", {"train-launcher", "train-worker-0"}),
        ("attempts", "outcome", {"Failed", "Completed"}),
        ("transitions", "state", {"Running", "Restarting"}),
        ("conditions", "type", {"Running"}),
        ("events", "message", {"Image is there 0", "Image is there 1"}),
        ("partitions", "partition", {"p-train-team-a-0"}),
    ],
)
def test_every_table_has_a_csv_and_a_json_twin(
    staff: Client, ended: JobRecord, table: str, key: str, want: set[str]
) -> None:
    tell(ended, 2)
    address = f"/jobs/{ended.uid}/?table={table}&format="
    text = b"".join(staff.get(f"{address}csv")).decode()
    assert {row[key] for row in csv.DictReader(io.StringIO(text))} == want
    rows = json.loads(b"".join(staff.get(f"{address}json")))
    assert {row[key] for row in rows} == want


def test_the_pods_twin_has_all_of_them_where_the_page_shows_the_newest(staff: Client) -> None:
    job = jobhistory.job()
    for number in range(205):
        jobhistory.pod(job, pod_name=f"train-worker-{number}")
    assert "Showing the newest 200" in staff.get(f"/jobs/{job.uid}/pods/").content.decode()
    rows = json.loads(b"".join(staff.get(f"/jobs/{job.uid}/?table=pods&format=json")))
    assert len(rows) == 205
    assert staff.get(f"/api/v1/jobs/{job.uid}/usage").json()["pods"] == 205


@pytest.mark.parametrize("query", ["table=secrets&format=csv", "table=pods&format=exe"])
def test_an_unknown_twin_is_refused_with_a_sentence(
    staff: Client, ended: JobRecord, query: str
) -> None:
    answer = staff.get(f"/jobs/{ended.uid}/?{query}")
    assert answer.status_code == 404
    assert "Tables of a job are pods" in answer.content.decode()


def test_an_ended_job_is_polled_for_nothing(staff: Client, ended: JobRecord) -> None:
    first = staff.get(f"/jobs/{ended.uid}/", headers=HTMX)
    assert "<html" not in first.content.decode()
    known = HTMX | {"If-None-Match": first["ETag"]}
    assert staff.get(f"/jobs/{ended.uid}/", headers=known).status_code == 304
    JobRecord.objects.update(updated_at=timezone.now(), restart_count=7)
    assert staff.get(f"/jobs/{ended.uid}/", headers=known).status_code == 200


def test_the_attempts_show_the_last_lines_of_their_log_as_text(
    staff: Client, ended: JobRecord
) -> None:
    message = "Container main of train-launcher exited with code 137 (SIGKILL)"
    log = "Traceback\n  <script>alert(1)</script>\n=cmd|' /C calc'!A0"
    jobhistory.attempt(ended, 2, outcome="Failed", message=message, log=log)
    text = staff.get(f"/jobs/{ended.uid}/pods/").content.decode()
    assert message in text
    assert "Traceback\n  &lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script>alert" not in text
    twin = staff.get(f"/jobs/{ended.uid}/?table=attempts&format=json")
    assert json.loads(b"".join(twin.streaming_content))[-1]["log"] == log


def test_a_failed_job_says_why_where_and_what_to_try(staff: Client, ended: JobRecord) -> None:
    for name, days in (("before", 2), ("long-before", 40)):
        at = ended.created_at - dt.timedelta(days=days)
        jobhistory.job(name, status="Failed", reason="OOMKilled", completed_at=at, created_at=at)
    JobRecord.objects.filter(pk=ended.pk).update(status="Failed", reason="OOMKilled")
    message = "Container main of train-launcher exited with code 1"
    log = "\n".join(f"line {number}" for number in range(100))
    jobhistory.attempt(
        ended, 2, outcome="Failed", reason="OOMKilled", exit_code=1, message=message, log=log,
        ended_at=ended.completed_at,
    )  # fmt: skip
    jobhistory.pod(
        ended, "launcher", attempt=2, exit_code=1, phase="Failed", node="node-7",
        finished_at=ended.completed_at,
    )  # fmt: skip
    text = staff.get(f"/jobs/{ended.uid}/").content.decode()
    card = re.search(r'aria-labelledby="diagnosis-title".*?</section>', text, re.DOTALL)
    assert card is not None
    for words in (
        f"{message}.",
        "Raise the memory limit",
        "node-7",
        ">before<",
        "line 99",
        "line 80",
    ):
        assert words in card[0]
    assert "long-before" not in card[0]
    assert "line 79" not in card[0]


def test_a_job_that_runs_again_still_says_why_it_was_restarted(staff: Client) -> None:
    job = jobhistory.job(restart_count=1)
    jobhistory.pod(job, attempt=1)
    jobhistory.attempt(
        job,
        0,
        outcome="Failed",
        reason="PartitionError",
        message="ag0: IPU 0 has a memory error",
        ended_at=timezone.now(),
    )
    text = staff.get(f"/jobs/{job.uid}/").content.decode()
    assert 'class="card mb-3 diagnosis' not in text
    failure = re.search(r"<dt>Last failure</dt><dd>(.*?)</dd>", text)
    assert failure is not None
    words = re.sub(r"<[^>]*>", "", failure[1])
    assert words.startswith("ag0: IPU 0 has a memory error PartitionError attempt 1, ")


def test_a_job_that_is_well_has_no_card(staff: Client, ended: JobRecord) -> None:
    assert "diagnosis-title" not in staff.get(f"/jobs/{ended.uid}/").content.decode()
    running = jobhistory.job("runs")
    jobhistory.pod(running)
    jobhistory.partition(running)
    assert "diagnosis-title" not in staff.get(f"/jobs/{running.uid}/").content.decode()


def test_a_job_that_holds_ipus_without_a_pod_is_said_to_be_idle(staff: Client) -> None:
    job = jobhistory.job()
    jobhistory.partition(job)
    text = staff.get(f"/jobs/{job.uid}/").content.decode()
    assert "The job holds 4 IPUs, and none of its pods is running." in text


@pytest.mark.parametrize("tab", ["", "pods/", "events/", "usage/", "yaml/"])
def test_every_tab_is_304_until_the_job_changes(staff: Client, ended: JobRecord, tab: str) -> None:
    address = f"/jobs/{ended.uid}/{tab}"
    known = HTMX | {"If-None-Match": staff.get(address, headers=HTMX)["ETag"]}
    assert staff.get(address, headers=known).status_code == 304
    jobhistory.pod(ended, pod_name="one-more")
    assert staff.get(address, headers=known).status_code == 200


@pytest.mark.parametrize("tab", ["", "logs/", "pods/", "events/", "usage/", "yaml/"])
def test_a_tab_of_a_foreign_job_is_as_unknown_as_none(
    charlie: User, ended: JobRecord, tab: str
) -> None:
    client = browser(charlie)
    texts = {
        client.get(f"/jobs/{uid}/{tab}").content.decode().partition("<main")[2]
        for uid in (ended.uid, "uid-of-none")
    }
    assert len(texts) == 1
    assert client.get(f"/jobs/{ended.uid}/{tab}").status_code == 404


def test_a_job_with_an_invalid_number_of_instances_has_its_page(staff: Client) -> None:
    spec = {"ipusPerJobInstance": "x", "jobInstances": 0, "workers": {}}
    job = jobhistory.job(spec=spec, instances=0, ipus=0)
    answer = staff.get(f"/jobs/{job.uid}/")
    assert answer.status_code == 200
    assert "scale ipujob train --replicas 1" in answer.content.decode()
