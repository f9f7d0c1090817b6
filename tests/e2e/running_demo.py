"""The demo as a newcomer starts it, and `kubectl` on it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipuhub.kube.config import load_config
from tests.fakes.forked import answer_of
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from playwright._impl._api_structures import SetCookieParam

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
START_SECONDS = 300  # all of a dozen processes, on a slow machine under load
# Tests wait for sweeps, and a dozen processes run meanwhile.
SETTINGS = {"IPUHUB_SWEEP_SECONDS": "10"}


@dataclass
class RunningDemo:
    """A `manage.py demo` process and where its parts answer."""

    directory: Path
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    dashboard: str = ""
    proxy: str = ""
    reader: threading.Thread | None = None
    session: list[SetCookieParam] = field(default_factory=list)
    """The cookies of the administrator's browser."""

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def ports(self) -> dict[str, int]:
        ports: dict[str, int] = json.loads((self.directory / "ports.json").read_text())
        return ports

    @property
    def password(self) -> str:
        return (self.directory / "admin-password").read_text().strip()

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        done = self.try_kubectl(*arguments, stdin=stdin)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def try_kubectl(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["kubectl", *arguments],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def job(self, name: str, namespace: str = "default") -> dict[str, Any]:
        found = self.read(f"/apis/graphcore.ai/v1alpha1/namespaces/{namespace}/ipujobs/{name}")
        assert found, f"there is no IPUJob {namespace}/{name}"
        return found

    def read(self, path: str) -> dict[str, Any]:
        """Return the object at a path of the Kubernetes API, empty if there is none."""
        code, found = self.ask("GET", path)
        assert code in {HTTPStatus.OK, HTTPStatus.NOT_FOUND}, found
        return found if code == HTTPStatus.OK else {}

    def ask(
        self, method: str, path: str, body: object = None, account: str = "", user: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Return the status and the body that the Kubernetes API answers to the administrator, or
        to the `account` of a process; asked in the name of a `user`.

        Tests ask many times for what they wait for, and each kubectl is a process of its own.
        """
        own = self.directory / "accounts" / account
        cluster = load_config(f"{own}.kubeconfig" if account else str(self.kubeconfig))
        headers = {"Content-Type": "application/json"}
        if account:
            headers["Authorization"] = f"Bearer {Path(f'{own}.token').read_text()}"
        if user:
            headers["Impersonate-User"] = user
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(cluster.server + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60, context=cluster.ssl_context()) as got:
                return got.status, json.load(got)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def status(self, name: str, namespace: str = "default") -> str:
        return str(self.job(name, namespace).get("status", {}).get("launcherStatus", ""))

    def http(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
        names = {key.replace("_", "-"): value for key, value in headers.items()}
        request = urllib.request.Request(self.proxy + path, data=body, headers=names)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = json.loads(self.http("/stats")[1])
        return stats

    def query(self, size: int) -> str:
        body = json.dumps({"size": size}).encode()
        return self.http("/query", body, Content_Type="application/json")[1]

    def wait_until_recording(self) -> None:
        """The prober begins a moment after the demo is up."""
        wait_until(lambda: any("what runs is recorded" in line for line in self.lines), "recording")

    def manage(self, *arguments: str) -> str:
        """Run a management command as a person does in a second terminal."""
        done = answer_of([str(ROOT / "manage.py"), *arguments], ROOT, _environment())
        assert done.code == 0, done.out + done.err
        return done.out

    def pid_of(self, marker: str) -> int:
        """Return the process id of the demo's child whose command line has `marker`."""
        pid = self.find_pid(marker)
        assert pid is not None, f"no child of the demo runs {marker}"
        return pid

    def find_pid(self, marker: str) -> int | None:
        """The same, or None while there is none."""
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if int(stat[1]) == self.process.pid and marker in command:
                return int(entry.name)
        return None


def _environment() -> dict[str, str]:
    """Ours, without the settings module of the tests."""
    return {key: value for key, value in os.environ.items() if not key.startswith("DJANGO")}


def start_demo(directory: Path, *arguments: str, logs: bool = True) -> RunningDemo:
    """Start the demo and wait for its summary; with `logs` it prints the logs of its processes."""
    arguments += ("--logs",) if logs else ()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "demo", "--dir", str(directory), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**_environment(), **SETTINGS},
    )
    demo = RunningDemo(directory, process)
    up = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            demo.lines.append(line.rstrip("\n"))
            if found := re.search(r"dashboard +(http://\S+)", line):
                demo.dashboard = found[1]
            if found := re.search(r"V-IPU Proxy (http://\S+)/stats", line):
                demo.proxy = found[1]
            if "Ctrl-C stops everything" in line:
                up.set()
        up.set()

    demo.reader = threading.Thread(target=read, daemon=True)
    demo.reader.start()
    up.wait(START_SECONDS)
    if not demo.dashboard:
        stop_demo(demo)
        raise AssertionError("\n".join(demo.lines[-60:]))
    return demo


def stop_demo(demo: RunningDemo) -> int:
    """Press Ctrl-C and wait for the end."""
    demo.process.send_signal(signal.SIGINT)
    try:
        return demo.process.wait(180)
    finally:
        demo.process.kill()
        if demo.reader is not None:
            demo.reader.join(10)
        if demo.process.stdout is not None:
            demo.process.stdout.close()
