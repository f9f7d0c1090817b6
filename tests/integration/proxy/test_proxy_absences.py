"""The whole proxy during and after outages of V-IPU or the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import pytest

from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from partitions.proxy.process import running
from tests.fakes.freeport import free_port
from tests.fakes.proxylab import JOB, Lab, prepare_cluster, read_path, ready, try_ensure
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from partitions.client import ProxyClient
    from partitions.proxy.process import ProxyProcess


async def test_without_vipu_the_proxy_says_so_and_goes_on_when_it_comes(lab: Lab) -> None:
    await lab.stop_vipu()
    async with running(lab.options) as proxy, lab.operator(proxy) as operator:

        async def names_vipu() -> bool:
            return "V-IPU controllers: 127.0.0.1" in (await read_path(proxy, "/readyz"))[1]

        await eventually(names_vipu)
        assert (await read_path(proxy, "/health"))[0] == 200
        assert (await read_path(proxy, "/stats"))[0] == 503
        waiting = await eventually(lambda: try_ensure(operator))
        assert (waiting.phase, waiting.reason) == ("waiting", "ControllerUnavailable")
        lab.start_vipu()
        await eventually(lambda: ready(proxy))
        assert (await operator.ensure(**JOB)).phase == "active"

        await lab.stop_vipu()
        await eventually(names_vipu)
        leaving = await operator.release(JOB["uid"], 0)
        assert leaving is not None
        assert leaving.phase == "releasing"
        lab.start_vipu()

        async def released() -> bool:
            return (await operator.list())[-1].phase == "released"

        await eventually(released)
        assert await lab.exists() == []


@pytest.mark.embedded_only
async def test_without_an_api_server_the_proxy_waits_says_so_and_goes_on(tmp_path: Path) -> None:
    directory, port = tmp_path / "cluster", free_port()
    cluster = DevCluster(directory, port=port)
    await cluster.start()
    config = str(cluster.kubeconfig)
    async with KubeClient(load_config(config)) as client:
        await prepare_cluster(client)
        lab = Lab(config, client, tmp_path / "vipu.json", free_port(), "tracker")
        lab.start_vipu()
        await cluster.stop()
        async with running(lab.options) as proxy, lab.operator(proxy) as operator:

            async def names_api_server() -> bool:
                return "API server:" in (await read_path(proxy, "/readyz"))[1]

            await eventually(names_api_server)
            assert (await read_path(proxy, "/health"))[0] == 200
            assert (await read_path(proxy, "/stats"))[0] == 503

            cluster = DevCluster(directory, port=port)
            await cluster.start()
            await eventually(lambda: ready(proxy))
            assert (await eventually(lambda: try_ensure(operator))).phase == "active"

            await cluster.stop()
            refused = await status_of_put(proxy, operator)
            assert refused == 503
            await eventually(names_api_server)
            assert (await read_path(proxy, "/stats"))[0] == 200  # from what is known

            cluster = DevCluster(directory, port=port)
            await cluster.start()
            await eventually(lambda: ready(proxy))
            gone = await operator.release(JOB["uid"], 0)
            assert gone is not None
            assert gone.phase == "released"
        await lab.stop_vipu()
    await cluster.stop()


async def status_of_put(proxy: ProxyProcess, operator: ProxyClient) -> int:
    """A PUT that must write, with the operator's token of before."""
    token = await operator._token()
    url = f"http://127.0.0.1:{proxy.port}/v1/partitions/another/0"
    body = {"namespace": "default", "name": "another", "size": 1, "attempt": 0}
    async with (
        aiohttp.ClientSession() as http,
        http.put(url, json=body, headers={"Authorization": f"Bearer {token}"}) as answer,
    ):
        assert answer.headers["Retry-After"] == "2"
        return answer.status
