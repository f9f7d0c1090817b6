"""Reasons of failed jobs: container, exit code, signal, memory, deadlines, last log lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.ipujob.logtails import ALL_TAILS, LONGEST_TAIL, clean_tail, longest_tail
from jobs.operator.instancerecord import record_of
from jobs.operator.ownership import trim_pod
from jobs.operator.plan import plan
from jobs.operator.pods import exit_words, from_manifest
from tests.builders.ipujobs import NOW, ipujob, launcher, observed, partition, worker
from tests.builders.plans import condition_of, status_of, with_partition


def ended(*pods: Any, **spec: Any) -> Any:
    """The plan of the pass that sees the end."""
    job = ipujob().running().with_spec(**spec)
    return plan(with_partition(job, *(pod(job.build()) for pod in pods)), NOW)


@pytest.mark.parametrize(
    ("code", "want"),
    [(137, "137 (SIGKILL)"), (143, "143 (SIGTERM)"), (139, "139 (SIGSEGV)"), (1, "1")],
)
def test_a_code_past_128_names_its_signal(code: int, want: str) -> None:
    assert exit_words(code) == want


@pytest.mark.parametrize("code", [128, 192 + 1, 255])
def test_a_code_that_is_no_signal_names_none(code: int) -> None:
    assert exit_words(code) == str(code)


def test_it_names_container_code_and_signal_in_condition_event_and_instance() -> None:
    planned = ended(lambda j: worker(j).running(), lambda j: launcher(j).failed(137))
    message = "Container main of sample-launcher exited with code 137 (SIGKILL)"
    assert condition_of(planned) == (
        "Failed",
        "IPUJobFailed",
        f"IPUJob default/sample has failed: {message}.",
    )
    assert status_of(planned)["instances"][0]["message"] == message
    assert [e.message for e in planned.actions[0].events] == [condition_of(planned)[2]]


def test_out_of_memory_is_the_reason_and_says_the_limit() -> None:
    limits = {
        "containers": [{"name": "main", "image": "a", "resources": {"limits": {"memory": "2Gi"}}}]
    }
    planned = ended(
        lambda j: worker(j).running(),
        lambda j: launcher(j).failed(137, "OOMKilled").with_spec(**limits),
    )
    kind, reason, message = condition_of(planned)
    assert (kind, reason) == ("Failed", "OOMKilled")
    assert "Container main of sample-launcher" in message
    assert "limit of 2Gi (OOMKilled, exit code 137 (SIGKILL))" in message


def test_a_worker_out_of_memory_explains_the_launchers_failure_and_keeps_its_code() -> None:
    planned = ended(lambda j: worker(j).failed(137, "OOMKilled"), lambda j: launcher(j).failed(1))
    _, reason, message = condition_of(planned)
    assert reason == "OOMKilled"
    assert "Container main of sample-worker-0 was killed" in message
    assert "Container main of sample-launcher exited with code 1" in message
    assert status_of(planned)["instances"][0]["exitCode"] == 1


def test_a_command_that_is_not_there_is_said_in_the_runtimes_words() -> None:
    words = 'exec: "trainn": executable file not found in $PATH'
    planned = ended(
        lambda j: worker(j).running(), lambda j: launcher(j).failed(128, "StartError", words)
    )
    assert f"could not be started (StartError, exit code 128): {words}" in condition_of(planned)[2]


def test_a_failed_init_container_is_the_one_that_is_named() -> None:
    terminated = {"exitCode": 5, "reason": "Error", "message": "cannot mount"}
    init = {
        "phase": "Failed",
        "initContainerStatuses": [{"name": "prepare", "state": {"terminated": terminated}}],
    }
    job = ipujob()
    failed = launcher(job.build()).scheduled().with_status(**init)
    planned = plan(with_partition(job, worker(job.build()).running(), failed), NOW)
    entry = status_of(planned)["instances"][0]
    assert "Container prepare of sample-launcher exited with code 5" in condition_of(planned)[2]
    assert entry["log"] == "cannot mount"


@pytest.mark.parametrize(("code", "sidecars_code"), [(1, 143), (1, 0), (0, 143), (0, 0)])
def test_the_end_of_a_sidecar_says_nothing_of_the_pods(code: int, sidecars_code: int) -> None:
    job = ipujob().build()
    pod = worker(job).failed(code, "Error" if code else "Completed")
    trimmed = trim_pod(pod.with_sidecar(sidecars_code).build())
    view = from_manifest(trimmed)
    assert view.exit_code == code
    assert (view.ending.exit_code if view.ending else 0) == code


def test_a_sidecar_that_used_too_much_memory_is_not_why_its_pod_failed() -> None:
    job = ipujob().build()
    pod = worker(job).failed(1).with_sidecar(137, "OOMKilled")
    view = from_manifest(trim_pod(pod.build()))
    assert not view.is_out_of_memory
    assert view.ending is not None
    assert "Container main of sample-worker-0 exited with code 1" in view.ending.sentence


def test_a_job_is_not_restarted_for_the_code_of_a_sidecar() -> None:
    job = ipujob().running().without_launcher()
    job.with_spec(restartPolicy={"type": "ExitCode"})
    failed = worker(job.build()).failed(1).with_sidecar(143)
    planned = plan(with_partition(job, failed), NOW)
    assert condition_of(planned)[0] == "Failed"
    assert status_of(planned)["instances"][0]["exitCode"] == 1


def test_the_templates_own_deadline_is_told_from_ours() -> None:
    late = {"phase": "Failed", "reason": "DeadlineExceeded", "containerStatuses": []}
    planned = ended(
        lambda j: worker(j).running(),
        lambda j: launcher(j).running().with_status(**late).with_spec(activeDeadlineSeconds=60),
    )
    assert condition_of(planned)[1] == "PodDeadlineExceeded"
    assert "template's activeDeadlineSeconds of 60 s" in condition_of(planned)[2]


def test_a_pod_without_a_code_tells_what_the_node_said() -> None:
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough cpu"}
    planned = ended(lambda j: worker(j).running(), lambda j: launcher(j).with_status(**status))
    assert (
        "sample-launcher has failed: OutOfcpu: Node didn't have enough cpu"
        in condition_of(planned)[2]
    )


def test_an_eviction_tells_what_the_node_lacked() -> None:
    message = "The node was low on resource: memory"
    planned = ended(
        lambda j: worker(j).exited(137, "Evicted").with_status(message=message),
        lambda j: launcher(j).running(),
    )
    assert condition_of(planned)[1] == "WorkerLost"
    assert f"was removed: Evicted: {message}" in condition_of(planned)[2]


def test_the_last_lines_of_a_final_attempt_are_in_its_instance() -> None:
    planned = ended(
        lambda j: worker(j).running(), lambda j: launcher(j).failed(1, message="ValueError: 7\n")
    )
    assert status_of(planned)["instances"][0]["log"] == "ValueError: 7"


def test_the_last_lines_of_an_attempt_before_are_in_last_exit_and_survive_the_next() -> None:
    planned = ended(
        lambda j: worker(j).running(),
        lambda j: launcher(j).failed(1, message="Traceback\nValueError: 7"),
        restartPolicy={"type": "OnFailure"},
    )
    entry = status_of(planned)["instances"][0]
    assert entry["lastExit"]["log"] == "Traceback\nValueError: 7"
    assert "log" not in entry
    assert record_of({"instances": [entry]}, 0).to_entry() == entry


def test_a_success_keeps_no_log() -> None:
    planned = ended(lambda j: worker(j).running(), lambda j: launcher(j).exited(0))
    assert "log" not in status_of(planned)["instances"][0]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("\x1b[31mred\x1b[0m and \x1b]0;title\x07plain", "red and plain"),
        ("a\tb\r\nc\x00\x07d\x9b", "a\tb\ncd"),
        ("  1%\r 50%\r100%\nDone\n\n", "100%\nDone"),
        ("abc\u202edef", "abcdef"),
        ("half \ud800 pair", "half  pair"),
    ],
)
def test_a_tail_has_no_colours_and_no_control_characters(text: str, want: str) -> None:
    assert clean_tail(text) == want


def test_a_long_log_keeps_whole_last_lines_within_its_bytes() -> None:
    tail = clean_tail("".join(f"line {n} \u00e9\n" for n in range(1000)))
    assert len(tail.encode()) <= LONGEST_TAIL
    assert tail.startswith("line ")
    assert tail.endswith("line 999 \u00e9")
    assert len(clean_tail("\u00e9" * 5000).encode()) <= LONGEST_TAIL


def test_the_logs_of_many_instances_together_stay_far_below_what_an_object_may_hold() -> None:
    assert longest_tail(1) == LONGEST_TAIL
    assert 2 * 1000 * longest_tail(1000) <= ALL_TAILS
    job = ipujob().without_launcher().instances(100).running()
    built = job.build()
    pods = [worker(built, n, n).failed(1, message="x" * 4000) for n in range(100)]
    seen = observed(built, *pods, partitions=tuple(partition(n) for n in range(100)))
    entries = status_of(plan(seen, NOW))["instances"]
    assert sum(len(entry["log"]) for entry in entries) <= ALL_TAILS // 2


@pytest.mark.parametrize(
    "later", ["Back-off pulling image", 'Back-off pulling image "app:1"', "denied: try 2"]
)
def test_the_registrys_words_are_told_once(later: str) -> None:
    job = ipujob()
    built = job.build()
    refused = "denied: requested access to the resource is denied (request 1)"
    first = plan(
        with_partition(job, worker(built).waiting("ErrImagePull", refused), launcher(built)), NOW
    )
    assert condition_of(first)[1] == "ImagePullFailed"
    assert condition_of(first)[2] == (
        f'Cannot pull image "app:1" for container main of pod sample-worker-0: {refused}'
    )
    again = with_partition(job, worker(built).waiting("ImagePullBackOff", later), launcher(built))
    stored = {**built, "status": status_of(first)}
    assert plan(replace(again, job=stored), NOW).actions == ()
