"""A running embedded API per test, a plain HTTP client for it, and the real kubectl."""

from __future__ import annotations

import asyncio
import base64
import errno
import io
import os
import shutil
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
import pytest
import yaml

from devcluster.server import DevCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

Body = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: Any


class Http:
    """Requests with the credentials of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self.url = config["clusters"][0]["cluster"]["server"]
        authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
        context = ssl.create_default_context(cadata=authority.decode())
        user, self.headers = config["users"][0]["user"], {}
        if "token" in user:
            self.headers = {"Authorization": f"Bearer {user['token']}"}
        else:
            pem = kubeconfig.with_name("client.pem")
            parts = ("client-certificate-data", "client-key-data")
            pem.write_bytes(b"".join(base64.b64decode(user[part]) for part in parts))
            context.load_cert_chain(pem)
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context))

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        **headers: str,
    ) -> Answer:
        data = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        sent = {**self.headers, **headers}
        if data is not None:
            sent["Content-Type"] = content_type
        sent_data = None if data is None else io.BytesIO(data)
        async with self.session.request(
            method, self.url + path, data=sent_data, headers=sent
        ) as got:
            text = await got.read()
            is_json = got.content_type == "application/json"
            return Answer(got.status, orjson.loads(text) if is_json and text else text, got.headers)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.call("GET", path, **headers)

    async def make(self, path: str, body: Body) -> Body:
        answer = await self.call("POST", path, body)
        assert answer.status == 201, answer.body
        return answer.body

    async def patch(self, path: str, body: Any, kind: str = "merge-patch") -> Answer:
        return await self.call("PATCH", path, body, f"application/{kind}+json")

    async def delete(self, path: str, **options: Any) -> Answer:
        return await self.call("DELETE", path, options or None)

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[AsyncIterator[Body]]:
        mark = "&" if "?" in path else "?"
        async with self.session.get(f"{self.url}{path}{mark}watch=1", headers=self.headers) as got:
            assert got.status == 200, await got.read()

            async def events() -> AsyncIterator[Body]:
                async for line in got.content:
                    yield orjson.loads(line)

            yield events()

    async def until_gone(self, path: str) -> None:
        while (await self.get(path)).status != 404:
            await asyncio.sleep(0.01)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


class Kubectl:
    """The real kubectl against one cluster."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        if shutil.which("kubectl") is None:  # a test in the background would wait for ever
            raise FileNotFoundError(errno.ENOENT, "not installed", "kubectl")
        self.environment = {
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(home),
            "PATH": os.environ["PATH"],
        }

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "kubectl",
            *arguments,
            env=self.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *arguments: str, stdin: str = "") -> Ran:
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 120)
        return Ran(process.returncode or 0, out.decode(), err.decode())

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        ran = await self.run(*arguments, stdin=stdin)
        assert ran.code == 0, ran.err
        return ran.out


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[DevCluster]:
    cluster = DevCluster(tmp_path / "cluster", history=1_000)
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
async def http(cluster: DevCluster) -> AsyncIterator[Http]:
    client = Http(cluster.kubeconfig)
    yield client
    await client.session.close()


@pytest.fixture
def kubectl(cluster: DevCluster, tmp_path: Path) -> Kubectl:
    return Kubectl(cluster.kubeconfig, tmp_path)


@pytest.fixture
def open_http(cluster: DevCluster) -> Any:
    """Make a client from another kubeconfig (close its session)."""
    return Http
