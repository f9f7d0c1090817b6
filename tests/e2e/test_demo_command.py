"""`make demo` as a command: ports, a second start, a second demo, one Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.running_demo import EXAMPLES, ROOT, start_demo, stop_demo
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.running_demo import RunningDemo

PROCESSES = (
    "run_devcluster",
    "run_kubelet",
    "partitions.vipu.agent",
    "partitions.vipu.server",
    "run_webhooks",
    "run_vipu_proxy",
    "run_operator",
    "bin/postgres",
    "run_web",
    "run_prober",
    "run_monitor",
    "celery",
)


def children_of(pid: int) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(stat[1]) == pid:
                found.add(int(entry.name))
    return found


@dataclass
class Folder:
    """A folder and the demo on it; each test leaves a running demo without jobs."""

    path: Path
    demo: RunningDemo

    def start_again(self) -> None:
        self.demo = start_demo(self.path)


@pytest.fixture(scope="module")
def folder(needs_kubectl: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """Started while another process has the web's first port."""
    path = tmp_path_factory.mktemp("demo") / "state"
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        except OSError:
            pass  # another program has it already, which is the case that is tested
        started = Folder(path, start_demo(path, logs=False))
    try:
        yield started
    finally:
        stop_demo(started.demo)


def test_a_taken_port_is_named_and_the_next_one_used(folder: Folder) -> None:
    assert folder.demo.dashboard != "http://localhost:8000"
    assert any("port 8000 is taken: web uses" in line for line in folder.demo.lines)


def test_the_terminal_shows_progress_and_files_have_the_logs(folder: Folder) -> None:
    lines = folder.demo.lines
    assert {"  kube-api is ready", "  operator is ready", "  web is ready"} <= set(lines)
    assert [line for line in lines if "[info" in line] == []
    assert "] leading" in (folder.path / "logs" / "operator.log").read_text()


def test_the_state_is_closed_to_other_users(folder: Folder) -> None:
    assert folder.path.stat().st_mode & 0o077 == 0
    for name in ("kubeconfig", "admin-password", "secret-key"):
        assert (folder.path / name).stat().st_mode & 0o077 == 0


def test_a_second_start_resumes_where_the_first_was_stopped(folder: Folder) -> None:
    first = folder.demo
    try:
        first.kubectl("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
        wait_until(lambda: first.status("ipujob-sample") == "Running", "Running")
        first.wait_until_recording()
        uid, password = first.job("ipujob-sample")["metadata"]["uid"], first.password
        children = children_of(first.process.pid)
        assert len(children) == len(PROCESSES)
    finally:
        ended = stop_demo(first)
    assert ended == 0
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]

    folder.start_again()
    second = folder.demo
    assert second.job("ipujob-sample")["metadata"]["uid"] == uid
    wait_until(lambda: second.status("ipujob-sample") == "Running", "still Running")
    assert second.stats()["total"]["used"] == 4
    assert second.password == password
    second.kubectl("delete", "ipujob", "ipujob-sample", "--timeout=120s")
    assert second.stats()["total"]["used"] == 0


def test_every_process_that_is_killed_comes_back_and_jobs_run_again(folder: Folder) -> None:
    demo = folder.demo
    demo.wait_until_recording()
    victims = {marker: demo.pid_of(marker) for marker in PROCESSES}
    for pid in victims.values():
        with contextlib.suppress(ProcessLookupError):  # it went with one killed before it
            os.kill(pid, signal.SIGKILL)
    for marker, pid in victims.items():
        wait_until(lambda: demo.find_pid(marker) not in {None, pid}, f"{marker} again", 120)  # noqa: B023
    apply = ("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
    wait_until(lambda: demo.try_kubectl(*apply).returncode == 0, "the API and its webhooks", 120)
    wait_until(lambda: demo.status("ipujob-sample") == "Running", "Running", 120)
    assert demo.process.poll() is None
    demo.kubectl("delete", "ipujob", "ipujob-sample", "--timeout=120s")


def test_a_second_demo_on_one_folder_is_refused_in_words(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "demo", "--dir", str(tmp_path)],
            capture_output=True,
            text=True,
            env={**os.environ},
            check=False,
            timeout=180,
        )
    assert done.returncode == 1
    assert "a demo already runs on" in done.stderr
    assert "Traceback" not in done.stderr
