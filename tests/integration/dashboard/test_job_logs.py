"""Logs of a job's pods: from an API server with stand-in nodes to the page, the API and a file."""

from __future__ import annotations

import asyncio
import json
import re
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model

from dashboard.job.logs import ref_of
from devcluster.kubelet.options import StandInOptions
from devcluster.kubelet.standin import StandInNodes
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import Unreachable
from ipuhub.kube.podlogs import BlockingLog, LogRequest
from ipuhub.kube.resources import PODS
from partitions.connections import sources
from tests.builders import jobhistory
from tests.builders.clients import browser
from tests.builders.roles import grant
from tests.fakes.logpods import BEGAN, LogPods, at, ended, running
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.test import Client
    from pytest_django.fixtures import SettingsWrapper

    from jobs.models import JobRecord
    from tests.fakes.background import Background, Cluster
    from tests.integration.dashboard.conftest import Clock

pytestmark = pytest.mark.django_db
HOSTILE = "\x1b[31mred\x1b[0m <script>alert(1)</script>\x07 abc\u202efdp.exe \x9b2J"
LINES = {"Accept": "application/x-ndjson"}


@pytest.fixture
def job(db: None) -> JobRecord:
    return jobhistory.job(created_at=BEGAN)


@pytest.fixture
def pods(background: Background, cluster: Cluster, job: JobRecord) -> LogPods:
    return LogPods(background, cluster, job)


def page(client: Client, job: JobRecord, query: str = "") -> str:
    return client.get(f"/jobs/{job.uid}/logs/{query}").content.decode()


def log_lines(text: str) -> list[str]:
    return re.findall(r'<div class="line"><time[^>]*>[^<]*</time><span>(.*?)</span></div>', text)


def api(client: Client, job: JobRecord, query: str = "") -> Any:
    return client.get(f"/api/v1/jobs/{job.uid}/logs{query}")


def text_of(answer: Any) -> str:
    return b"".join(answer).decode() if answer.streaming else answer.content.decode()


def without_token(answer: Any) -> str:
    return re.sub('name="csrfmiddlewaretoken" value="[^"]*"', "", text_of(answer))


def test_the_page_shows_searches_and_bounds_the_log_of_a_running_container(
    user: Client, pods: LogPods, job: JobRecord
) -> None:
    pod = pods.add(log="\n".join(f"line {number}" for number in range(1, 251)))
    pods.say(pod, running())
    lines = log_lines(page(user, job))
    assert (len(lines), lines[0], lines[-1]) == (100, "line 151", "line 250")
    assert len(log_lines(page(user, job, "?lines=1000"))) == 250
    found = page(user, job, "?lines=1000&q=LINE 25")
    assert log_lines(found) == ["<mark>line 25</mark>", "<mark>line 25</mark>0"]
    assert "2 of the newest 250 lines contain" in found
    assert 'data-more="?pod=' in found


def test_hostile_bytes_are_shown_and_do_nothing(
    user: Client, pods: LogPods, job: JobRecord
) -> None:
    pod = pods.add(log=HOSTILE)
    pods.say(pod, running())
    want = "red <script>alert(1)</script>\u2407 abc<U+202E>fdp.exe <U+009B>2J"
    line = log_lines(page(user, job))[0]
    assert line == want.replace("<", "&lt;").replace(">", "&gt;")
    assert text_of(api(user, job)) == f"{want}\n"
    assert text_of(user.get(f"/jobs/{job.uid}/logs/?format=text")) == f"{want}\n"
    record = json.loads(text_of(user.get(f"/api/v1/jobs/{job.uid}/logs", headers=LINES)))
    assert record == {"time": f"{at(0)[:-1]}.000000000Z", "text": want}


def test_a_stranger_gets_what_an_unknown_job_gets(
    client: Client, pods: LogPods, job: JobRecord
) -> None:
    pod = pods.add(log="secret")
    pods.say(pod, running())
    client.force_login(get_user_model().objects.create_user("charlie"))
    for tail in ("logs/", "logs/?format=text", f"logs/?pod={pod.uid}&after={'0' * 16}~{at(0)}"):
        foreign = client.get(f"/jobs/{job.uid}/{tail}")
        unknown = client.get(f"/jobs/nobody/{tail}")
        assert (foreign.status_code, unknown.status_code) == (404, 404)
        assert without_token(foreign) == without_token(unknown)
    for kind in ({}, LINES):
        foreign = client.get(f"/api/v1/jobs/{job.uid}/logs", headers=kind)
        assert foreign.status_code == 404
        assert foreign.json() == client.get("/api/v1/jobs/nobody/logs", headers=kind).json()


def test_a_pod_of_another_job_is_no_pod_of_this_one(
    admin: Client, background: Background, cluster: Cluster, job: JobRecord
) -> None:
    other = LogPods(background, cluster, jobhistory.job("other", "team-b")).add(log="secret")
    assert admin.get(f"/jobs/{job.uid}/logs/?pod={other.uid}").status_code == 404
    assert api(admin, job, f"?pod={other.uid}").status_code == 404


def test_a_new_pod_of_the_same_name_is_never_shown_and_the_kept_tail_is(
    user: Client, pods: LogPods, job: JobRecord
) -> None:
    old = pods.add(log="old")
    message = "Container main exited with code 1"
    jobhistory.attempt(job, outcome="Failed", log="the last\nwords", message=message)
    pods.delete(old)
    other = jobhistory.pod(job, pod_name="train-worker-9", instance=9)
    lost = api(user, job, f"?pod={other.uid}")
    assert (lost.status_code, lost.json()["type"]) == (404, "urn:ipuhub:problem:pod-gone")
    gone = page(user, job, f"?pod={old.uid}")
    assert "The pod is gone from the cluster." in gone
    assert "the last\nwords" in gone
    assert message in gone
    body = {"metadata": {"name": old.pod_name, "annotations": {"sim/log": "foreign"}}}
    body |= {"spec": {"containers": [{"name": "main", "image": "x"}]}}
    pods.run("create", PODS, body, job.namespace)
    pods.say(old, running())
    for answer in (
        user.get(f"/jobs/{job.uid}/logs/?pod={old.uid}"),
        user.get(f"/jobs/{job.uid}/logs/?pod={old.uid}&after={'0' * 16}~{at(0)}"),
        user.get(f"/jobs/{job.uid}/logs/?pod={old.uid}&format=text"),
        api(user, job, f"?pod={old.uid}"),
    ):
        assert "foreign" not in text_of(answer)
    kept = api(user, job, f"?pod={old.uid}")
    assert (text_of(kept), kept["X-Log-Source"]) == ("the last\nwords\n", "kept")


def test_following_shows_each_line_once_and_ends_with_the_container(
    user: Client, pods: LogPods, job: JobRecord, clock: Clock
) -> None:
    written = ["same", "same", "first"]
    pod = pods.add(log="\n".join(written))
    pods.say(pod, running())
    text = page(user, job)
    seen = log_lines(text)
    mark = re.findall('data-mark="([^"]*)"', text)[0]
    state = "running"
    for number in range(6):
        if number < 3:
            written += [f"new {number}", "same"]
            pods.note(pod, "\n".join(written))
        if number == 4:
            pods.say(pod, ended(0))
        answer = user.get(f"/jobs/{job.uid}/logs/", {"pod": pod.uid, "after": mark})
        assert answer.status_code == 200
        seen += log_lines(answer.content.decode())
        mark, state = answer["X-Log-Mark"], answer["X-Log-State"]
        assert state == ("running" if number < 4 else "ended")
    assert seen == written


def test_who_follows_late_gets_the_newest_lines_and_is_told_of_a_gap(
    user: Client, pods: LogPods, job: JobRecord
) -> None:
    pod = pods.add(log="first")
    pods.say(pod, running())
    mark = re.findall('data-mark="([^"]*)"', page(user, job))[0]
    written = ["first", *(f"new {number}" for number in range(2500))]
    pods.note(pod, "\n".join(written))
    answer = user.get(f"/jobs/{job.uid}/logs/", {"pod": pod.uid, "after": mark})
    text = answer.content.decode()
    assert "Older lines were skipped" in text
    assert log_lines(text) == written[-2000:]
    again = user.get(f"/jobs/{job.uid}/logs/", {"pod": pod.uid, "after": answer["X-Log-Mark"]})
    assert again.content == b""
    sent = LogRequest(ref_of(pod), "main", tail_lines=2000, since=BEGAN).params()
    assert (sent["tailLines"], sent["sinceTime"]) == ("2000", "2026-11-20T09:00:00Z")


def test_a_container_that_has_written_nothing_yet_can_be_followed(
    user: Client, pods: LogPods, job: JobRecord
) -> None:
    pod = pods.add(log="hello")
    text = page(user, job)
    assert "Container main has not started yet: ContainerCreating." in text
    mark = re.findall('data-mark="([^"]*)"', text)[0]
    query = {"pod": pod.uid, "after": mark}
    waits = user.get(f"/jobs/{job.uid}/logs/", query)
    assert (waits.content, waits["X-Log-State"]) == (b"", "running")
    pods.say(pod, running(10))
    assert log_lines(user.get(f"/jobs/{job.uid}/logs/", query).content.decode()) == ["hello"]
    none = api(user, job, "?previous=true")
    assert (none.status_code, none.json()["type"]) == (409, "urn:ipuhub:problem:no-log")
    assert "was not restarted" in page(user, job, "?previous=on")


def test_the_run_before_a_restart_has_a_log_of_its_own(
    user: Client, pods: LogPods, job: JobRecord
) -> None:
    pod = pods.add("worker")
    pods.say(pod, running(70), lastState=ended(1), restartCount=1)
    assert "RuntimeError" in page(user, job, "?previous=on")
    assert "RuntimeError" not in page(user, job)
    assert "RuntimeError" in text_of(api(user, job, "?previous=true&tail_lines=2"))


def test_ten_megabytes_are_streamed_in_little_memory(
    user: Client, pods: LogPods, job: JobRecord
) -> None:
    pod = pods.add(**{"log-lines": "61000"})
    pods.say(pod, ended(0))
    answer = user.get(f"/jobs/{job.uid}/logs/?format=text")
    tracemalloc.start()
    blocks = iter(answer)
    size = len(next(blocks))
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    size += sum(len(block) for block in blocks)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size > 10_000_000
    assert peak - before < 3_000_000


@pytest.mark.parametrize("path", ["/api/v1/jobs/{uid}/logs", "/jobs/{uid}/logs/?format=text"])
def test_a_log_that_breaks_off_says_so_and_its_detail_to_administrators_only(
    admin: Client, pods: LogPods, job: JobRecord, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    pods.say(pods.add(log="hello\n"), running())
    user = get_user_model().objects.create_user("olga", password="x")
    grant(user, "operator", job.namespace)

    broke = "https://10.0.0.7:6443 closed the connection"

    def broken(log: BlockingLog) -> Iterator[bytes]:
        yield b"2026-11-01T00:00:00Z hello\n"
        raise Unreachable(broke)

    monkeypatch.setattr(BlockingLog, "__iter__", broken)
    for client, detail in ((admin, f": {broke}"), (browser(user), "")):
        last = text_of(client.get(path.format(uid=job.uid))).splitlines()[-1]
        assert last == f"[The log is incomplete: The Kubernetes API does not answer{detail}]"


def test_what_cannot_be_read_is_said(
    admin: Client, pods: LogPods, job: JobRecord, cluster: Cluster, settings: SettingsWrapper
) -> None:
    pod = pods.add(log="hello")
    pods.say(pod, running())
    cluster.stop()
    try:
        away = admin.get(f"/jobs/{job.uid}/logs/")
        assert (away.status_code, "The Kubernetes API does not answer" in text_of(away)) == (
            200,
            True,
        )
        refused = api(admin, job)
        assert (refused.status_code, refused["Content-Type"]) == (503, "application/problem+json")
        assert refused.json()["type"] == "urn:ipuhub:problem:cluster-unavailable"
        mark = f"{'0' * 16}~{at(0)}"
        more = admin.get(f"/jobs/{job.uid}/logs/", {"pod": pod.uid, "after": mark})
        assert (more.status_code, more["X-Log-State"]) == (200, "away")
    finally:
        cluster.start()
    settings.JOB_LOGS = False
    assert admin.get(f"/jobs/{job.uid}/logs/").status_code == 404
    assert api(admin, job).status_code == 404
    assert f"/jobs/{job.uid}/logs/" not in admin.get(f"/jobs/{job.uid}/").content.decode()


@pytest.mark.parametrize(
    "query",
    ["lines=7", "previous=x", "after=x", "format=csv", f"q={'x' * 201}", f"after={'0' * 16}~9"],
)
def test_a_bad_parameter_is_refused_by_its_name(admin: Client, job: JobRecord, query: str) -> None:
    answer = admin.get(f"/jobs/{job.uid}/logs/?{query}")
    assert answer.status_code == 400
    assert f"{query.partition('=')[0]}: " in answer.content.decode()


@pytest.fixture
def nodes(background: Background, cluster: Cluster) -> Iterator[None]:
    """Stand-in nodes on the cluster."""

    async def start() -> tuple[KubeClient, asyncio.Task[None]]:
        client = KubeClient(load_config(cluster.kubeconfig))
        nodes = StandInNodes(client, StandInOptions(nodes=1, claims=False))
        return client, asyncio.get_running_loop().create_task(nodes.run())

    client, task = background.run(start())
    yield

    async def stop() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()

    background.run(stop())


@pytest.mark.usefixtures("nodes")
def test_a_stand_in_node_writes_a_log_and_keeps_the_end_of_a_failed_one(
    user: Client, pods: LogPods, job: JobRecord
) -> None:
    body: dict[str, Any] = {
        "metadata": {
            "name": "real-launcher",
            "labels": {"graphcore.ai/ipujob-uid": job.uid, "graphcore.ai/role": "launcher"},
            "annotations": {"sim/runtime-seconds": "1", "sim/exit-code": "3"},
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "image": "x", "terminationMessagePolicy": "FallbackToLogsOnError"}
            ],
        },
    }
    uid = pods.run("create", PODS, body, job.namespace)["metadata"]["uid"]
    jobhistory.pod(job, "launcher", uid=uid, pod_name="real-launcher")

    def pod() -> Any:
        return pods.run("get", PODS, "real-launcher", job.namespace)

    wait_until(lambda: pod()["status"].get("phase") == "Failed")
    ended_state = pod()["status"]["containerStatuses"][0]["state"]["terminated"]
    last = "rank 0 ended with exit code 3; the other ranks were stopped"
    assert ended_state["message"].endswith(last)
    text = text_of(api(user, job, "?timestamps=true"))
    assert "RuntimeError" in text
    assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z ", line) for line in text.splitlines())
    assert sources().kube.client.calls["get", "pods/log"] == 1
