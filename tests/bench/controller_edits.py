"""Delay from an edit of the list of V-IPU controllers until the proxy uses it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from devcluster.demo.cluster import write_account_kubeconfig
from devcluster.demo.processes import answers
from devcluster.demo.supervisor import Process, Supervisor
from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from tests.bench.demo_figures import spread
from tests.bench.surroundings import HOME, print_if_verbose
from tests.e2e.running_demo import ROOT
from tests.fakes.freeport import free_port
from tests.fakes.proxylab import LABEL, prepare_cluster

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

NAME = "controllers.yaml"
LOOK_SECONDS = 0.02


class Mount:
    """A mounted ConfigMap, which a kubelet changes by exchanging one link."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._edits = 0
        self.path = folder / NAME
        self.path.symlink_to(f"..data/{NAME}")

    def edit(self, ports: list[int]) -> None:
        """The list names the controllers on these ports from now on."""
        self._edits += 1
        data = self._folder / f"..{self._edits}"
        data.mkdir()
        lines = "".join(f"127.0.0.1:{port}:{LABEL}\n" for port in ports)
        (data / NAME).write_text(lines, "utf-8")
        link = self._folder / "..data_tmp"
        link.symlink_to(data.name)
        link.rename(self._folder / "..data")


async def run(options: argparse.Namespace) -> None:
    """Print the seconds from an edit until the proxy calls the new controller and not the old
    one."""
    added, removed = [], []
    load = os.getloadavg()[0]
    async with _proxy() as (mount, url, first, second), aiohttp.ClientSession() as http:
        for _ in range(options.rounds):
            for ports, found in (([first, second], added), ([first], removed)):
                await asyncio.sleep(random.uniform(0, 10))  # anywhere in its beat
                mount.edit(ports)
                began = time.monotonic()
                while await _answering(http, url) != set(ports):
                    await asyncio.sleep(LOOK_SECONDS)
                found.append(time.monotonic() - began)
    print(f"{options.rounds} rounds, load of this machine before: {load:.1f}")
    print(f"a controller is added: asked and counted after {spread(added)} s")
    print(f"it is removed: not counted any more after {spread(removed)} s")


async def _answering(http: aiohttp.ClientSession, url: str) -> set[int]:
    """The ports of the controllers of the list that have answered the proxy."""
    async with http.get(f"{url}/stats?detail=true") as answer:
        listed = json.loads(await answer.text())["controllers"]
    return {int(each["address"].rpartition(":")[2]) for each in listed if each["reachable"]}


@contextlib.asynccontextmanager
async def _proxy() -> AsyncIterator[tuple[Mount, str, int, int]]:
    """The proxy's own process, and two vipu-servers, of which the list names the first."""
    first, second, port = (free_port() for _ in range(3))
    url = f"http://127.0.0.1:{port}"
    supervisor = Supervisor(output=print_if_verbose)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "mount").mkdir()
        mount = Mount(folder / "mount")
        mount.edit([first])
        cluster = DevCluster(folder / "cluster")
        await cluster.start()
        try:
            async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
                await prepare_cluster(client)
                account = (cluster.kubeconfig, folder, f"{HOME}/ipuhub-proxy")
                kubeconfig = await write_account_kubeconfig(client, *account)
            for number in (first, second):
                command = [sys.executable, "-m", "partitions.vipu.server.main"]
                command += ["--port", str(number), "--storage", str(folder / f"{number}.json")]
                supervisor.start(Process(f"vipu {number}", command))
            environment = {
                "KUBECONFIG": str(kubeconfig),
                "IPUHUB_NAMESPACE": HOME,
                "IPUHUB_SERVICE_ACCOUNT": f"{HOME}/ipuhub-proxy",
                "IPUHUB_VIPU_CONTROLLERS_PATH": str(mount.path),
                "PROXY_PORT": str(port),
            }
            command = [sys.executable, str(ROOT / "manage.py"), "run_vipu_proxy"]
            ready = lambda: answers(f"{url}/readyz")  # noqa: E731
            supervisor.start(Process("proxy", command, environment, is_ready=ready))
            await supervisor.wait_ready("proxy")
            yield mount, url, first, second
        finally:
            await supervisor.stop()
            await cluster.stop()
