"""Process mode where things are missing or die: no namespaces, and a killed node process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from devcluster.processes import runtime
from devcluster.server import DevCluster
from tests.devcluster.integration.conftest import Kubectl
from tests.devcluster.integration.kubelet.test_process_mode import (
    apply,
    kubectl,
    pod,
    running,
    wait_for,
)
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

__all__ = ["kubectl"]
MANAGE = Path(__file__).resolve().parents[4] / "manage.py"


async def test_without_namespaces_volumes_lie_below_a_root_that_is_told(
    kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "can_isolate", lambda: False)
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mpi"},
        "data": {"hostfile": "a slots=1\n"},
    }
    mount = {"name": "mpi", "mountPath": "/etc/mpi-of-the-test"}
    script = "cat $IPUHUB_POD_ROOT/mpi/hostfile && test ! -e /etc/mpi-of-the-test"
    volumes = [{"name": "mpi", "configMap": {"name": "mpi"}}]
    await apply(kubectl, config)
    await apply(kubectl, pod(script, container={"volumeMounts": [mount]}, volumes=volumes))
    await wait_for(kubectl, ".status.phase", "Succeeded")
    assert await kubectl("logs", "p") == "a slots=1\n"
    await kubectl("delete", "pod", "p")
    await running(kubectl, container={"volumeMounts": [mount]}, volumes=volumes)
    assert await kubectl("exec", "p", "--", "sh", "-c", script) == "a slots=1\n"


@asynccontextmanager
async def node_process(
    server: DevCluster, folder: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The management command in process mode."""
    command = ("run_kubelet", "--kubeconfig", str(server.kubeconfig), "--nodes", "1")
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "ipuhub.settings"}
    started = await asyncio.create_subprocess_exec(
        sys.executable, str(MANAGE), *command, "--processes", str(folder), env=environment
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.terminate()
        await started.wait()


async def test_containers_die_with_their_node_and_that_shows_when_it_is_back(
    tmp_path: Path,
) -> None:
    server = DevCluster(tmp_path / "cluster")
    await server.start()
    user = Kubectl(server.kubeconfig, tmp_path)
    async with node_process(server, tmp_path / "pods") as first:
        await running(user, "echo $$$$; exec sleep 600")  # $$ is an escaped $
        pid = int(await eventually(lambda: user("logs", "p")))  # Ready comes before the first word
        assert Path(f"/proc/{pid}").exists()
        first.send_signal(signal.SIGKILL)
        await first.wait()
    await eventually(lambda: not Path(f"/proc/{pid}/cwd").exists())
    async with node_process(server, tmp_path / "pods"):
        await wait_for(user, ".status.phase", "Failed")
    path = "jsonpath={.status.containerStatuses[0].state.terminated}"
    ended = await user("get", "pod", "p", "-o", path)
    assert '"exitCode":137' in ended
    assert "the node was restarted" in ended
    await server.stop()


async def test_the_end_of_the_first_process_ends_what_it_left_behind(kubectl: Kubectl) -> None:
    await apply(kubectl, pod("sleep 600 & echo $!"))
    await wait_for(kubectl, ".status.phase", "Succeeded")
    left = int(await kubectl("logs", "p"))
    await eventually(lambda: not Path(f"/proc/{left}/cwd").exists())
