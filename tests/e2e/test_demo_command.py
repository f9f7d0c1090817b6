"""`make demo ARGS="--fleet 64"`: ports, a second start, two V-IPU controllers, another layout, one
Ctrl-C.

One demo for all of this: each start takes more than ten seconds of CPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.administrator import vipu_admin
from tests.e2e.running_demo import EXAMPLES, ROOT, start_demo, stop_demo
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.running_demo import RunningDemo

FORKS = Counter({"devcluster.demo.forkserver": 1})
PROCESSES = Counter(
    {
        "run_devcluster": 1,
        "run_kubelet": 1,
        "partitions.vipu.agent": 1,
        "partitions.vipu.server": 2,
        "run_webhooks": 1,
        "run_vipu_proxy": 1,
        "run_operator": 1,
        "bin/postgres": 1,
        "run_web": 1,
        "run_prober": 1,
        "run_monitor": 1,
        "celery": 1,
    }
)
JOBS = ("first", "second", "third")
"""Each takes a whole rack; a controller has two."""


def children_of(pid: int) -> dict[int, str]:
    """Return the command of each child, by its process id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if int(stat[1]) == pid:
                found[int(entry.name)] = command
    return found


def processes(children: dict[int, str]) -> Counter[str]:
    """Count each kind; a process of no kind counts by its command."""
    return Counter(
        next((kind for kind in PROCESSES + FORKS if kind in command), command)
        for command in children.values()
    )


@dataclass
class Demo:
    """The demo on a folder, which is started twice."""

    path: Path
    running: RunningDemo


@pytest.fixture(scope="module")
def started(needs_kubectl: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Started while another process has the web's first port."""
    path = tmp_path_factory.mktemp("fleet") / "state"
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8000))
            taken.listen()
        except OSError:
            pass  # another program has it already, which is the case that is tested
        made = Demo(path, start_demo(path, "--fleet", "64", logs=False))
    try:
        yield made
    finally:
        stop_demo(made.running)


@dataclass(frozen=True)
class Stop:
    """The jobs and the password when the first start was stopped, and its end."""

    uids: dict[str, str]
    password: str
    exit_code: int
    left: list[int]


@pytest.fixture(scope="module")
def stop(started: Demo) -> Stop:
    """Stop the demo while jobs run, and start it again, now with processes as production has them:
    a fork has modules that it does not import itself."""
    first = started.running
    try:
        for name in JOBS:
            first.kubectl("create", "-f", "-", stdin=job(name))
        for name in JOBS:
            wait_until(lambda name=name: first.status(name) == "Running", name)  # type: ignore[misc]
        first.wait_until_recording()
        uids, password = uids_of(first), first.password
        children = children_of(first.process.pid)
        assert processes(children) == PROCESSES + FORKS
    finally:
        ended = stop_demo(first)
    left = [pid for pid in children if Path(f"/proc/{pid}").exists()]
    started.running = start_demo(started.path, "--fleet", "64", "--exec")
    return Stop(uids, password, ended, left)


@pytest.fixture
def second(started: Demo, stop: Stop) -> RunningDemo:
    """The demo on its second start, with the jobs of the first."""
    return started.running


def uids_of(demo: RunningDemo) -> dict[str, str]:
    return {name: demo.job(name)["metadata"]["uid"] for name in JOBS}


def job(name: str) -> str:
    container = {"name": "main", "image": "example.com/main:1"}
    spec = {
        "jobInstances": 1,
        "ipusPerJobInstance": "64",
        "workers": {"template": {"spec": {"containers": [container]}}},
    }
    meta = {"name": name, "namespace": "default"}
    return json.dumps(
        {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "metadata": meta, "spec": spec}
    )


def detail(demo: RunningDemo) -> dict[str, Any]:
    return dict(json.loads(demo.http("/stats?detail=true")[1]))


def fleet(demo: RunningDemo) -> dict[str, Any]:
    account = ("ipuhub-operator", "-n", "ipuhub-system", "--audience=ipuhub-proxy")
    token = demo.kubectl("create", "token", *account).strip()
    status, text = demo.http("/v1/fleet", Authorization=f"Bearer {token}")
    assert status == 200, text
    return dict(json.loads(text))


second_admin = partial(vipu_admin, at="V-IPU 2 admin")


def test_a_taken_port_is_named_and_the_next_one_used(started: Demo) -> None:
    assert started.running.dashboard != "http://localhost:8000"
    assert any("port 8000 is taken: web uses" in line for line in started.running.lines)


def test_the_terminal_shows_progress_and_files_have_the_logs(started: Demo) -> None:
    lines = started.running.lines
    assert {"  kube-api is ready", "  operator is ready", "  web is ready"} <= set(lines)
    assert [line for line in lines if "[info" in line] == []
    assert "] leading" in (started.path / "logs" / "operator.log").read_text()


def test_the_state_is_closed_to_other_users(started: Demo) -> None:
    assert started.path.stat().st_mode & 0o077 == 0
    for name in ("kubeconfig", "admin-password", "secret-key"):
        assert (started.path / name).stat().st_mode & 0o077 == 0


def test_a_second_start_resumes_where_the_first_was_stopped(
    stop: Stop, second: RunningDemo
) -> None:
    assert stop.exit_code == 0
    assert stop.left == []
    assert uids_of(second) == stop.uids
    for name in JOBS:
        wait_until(lambda name=name: second.status(name) == "Running", name)  # type: ignore[misc]
    assert second.stats()["total"]["used"] == 192
    assert second.password == stop.password


def test_jobs_run_on_both_controllers_and_on_their_nodes_after_a_second_start(
    second: RunningDemo,
) -> None:
    for name in JOBS:
        wait_until(lambda name=name: second.status(name) == "Running", name)  # type: ignore[misc]
    controllers = fleet(second)["controllers"]
    assert [len(each["machines"]) for each in controllers] == [32, 32]
    nodes = {}
    for controller in controllers:
        ((key, value),) = controller["nodeSelector"].items()
        for partition in controller["partitions"]:
            nodes[partition["job"]["name"]] = f"{key}={value}"
    assert nodes == {
        "first": "vipu-ctrl=vctl0",
        "second": "vipu-ctrl=vctl0",
        "third": "vipu-ctrl=vctl1",
    }
    for name, label in nodes.items():
        pods = ("pods", "-l", f"graphcore.ai/ipujob-name={name}")
        on = second.kubectl("get", *pods, "-o", "jsonpath={.items[*].spec.nodeName}").split()
        labelled = second.kubectl("get", "nodes", "-l", label, "-o", "jsonpath={..metadata.name}")
        assert on
        assert set(on) <= set(labelled.split())


def test_the_second_controllers_machines_are_named_as_its_own(second: RunningDemo) -> None:
    """Both controllers have an ag30 and an ag31."""
    ports = second.ports
    for purpose in ("V-IPU", "V-IPU admin", "V-IPU 2", "V-IPU 2 admin"):
        assert any(f"--api-port {ports[purpose]} list" in line for line in second.lines), purpose
    address = fleet(second)["controllers"][1]["address"]
    second_admin(second, "cordon", "agent", "ag30", "--reason", "new cables on Monday")
    second_admin(second, "provoke", "fault", "ag31", "--ipu", "2")
    wait_until(lambda: "ag31" in fleet(second)["outOfService"], "the fault is seen")
    assert fleet(second)["outOfService"] == (
        f"4 IPUs of {address} (ag30 is cordoned: new cables on Monday), "
        f"1 IPU of {address} (ag31: IPU 2 has a memory error)"
    )
    second_admin(second, "uncordon", "agent", "ag30")
    second_admin(second, "clear", "fault", "ag31")
    wait_until(lambda: fleet(second)["outOfService"] == "", "all are in service")


def test_a_layout_changed_by_vipu_admin_is_what_the_proxy_counts(second: RunningDemo) -> None:
    before = detail(second)
    assert [each["totalIpus"] for each in before["controllers"]] == [128, 128]
    assert before["total"] == {"used": 192, "available": 64}
    used = fleet(second)["controllers"][1]["partitions"][0]["id"]
    (free,) = {"rack2", "rack3"} - {
        word
        for word in second_admin(second, "list", "partitions").split()
        if word.startswith("rack")
    }
    agents = {
        machine["agent"]
        for machine in fleet(second)["controllers"][1]["machines"]
        if machine["cluster"] == free
    }
    second_admin(second, "remove", "allocation", free)
    second_admin(second, "remove", "cluster", free)
    first, *_ = chosen = sorted(agents, key=lambda agent: int(agent.removeprefix("ag")))[:4]
    second_admin(second, "create", "cluster", "small", "--agents", ",".join(chosen))
    second_admin(second, "create", "allocation", "team-a", "--cluster", "small", "--agents", first)

    def counted() -> bool:
        return bool(detail(second)["total"] == {"used": 192, "available": 4})

    wait_until(counted, "the proxy reads the layout again")
    changed = fleet(second)["controllers"][1]
    assert {m["agent"] for m in changed["machines"] if m["cluster"] == "small"} >= {first}
    assert [each["id"] for each in changed["partitions"]] == [used]
    sizes = {each["size"]: each["numOfPartitions"] for each in detail(second)["sizes"]}
    assert (sizes[4], sizes[8], sizes[64]) == (1, 0, 0)
    assert second.status("third") == "Running"


def test_every_process_that_is_killed_comes_back_and_jobs_run_again(second: RunningDemo) -> None:
    second.wait_until_recording()
    second.kubectl("delete", "ipujobs", "--all", "--timeout=120s")
    killed = children_of(second.process.pid)
    assert processes(killed) == PROCESSES
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):  # it went with one killed before it
            os.kill(pid, signal.SIGKILL)

    def all_are_back() -> bool:
        found = children_of(second.process.pid)
        return not found.keys() & killed.keys() and processes(found) == PROCESSES

    wait_until(all_are_back, "every process again", 120)
    apply = ("apply", "-f", str(EXAMPLES / "single-gcd-sample.yaml"))
    wait_until(lambda: second.try_kubectl(*apply).returncode == 0, "the API and its webhooks", 120)
    wait_until(lambda: second.status("ipujob-sample") == "Running", "Running", 120)
    assert second.process.poll() is None
    second.kubectl("delete", "ipujob", "ipujob-sample", "--timeout=120s")
    wait_until(lambda: second.stats()["total"]["used"] == 0, "all IPUs free")


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
