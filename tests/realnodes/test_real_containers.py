"""Jobs in real containers: their launcher, their probes, and how containers end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.realnodes.conftest import Jobs

HELLO = ["sh", "-c", "echo hello from rank $OMPI_COMM_WORLD_RANK on $(hostname)"]
MPIRUN = ["mpirun", "--allow-run-as-root", "-np", "3"]


def test_mpirun_reaches_three_workers_by_exec_and_all_end_well(jobs: Jobs) -> None:
    jobs.submit(
        "hello",
        workersPerJobInstance="3",
        modelReplicasPerWorker="1",
        ipusPerJobInstance="4",
        launcher={"command": [*MPIRUN, *HELLO]},
        restartPolicy={"type": "Never"},
    )
    jobs.until("hello", "Completed")
    ranks = {line.split()[3] for line in jobs.logs("hello-launcher").splitlines() if "rank" in line}
    assert ranks == {"0", "1", "2"}
    nodes = {pod["spec"]["nodeName"] for pod in jobs.pods("hello").values()}
    assert nodes <= {"node-1", "node-2"}
    for pod in ("hello-launcher", *(f"hello-worker-{number}" for number in range(3))):
        jobs.until_phase("hello", pod, "Succeeded")  # alerts count pods that end as Failed


def test_the_launcher_waits_for_workers_that_are_ready_late(jobs: Jobs) -> None:
    ready = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    jobs.submit(
        "late",
        workersPerJobInstance="2",
        launcher={"command": ["sh", "-c", "echo begun"]},
        container={"readinessProbe": ready},
    )
    # Both workers run, and none is ready: nothing else could let the launcher begin.
    for worker in ("late-worker-0", "late-worker-1"):
        jobs.until_phase("late", worker, "Running")
        assert jobs.pods("late")["late-launcher"]["status"]["phase"] == "Pending"
        jobs.kubectl("exec", worker, "--", "touch", "/tmp/ready")
    jobs.until("late", "Completed")
    assert jobs.logs("late-launcher") == "begun\n"


def test_a_worker_killed_for_its_memory_says_so(jobs: Jobs) -> None:
    hog = ["python3", "-c", "b'x' * 2**30"]
    jobs.submit(
        "greedy",
        restartPolicy={"type": "Never"},
        container={"command": hog, "resources": {"limits": {"memory": "32Mi"}}},
    )
    status = jobs.until("greedy", "Failed")
    reasons = {c["reason"] for c in status["conditions"] if c["status"] == "True"}
    assert "OOMKilled" in reasons, status["conditions"]


def test_an_image_that_nobody_has_is_named_and_the_job_can_be_deleted(jobs: Jobs) -> None:
    jobs.submit("nowhere", container={"image": "localhost/none:1", "command": ["true"]})
    assert "localhost/none:1" in jobs.until_reason("nowhere", "ImagePullFailed")


def test_workers_that_want_one_port_of_the_node_are_told_apart(jobs: Jobs) -> None:
    jobs.submit(
        "ports",
        workersPerJobInstance="3",
        container={"command": ["sleep", "3600"], "ports": [{"containerPort": 5123}]},
    )
    message = jobs.until_reason("ports", "Unschedulable")
    assert "free ports" in message


def test_an_exit_code_is_the_jobs(jobs: Jobs) -> None:
    jobs.submit(
        "fails",
        restartPolicy={"type": "Never"},
        launcher={"command": ["sh", "-c", "echo last words; exit 3"]},
    )
    status = jobs.until("fails", "Failed")
    assert any("3" in c["message"] for c in status["conditions"] if c["type"] == "Failed")
