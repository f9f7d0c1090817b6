"""The checks of `helm test`, run as in their pod: against an API server and pods of this test."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from ipuhub.certificates import make_authority, pem_of
from tests.chart.rendering import CHART, VIPU, named, render
from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REFUSED = {"message": 'admission webhook "x" denied the request: spec.ipusPerJobInstance is wrong'}


class Cluster(BaseHTTPRequestHandler):
    """An API server with these pods, the proxy, and a pod that answers /readyz."""

    pods: ClassVar[list[dict[str, Any]]] = []
    ready: ClassVar[tuple[int, str]] = (200, "ok")
    refusal: ClassVar[tuple[int, dict[str, Any]]] = (400, REFUSED)

    def do_GET(self) -> None:
        if "/pods?" in self.path:
            self._answer(200, json.dumps({"items": self.pods}))
        elif self.path == "/readyz":
            self._answer(*self.ready)
        else:
            self._answer(200, '{"used":0}')

    def do_POST(self) -> None:
        status, body = self.refusal
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(status, json.dumps(body))

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())


@contextmanager
def serving(cluster: type[Cluster]) -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), cluster) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web-1", "labels": {"app.kubernetes.io/component": "web"}},
        "status": {"phase": "Running", "podIP": "127.0.0.1", **status},
    }


def ended(of: dict[str, Any], **metadata: str) -> dict[str, Any]:
    return of | {"metadata": of["metadata"] | metadata}


def run(cluster: type[Cluster], folder: Path, *, ready_port: int = 0) -> tuple[int, str, str]:
    """Return what the checks print of a release whose dashboard answers at `ready_port`."""
    (folder / "token").write_text("secret")
    authority = make_authority("api", datetime.now(UTC))
    (folder / "ca.crt").write_bytes(pem_of(authority.certificate))
    with serving(cluster) as port:
        text = (CHART / "files/test.py").read_text("utf-8")
        for own, here in (
            ("https://kubernetes.default.svc", f"http://127.0.0.1:{port}"),
            ("/var/run/secrets/kubernetes.io/serviceaccount", str(folder)),
            ("READY_SECONDS = 30", "READY_SECONDS = 0"),
        ):
            assert own in text
            text = text.replace(own, here)
        release = {
            "namespace": "ns",
            "selector": "app.kubernetes.io/instance=gc",
            "ports": {"web": ready_port or port},
            "proxy": f"http://127.0.0.1:{port}",
            "jobs": "default",
        }
        command = [sys.executable, "-c", text, json.dumps(release)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_release_that_is_ready_passes(tmp_path: Path) -> None:
    gone = ended(pod(podIP="127.0.0.9"), deletionTimestamp="2026-01-01T00:00:00Z")

    class Ready(Cluster):
        pods: ClassVar = [pod(), gone, pod(phase="Failed", podIP="127.0.0.9")]

    code, printed, problem = run(Ready, tmp_path)
    assert (code, problem) == (0, "")
    assert printed.splitlines()[:2] == ["Ready: web", 'IPUs: {"used":0}']
    assert printed.splitlines()[2].startswith("A wrong job is refused: admission webhook")


NO_IMAGE = {"reason": "ImagePullBackOff", "message": "Back-off pulling image x"}
NO_NODE = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        ([], "web is not ready: it has no pod. `kubectl get events -n ns` says why."),
        (
            [pod(containerStatuses=[{"state": {"waiting": NO_IMAGE}}])],
            "web is not ready (pod web-1): ImagePullBackOff Back-off pulling image x",
        ),
        (
            [pod(phase="Pending", podIP="", conditions=[NO_NODE])],
            "web is not ready (pod web-1): 0/3 nodes are available",
        ),
        ([pod(podIP="")], "web is not ready (pod web-1): it has no address yet"),
    ],
)
def test_a_component_that_has_not_started_is_named_with_the_reason(
    tmp_path: Path, pods: list[dict[str, Any]], want: str
) -> None:
    class Started(Cluster):
        pass

    Started.pods = pods
    code, printed, problem = run(Started, tmp_path)
    assert (code, problem) == (1, want + "\n")
    assert "A wrong job is refused" in printed


def test_a_component_that_is_not_ready_is_named_with_its_own_words(tmp_path: Path) -> None:
    class Waiting(Cluster):
        pods: ClassVar = [pod()]
        ready = (503, "postgres: does not answer\nlease: not held\n")

    want = "web is not ready (pod web-1): postgres: does not answer; lease: not held\n"
    assert run(Waiting, tmp_path)[::2] == (1, want)
    code, _, problem = run(Waiting, tmp_path, ready_port=(closed := free_port()))
    assert code == 1
    assert f"(pod web-1): /readyz does not answer on port {closed}: " in problem


@pytest.mark.parametrize(
    ("refusal", "want"),
    [
        ((201, {}), "A wrong job is accepted: the API server does not ask the webhooks.\n"),
        ((403, {"message": "no"}), "A wrong job is not judged by the webhooks: 403 no\n"),
    ],
)
def test_webhooks_that_are_not_asked_are_noticed(
    tmp_path: Path, refusal: tuple[int, dict[str, Any]], want: str
) -> None:
    class Unasked(Cluster):
        pods: ClassVar = [pod()]

    Unasked.refusal = refusal
    assert run(Unasked, tmp_path)[::2] == (1, want)


def test_an_api_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    class Silent(Cluster):
        def do_GET(self) -> None:
            """Hang up."""

    code, _, problem = run(Silent, tmp_path)
    assert code == 1
    assert problem.startswith("The API server does not answer at http://127.0.0.1:")


def probed_ports(*values: str) -> dict[str, int]:
    """The ports that the chart has the checks ask, by component."""
    (test,) = (each for each in named(render(*values), "Pod").values())
    return dict(json.loads(test["spec"]["containers"][0]["args"][1])["ports"])


def test_each_component_with_readyz_is_asked_at_the_port_of_its_probe() -> None:
    everything = (VIPU, "database.enabled=true", "proxyPort=8085")
    probed = {}
    for name, deployment in named(render(*everything), "Deployment").items():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        probe = container.get("readinessProbe", {}).get("httpGet", {})
        if probe.get("path") == "/readyz":
            ports = {each["name"]: each["containerPort"] for each in container["ports"]}
            probed[name.removeprefix("gc-ipu-operator-")] = ports[probe["port"]]
    assert probed == probed_ports(*everything)
    assert set(probed) == {
        "beat", "controller-manager", "monitor", "prober", "vipu-proxy", "web", "webhook", "worker",
    }  # fmt: skip
    gone = ("controller.replicas=0", "worker.replicas=0", "web.enabled=false")
    assert set(probed) - set(probed_ports(*everything, *gone)) == {
        "controller-manager",
        "worker",
        "web",
    }
    assert set(probed_ports(VIPU, "admissionWebhooks.enabled=false")) == {
        "controller-manager", "vipu-proxy",
    }  # fmt: skip
