"""The demo that runs the commands of pods: mpirun over two workers, and a shell in a session."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.e2e.running_demo import EXAMPLES, start_demo, stop_demo
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.running_demo import RunningDemo


@pytest.fixture(scope="module")
def running(needs_kubectl: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    if shutil.which("mpirun") is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "mpirun")
    started = start_demo(tmp_path_factory.mktemp("demo"), "--nodes", "2", "--processes")
    try:
        yield started
    finally:
        stop_demo(started)
    assert [line for line in started.lines if "is forbidden" in line] == []


def wait_for_the_end(running: RunningDemo, job: str) -> None:
    try:
        wait_until(lambda: running.status(job) in {"Completed", "Failed"}, "the end")
    except AssertionError as error:
        pods = running.kubectl("get", "pods", "-o", "wide")
        about = running.kubectl("describe", "ipujob", job)
        log = running.kubectl("logs", f"{job}-launcher", "--all-containers", check=False)
        raise AssertionError("\n".join((str(error), pods, about[-2500:], log))) from error


def test_mpirun_reaches_two_workers_through_the_script_and_the_jobs_own_role(
    running: RunningDemo,
) -> None:
    running.kubectl("apply", "-f", str(EXAMPLES / "mpi-hello.yaml"))
    wait_for_the_end(running, "mpi-hello")
    log = running.kubectl("logs", "mpi-hello-launcher")
    assert sorted(line for line in log.splitlines() if line.startswith("hello")) == [
        "hello from rank 0 on mpi-hello-worker-0",
        "hello from rank 1 on mpi-hello-worker-1",
    ]
    waited = running.kubectl("logs", "mpi-hello-launcher", "-c", "ipuhub-launcher")
    assert "workers" in waited
    assert running.status("mpi-hello") == "Completed"
    running.kubectl("delete", "ipujob", "mpi-hello")


def test_a_rank_that_fails_fails_the_job_with_its_exit_code(running: RunningDemo) -> None:
    text = (EXAMPLES / "mpi-hello.yaml").read_text().replace("name: mpi-hello", "name: mpi-fails")
    text = text.replace('echo "hello from', "exit 3 #")
    running.kubectl("apply", "-f", "-", stdin=text)
    wait_for_the_end(running, "mpi-fails")
    assert running.status("mpi-fails") == "Failed"
    state = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"
    assert running.kubectl("get", "pod", "mpi-fails-launcher", "-o", state) == "3"
    running.kubectl("delete", "ipujob", "mpi-fails")


def test_a_session_gives_a_shell(running: RunningDemo) -> None:
    job = "interactive-sample-job"
    running.kubectl("apply", "-f", str(EXAMPLES / "interactive-job.yaml"))
    wait_until(lambda: running.status(job) == "Running", "Running")
    # `script` gives kubectl the terminal that -t wants
    command = f"kubectl exec -it {job}-launcher -- bash -c 'test -t 0 && echo hi from $HOSTNAME'"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        env={**os.environ, "KUBECONFIG": str(running.kubeconfig)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert f"hi from {job}-launcher" in done.stdout, done.stdout + done.stderr
    running.kubectl("delete", "ipujob", job)
