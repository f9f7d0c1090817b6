"""The chart's V-IPU with agents in the secure mode on real nodes, installed as its page says.

docs/admin/vipu-security.md, "Secure mode in the chart"; the state is on a volume of a node.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.waiting import wait_until
from tests.realnodes.release import (
    CHART,
    ROOT,
    Helm,
    end_jobs,
    load_image,
    local_volume,
    make_restricted,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.realnodes.kit import RealCluster

NAMESPACE = "secure-vipu"
NAME = "agents-ipu-operator"
MACHINES = 2
CLASS = "secure-vipu"
VALUES = (
    "nameOverride=ipu-operator",
    f"vipuServer.enabled=true,vipuServer.machines={MACHINES},vipuServer.agents.enabled=true",
    f"vipuServer.persistence.enabled=true,vipuServer.persistence.storageClass={CLASS}",
    "vipuServer.secure.enabled=true,vipuServer.secure.secret=vipu-server-tls",
    "vipuServer.secure.agentSecret=vipu-agent-tls,vipuProxy.accessSecret=vipu-access",
)


@dataclass(frozen=True)
class Site:
    """The release, and an administrator's folder with the certificates."""

    cluster: RealCluster
    folder: Path

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("-n", NAMESPACE, *arguments)

    def make_secret(self, name: str, role: str, *more: str) -> None:
        files = f"--from-file={self.folder / 'vipu-tls' / role}"
        self.kubectl("create", "secret", "generic", name, files, *more)

    def until_available(self, deployment: str) -> None:
        condition = ("--for=condition=Available", "--timeout=90s")
        self.kubectl("wait", *condition, f"deployment/{NAME}-{deployment}")

    def admin(self, *arguments: str) -> Any:
        """Return the output of `vipu-admin` from its JSON."""
        tls = self.folder / "vipu-tls/admin"
        with self._forwarded() as port:
            environment = {
                **os.environ,
                "VIPU_CLI_API_HOST": "localhost",
                "VIPU_CLI_ADMIN_PORT": port,
                "VIPU_CLI_CA": str(tls / "ca.crt"),
                "VIPU_CLI_CERTIFICATE": str(tls / "tls.crt"),
                "VIPU_CLI_KEY": str(tls / "tls.key"),
            }
            command = [sys.executable, "-m", "partitions.vipu.cli.admin", *arguments, "-o", "json"]
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    @contextmanager
    def _forwarded(self) -> Iterator[str]:
        """A local port that leads to the admin API."""
        command = ["kubectl", "-n", NAMESPACE, "port-forward", f"deployment/{NAME}-vipu-server"]
        environment = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}
        with subprocess.Popen(
            [*command, ":8091"], env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                found = re.search(r":(\d+) -> 8091", process.stdout.readline())
                assert found, "kubectl port-forward ended"
                yield found[1]
            finally:
                process.terminate()

    def partition(self) -> dict[str, Any]:
        (found,) = self.admin("list", "partitions")
        return dict(found)

    def job_status(self) -> dict[str, Any]:
        found = self.cluster.get("ipujob", "trial", "-n", "default")
        return dict(found.get("status") or {})

    def job_pods(self) -> dict[str, tuple[str, int]]:
        """UID and restarts of each pod of the job."""
        selector = "graphcore.ai/ipujob-name=trial"
        found = self.cluster.get("pods", "-n", "default", "-l", selector)["items"]
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                pod["status"]["containerStatuses"][0]["restartCount"],
            )
            for pod in found
        }


@pytest.fixture(scope="module")
def site(server: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The steps of the page, in their order."""
    for image in ("ipuhub", "ipuhub-launcher"):
        load_image(server, image)
    site, helm = Site(server, tmp_path_factory.mktemp("admin")), Helm(server, NAMESPACE)
    server.kubectl(
        "create", "-f", "-", stdin=local_volume(CLASS, tmp_path_factory.mktemp("volume"))
    )
    make_restricted(server, NAMESPACE)
    services = [f"{NAME}-vipu-server", *(f"{NAME}-vipu-agent-{n}" for n in range(MACHINES))]
    hosts = ",".join(f"{each}.{NAMESPACE}.svc" for each in services)
    command = [sys.executable, "-m", "partitions.vipu.server.main"]
    command += ["--tls-init", str(site.folder / "vipu-tls"), "--tls-hosts", hosts]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    site.make_secret("vipu-server-tls", "server")
    site.make_secret("vipu-agent-tls", "agent")
    sets = [word for value in VALUES for word in ("--set", value)]
    helm.run("install", "agents", CHART, "--take-ownership", *sets)
    site.until_available("vipu-server")
    key = site.admin("create", "user", "ipuhub", "--allocations", "default")["access_key"]
    site.make_secret(
        "vipu-access", "user", "--from-literal=user-id=ipuhub", f"--from-literal=access-key={key}"
    )
    # The kubelet tries again after up to two minutes.
    site.kubectl("delete", "pod", "-l", "app.kubernetes.io/component=vipu-proxy", "--wait=false")
    for each in ("vipu-proxy", "controller-manager", "webhook"):
        site.until_available(each)
    yield site
    end_jobs(server)
    helm.run("uninstall", "agents", "--no-hooks", check=False)
    server.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")
    server.kubectl("delete", "pv,storageclass", CLASS)


def test_a_job_runs_on_ipus_that_an_agent_has_set_up(site: Site) -> None:
    text = (ROOT / "examples/trial.yaml").read_text(encoding="utf-8")
    longer = text.replace("sleep 30", "sleep 900")
    site.cluster.kubectl("apply", "-n", "default", "-f", "-", stdin=longer)
    wait_until(lambda: site.job_status().get("launcherStatus") == "Running", "the job runs")
    partition = site.partition()
    assert (partition["ready_state"], partition["agent_ids"]) == ("ACTIVE", ["ag0"])
    log = site.kubectl("logs", f"deployment/{NAME}-vipu-agent-0")
    assert configured(log) == [partition["id"]]


def configured(log: str) -> list[str]:
    """The partitions that an agent says it has set up."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line["partition"] for line in lines if line["event"] == "partition configured"]


def test_a_new_pod_of_the_controller_adopts_agents_and_partition(site: Site) -> None:
    before, pods = site.partition(), site.job_pods()
    site.kubectl("delete", "pod", "-l", "app.kubernetes.io/component=vipu-server")
    site.until_available("vipu-server")
    assert [each["lost"] for each in site.admin("list", "agents")] == [""] * MACHINES
    assert site.partition() == before
    assert [user["id"] for user in site.admin("list", "users")] == ["ipuhub"]
    assert site.job_pods() == pods
    log = site.kubectl("logs", f"deployment/{NAME}-vipu-agent-0")
    assert configured(log) == [before["id"]]


def test_a_machine_without_its_agent_is_named_where_people_look(site: Site) -> None:
    agent = f"deployment/{NAME}-vipu-agent-0"
    site.kubectl("scale", agent, "--replicas=0")
    wait_until(lambda: site.job_status().get("launcherStatus") == "Failed", "the job is told")
    assert "ag0 has not answered since" in site.job_status()["lastMessage"]
    assert "ag0 has not answered since" in site.partition()["errors"][0]
    lost = [bool(each["lost"]) for each in site.admin("list", "agents")]
    assert lost == [True, False]
    site.kubectl("scale", agent, "--replicas=1")
    wait_until(lambda: not site.admin("list", "agents")[0]["lost"], "the agent is back")
