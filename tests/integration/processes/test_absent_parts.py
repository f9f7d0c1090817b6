"""A dependency is unavailable at the start or later: the process waits, reports it and continues.

Real processes, without a supervisor that would restart them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fakes.forked import forked
from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.context import ForkServerProcess

pytestmark = pytest.mark.embedded_only
ROOT = Path(__file__).resolve().parents[3]
LABEL = "vipu-ctrl=vctl1"


class Parts:
    """The product's processes, each started and killed by hand."""

    def __init__(self, directory: Path) -> None:
        ports = [free_port() for _ in range(4)]
        self.api, self.vipu, self.proxy, self.health = ports
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.running: dict[str, ForkServerProcess] = {}
        self.environment: dict[str, str] = {}

    def command(self, name: str) -> list[str]:
        manage = ["manage.py"]
        if name == "api":
            where = ["--dir", str(self.directory / "api"), "--port", str(self.api)]
            return [*manage, "run_devcluster", *where, "--kubeconfig", str(self.kubeconfig)]
        if name == "vipu":
            server = ["-m", "partitions.vipu.server.main"]
            storage = ["--storage", str(self.directory / "vipu.json")]
            return [*server, "--port", str(self.vipu), *storage]
        return [*manage, {"proxy": "run_vipu_proxy", "operator": "run_operator"}[name]]

    def start(self, name: str) -> None:
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "IPUHUB_NAMESPACE": "default",
            "IPUHUB_SERVICE_ACCOUNT": "default/operator",
            "PROXY_PORT": str(self.proxy),
            "IPUHUB_PROXY_URL": f"http://127.0.0.1:{self.proxy}",
            "IPUHUB_VIPU_CONTROLLERS": f"127.0.0.1:{self.vipu}:{LABEL}",
            "IPUHUB_HEALTH_PORT": str(self.health),
            "IPUHUB_IDENTITY": name,
            "IPUHUB_LEASE_DURATION_SECONDS": "9",
            "IPUHUB_LEASE_RENEW_SECONDS": "8",
            "IPUHUB_LEASE_RETRY_SECONDS": "0.2",
            **self.environment,
        }
        log = self.directory / f"{name}.log"
        self.running[name] = forked(self.command(name), ROOT, environment, log)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.join(90)

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.join(90)

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def readyz(self, port: int) -> str:
        """Return "ok", the failing lines, or "no answer"."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return str(error.read().decode())
        except OSError:
            return "no answer"

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self.states()}"
            time.sleep(0.1)

    def states(self) -> str:
        logs = [f"--- {name}\n{self.log(name)[-1500:]}" for name in self.running]
        ready = f"operator {self.readyz(self.health)!r} proxy {self.readyz(self.proxy)!r}"
        return "\n".join([ready, *logs])

    def says(self, port: int, *words: str) -> Callable[[], bool]:
        def is_said() -> bool:
            text = self.readyz(port)
            return text != "no answer" and all(word in text for word in words)

        return is_said

    def prepare_cluster(self) -> None:
        crd = ROOT / "charts/ipuhub/files/graphcore.ai_ipujobs.yaml"
        for arguments in (("apply", "-f", str(crd)), ("create", "serviceaccount", "operator")):
            self.kubectl(*arguments)
        role = ("--clusterrole=cluster-admin", "--serviceaccount=default:operator")
        self.kubectl("create", "clusterrolebinding", "operator", *role)

    def kubectl(self, *arguments: str) -> None:
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        subprocess.run(["kubectl", *arguments], env=environment, check=True, capture_output=True)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    parts = Parts(tmp_path)
    parts.start("api")  # once, for its certificates and kubeconfig
    parts.until(parts.kubeconfig.exists, "a kubeconfig")
    parts.until(lambda: "ready" in parts.log("api"), "an API server")
    parts.prepare_cluster()
    parts.kill("api")
    yield parts
    parts.stop()


def count_warnings(log: str, words: str) -> int:
    return sum("[warning" in line and words in line for line in log.splitlines())


@pytest.mark.parametrize(
    ("election", "lacks", "lost"),
    [
        ("on", ["leader election:"], "leader election:"),
        ("off", ["api-server:", "proxy:"], "api-server:"),
    ],
)
def test_operator_and_proxy_wait_for_what_is_absent_and_go_on_when_it_is_back(
    parts: Parts, election: str, lacks: list[str], lost: str
) -> None:
    parts.environment["IPUHUB_LEADER_ELECTION"] = election
    parts.start("operator")
    parts.start("proxy")
    parts.until(parts.says(parts.health, *lacks), "the operator says what it lacks")
    server = "leader election:" if election == "on" else "API server:"
    parts.until(parts.says(parts.proxy, server, "V-IPU"), "the proxy says what it lacks")
    assert set(parts.running) == {"operator", "proxy"}
    assert all(process.is_alive() for process in parts.running.values())

    parts.start("api")
    parts.start("vipu")
    parts.until(lambda: parts.readyz(parts.proxy) == "ok", "the proxy is ready")
    parts.until(lambda: parts.readyz(parts.health) == "ok", "the operator is ready")

    parts.kill("vipu")
    parts.until(parts.says(parts.proxy, "V-IPU"), "the proxy misses the controller")
    parts.start("vipu")
    parts.until(lambda: parts.readyz(parts.proxy) == "ok", "the proxy has it again")

    before = count_warnings(parts.log("operator"), "V-IPU Proxy does not answer")
    parts.kill("proxy")
    parts.until(parts.says(parts.health, "proxy:"), "the operator misses the proxy")
    parts.start("proxy")
    parts.until(lambda: parts.readyz(parts.health) == "ok", "the operator has it again")
    assert count_warnings(parts.log("operator"), "V-IPU Proxy does not answer") == before + 1

    parts.kill("api")
    parts.until(parts.says(parts.health, lost), "the operator misses the API server")
    if election == "on":  # away for longer than a Lease is held
        for name in ("operator", "proxy"):
            parts.until(lambda name=name: "standing by again" in parts.log(name), "it stands by")
    parts.start("api")
    parts.until(lambda: parts.readyz(parts.health) == "ok", "the operator goes on")
    parts.until(lambda: parts.readyz(parts.proxy) == "ok", "the proxy continues")
    for name in ("operator", "proxy"):
        assert "Traceback" not in parts.log(name)
        assert parts.running[name].is_alive()
        assert count_warnings(parts.log(name), "standing by again") == (election == "on")


def test_an_operator_without_credentials_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "run_operator"],
        env={**os.environ, "KUBECONFIG": str(tmp_path / "nowhere"), "IPUHUB_HEALTH_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 1
    assert "nowhere does not exist" in done.stderr
    assert "Traceback" not in done.stderr
