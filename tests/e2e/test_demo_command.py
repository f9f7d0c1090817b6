"""`make demo` as a command: ports, a second start, a second demo, one Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.e2e.running_demo import EXAMPLES, ROOT, start_demo, stop_demo
from tests.fakes.waiting import wait_until

PROCESSES = (
    "run_devcluster",
    "run_kubelet",
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


def test_a_second_start_resumes_where_the_first_was_stopped(
    needs_kubectl: None, tmp_path: Path
) -> None:
    first = start_demo(tmp_path / "state")
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

    second = start_demo(tmp_path / "state")
    try:
        assert second.job("ipujob-sample")["metadata"]["uid"] == uid
        wait_until(lambda: second.status("ipujob-sample") == "Running", "still Running")
        assert second.stats()["total"]["used"] == 4
        assert second.password == password
        second.kubectl("delete", "ipujob", "ipujob-sample", "--timeout=120s")
        assert second.stats()["total"]["used"] == 0
    finally:
        stop_demo(second)


def test_every_process_that_is_killed_comes_back_and_jobs_run_again(
    needs_kubectl: None, tmp_path: Path
) -> None:
    demo = start_demo(tmp_path / "state")
    try:
        demo.wait_until_recording()
        victims = {marker: demo.pid_of(marker) for marker in PROCESSES}
        for pid in victims.values():
            with contextlib.suppress(ProcessLookupError):  # it went with one killed before it
                os.kill(pid, signal.SIGKILL)
        for marker, pid in victims.items():
            wait_until(lambda: demo.find_pid(marker) not in {None, pid}, f"{marker} again", 120)  # noqa: B023
        apply = ("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
        wait_until(
            lambda: demo.try_kubectl(*apply).returncode == 0, "the API and its webhooks", 120
        )
        wait_until(lambda: demo.status("ipujob-sample") == "Running", "Running", 120)
        assert demo.process.poll() is None
    finally:
        stop_demo(demo)


def test_a_taken_port_is_named_and_the_next_one_used(needs_kubectl: None, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = 8000
        try:
            taken.bind(("127.0.0.1", port))
            taken.listen()
        except OSError:
            pass  # another program has it already, which is the case that is tested
        demo = start_demo(tmp_path / "state")
        try:
            assert demo.dashboard != "http://localhost:8000"
            assert any("port 8000 is taken: web uses" in line for line in demo.lines)
        finally:
            stop_demo(demo)


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


def test_the_state_is_closed_to_other_users(needs_kubectl: None, tmp_path: Path) -> None:
    demo = start_demo(tmp_path / "state")
    try:
        assert demo.directory.stat().st_mode & 0o077 == 0
        for name in ("kubeconfig", "admin-password", "secret-key"):
            assert (demo.directory / name).stat().st_mode & 0o077 == 0
    finally:
        stop_demo(demo)
