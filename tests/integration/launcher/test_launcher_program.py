"""`ipuhub-launcher` as the image runs it, one file alone, against the embedded API."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from ipuhub.devcluster.server import DevCluster
from ipuhub.kube import resources
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS
from jobs.crd.document import build_crd
from jobs.launcher.main import ACCOUNT
from jobs.resources import IPUJOBS
from tests.builders.ipujobs import ipujob, worker
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.embedded_only
PROGRAM = Path(__file__).parents[3] / "jobs/launcher/main.py"
ALONE = [sys.executable, "-IS", str(PROGRAM)]
ACCOUNT_NAME = "default/sample-launcher"
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["graphcore.ai"], "resources": ["ipujobs"], "verbs": ["get"]},
]


class Job:
    """A stored job with two workers, and its launcher's environment and output."""

    def __init__(
        self, client: KubeClient, stored: dict[str, Any], environment: dict[str, str]
    ) -> None:
        self.client, self.stored, self.environment = client, stored, environment
        self.said: list[str] = []

    async def add_worker(self, number: int) -> None:
        pod = worker(self.stored, number).build()
        pod["metadata"].pop("uid")
        status = worker(self.stored, number).running().build()["status"]
        await self.client.create(PODS, pod)
        name = pod["metadata"]["name"]
        await self.client.patch(PODS, name, {"status": status}, "default", subresource="status")

    async def grant(self) -> None:
        """The role and binding that the operator makes while the pod starts."""
        meta = {"name": "sample-launcher", "namespace": "default"}
        group = "rbac.authorization.k8s.io"
        role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": RULES}
        await self.client.create(resources.ROLES, role)
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "sample-launcher"},
            "subjects": [{"kind": "ServiceAccount", **meta}],
        }
        await self.client.create(resources.ROLE_BINDINGS, binding)

    async def says(self, words: str) -> None:
        await eventually(lambda: any(words in line for line in self.said))

    @contextlib.asynccontextmanager
    async def running(self, **changes: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """The program, whose lines are in `said`."""
        process = await asyncio.create_subprocess_exec(
            *ALONE, env=self.environment | changes, stdout=subprocess.PIPE, stderr=sys.stderr
        )
        reading = asyncio.create_task(self._read(process))
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await reading

    async def ends(self, **changes: str) -> int:
        async with self.running(**changes) as process:
            return await process.wait()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.said.append(line.decode().strip().removeprefix("ipuhub-launcher: "))


@pytest.fixture
async def job(tmp_path: Path) -> AsyncIterator[Job]:
    server = DevCluster(tmp_path / "cluster", authorization="rbac")
    await server.start()
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\n" + "# x\n" * 100_000)
    try:
        async with KubeClient(load_config(str(server.kubeconfig))) as client:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, build_crd())
            manifest = ipujob().workers(2).build()
            manifest["metadata"] = {"name": "sample", "namespace": "default"}
            stored = await client.create(IPUJOBS, manifest)
            account = {"metadata": {"name": "sample-launcher", "namespace": "default"}}
            await client.create(resources.SERVICE_ACCOUNTS, account)
            await server.issue_kubeconfig(tmp_path / "launcher.kubeconfig", ACCOUNT_NAME)
            host = mount_account(tmp_path / "root", tmp_path / "launcher.kubeconfig")
            environment = host | {
                "PATH": os.defpath,
                "IPUHUB_NAMESPACE": "default",
                "IPUHUB_JOB": "sample",
                "IPUHUB_JOB_UID": stored["metadata"]["uid"],
                "IPUHUB_WORKERS": "2",
                "IPUHUB_KUBECTL_FOLDER": str(tmp_path / "opt"),
                "IPUHUB_KUBECTL_BINARY": str(kubectl),
                "IPUHUB_LAUNCHER_WAIT_SECONDS": "90",
            }
            yield Job(client, stored, environment)
    finally:
        await server.stop()


def mount_account(root: Path, kubeconfig: Path) -> dict[str, str]:
    """Put the account's files where a kubelet puts them, below `root`; return where the API is."""
    import base64

    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    folder = Path(f"{root}{ACCOUNT}")
    folder.mkdir(parents=True)
    (folder / "token").write_text(user["token"])
    authority = base64.b64decode(cluster["certificate-authority-data"])
    (folder / "ca.crt").write_bytes(authority)
    host, _, port = cluster["server"].removeprefix("https://").rpartition(":")
    return {
        "IPUHUB_POD_ROOT": str(root),
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
    }


async def test_it_ends_when_the_workers_are_ready_and_tells_its_progress(job: Job) -> None:
    await job.grant()
    async with job.running() as process:
        await job.says("0 of 2 workers are ready")
        await job.add_worker(0)
        await job.says("1 of 2 workers are ready; waiting for sample-worker-1 (not there yet)")
        await job.add_worker(1)
        assert await process.wait() == 0
    assert job.said[-1] == "all 2 workers are ready"
    delivered = Path(job.environment["IPUHUB_KUBECTL_FOLDER"]) / "kubectl"
    assert delivered.stat().st_mode & stat.S_IXOTH
    assert delivered.read_bytes() == Path(job.environment["IPUHUB_KUBECTL_BINARY"]).read_bytes()


async def test_it_waits_for_its_rights_which_are_made_while_the_pod_starts(job: Job) -> None:
    await job.add_worker(0)
    await job.add_worker(1)
    async with job.running() as process:
        await job.says("forbidden")
        await job.grant()
        assert await process.wait() == 0
    assert job.said[-1] == "all 2 workers are ready"


async def test_it_gives_up_with_a_sentence_when_its_time_is_over(job: Job) -> None:
    await job.grant()
    await job.add_worker(0)
    assert await job.ends(IPUHUB_LAUNCHER_WAIT_SECONDS="3") == 1
    assert job.said[-1].startswith("waited 3 s: 1 of 2 workers are ready; waiting for")


async def test_a_pod_of_an_older_attempt_does_not_start_the_command(job: Job) -> None:
    await job.grant()
    await job.add_worker(0)
    await job.add_worker(1)
    status = {"instances": [{"index": 0, "attempt": 1, "state": "Restarting"}]}
    await job.client.patch(IPUJOBS, "sample", {"status": status}, "default", subresource="status")
    assert await job.ends() == 1
    assert "the job is at attempt 1, this pod belongs to" in job.said[-1]


async def test_the_command_of_a_job_that_has_gone_is_not_started(job: Job) -> None:
    await job.grant()
    await job.add_worker(0)
    await job.add_worker(1)
    await job.client.delete(IPUJOBS, "sample", "default")
    assert await job.ends() == 1
    assert job.said[-1] == "not starting the command: the job is gone"


async def test_it_ends_at_once_when_its_pod_is_deleted(job: Job) -> None:
    await job.grant()
    async with job.running() as process:
        await job.says("0 of 2 workers are ready")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 143


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"IPUHUB_KUBECTL_BINARY": "", "PATH": "/none"}, "there is no kubectl in this image"),
        ({"IPUHUB_KUBECTL_BINARY": "/none/kubectl"}, "cannot put kubectl into "),
        ({"IPUHUB_JOB": "", "IPUHUB_JOB_UID": ""}, "IPUHUB_JOB and IPUHUB_JOB_UID: set by the"),
        ({"IPUHUB_WORKERS": "many"}, "IPUHUB_WORKERS is 'many': not a number"),
        ({"IPUHUB_POD_ROOT": "/none"}, f"no service account in {ACCOUNT}"),
        ({"KUBERNETES_SERVICE_HOST": ""}, "KUBERNETES_SERVICE_HOST: set in every pod"),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(
    tmp_path: Path, changes: dict[str, str], want: str
) -> None:
    environment = {
        "IPUHUB_NAMESPACE": "default",
        "IPUHUB_JOB": "sample",
        "IPUHUB_JOB_UID": "uid",
        "IPUHUB_KUBECTL_FOLDER": str(tmp_path),
        "IPUHUB_KUBECTL_BINARY": sys.executable,
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
    }
    found = subprocess.run(ALONE, env=environment | changes, capture_output=True, check=False)
    assert found.returncode == 1
    assert found.stderr == b""
    assert found.stdout.decode().startswith(f"ipuhub-launcher: {want}")


def test_it_is_one_file_that_loads_no_package_and_nothing_slow() -> None:
    """What it loads is nearly all that it costs."""
    code = f"import sys; sys.path.append({str(PROGRAM.parent)!r}); import main; print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-IS", "-c", code], text=True).split())
    slow = {"typing", "dataclasses", "asyncio", "pathlib", "shutil", "subprocess", "http.client"}
    assert not loaded & (slow | {"jobs", "ipuhub", "django", "aiohttp", "yaml", "logging"})
