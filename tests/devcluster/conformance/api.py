"""io: the suite's own plain HTTPS client, so that it does not test ours with ours."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import secrets
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from multidict import CIMultiDictProxy

Json = dict[str, Any]
DEADLINE_SECONDS = 90.0
CONTENT_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


@dataclass(frozen=True)
class Answer:
    """One answer: HTTP status, headers, and the parsed JSON (or the text, if it is none)."""

    status: int
    headers: CIMultiDictProxy[str]
    body: Any

    def ok(self, status: int | None = None) -> Any:
        """Return the body of a success (of exactly that status, if given)."""
        wanted = {status} if status else {200, 201, 202}
        assert self.status in wanted, f"{self.status}: {self.body}"
        return self.body

    def refused(self, status: int, reason: str) -> Json:
        """Return the Status object of a refusal with that status and reason."""
        assert self.status == status, f"{self.status}: {self.body}"
        assert isinstance(self.body, dict), self.body
        assert self.body["kind"] == "Status"
        assert self.body["apiVersion"] == "v1"
        assert self.body["status"] == "Failure"
        assert self.body["code"] == status
        assert self.body["reason"] == reason, self.body
        return self.body


@dataclass
class Watch:
    """An open watch: its events as they come."""

    response: aiohttp.ClientResponse
    events: list[Json] = field(default_factory=list)

    async def next(self, timeout_seconds: float = DEADLINE_SECONDS) -> Json:
        """Return the next event; AssertionError when the stream ends or none comes in time."""
        async with asyncio.timeout(timeout_seconds):
            line = await self.response.content.readline()
        assert line, f"the watch ended after {self.events}"
        event: Json = json.loads(line)
        self.events.append(event)
        return event

    async def until(self, wanted: Callable[[Json], bool]) -> list[Json]:
        """Read until an event for which `wanted(event)` holds; return all that were read."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not wanted(await self.next()):
                pass
        return self.events

    async def rest(self) -> list[Json]:
        """Read to the end of the stream; return all events."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            async for line in self.response.content:
                self.events.append(json.loads(line))
        return self.events


class Api:
    """Requests as one user (the administrator, or the bearer of `token`)."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str = "") -> None:
        self._session, self.url, self.token = session, url, token

    def _headers(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Accept": "application/json", **bearer, **(headers or {})}

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        **params: Any,
    ) -> Answer:
        """Send one request; `params` are query parameters, `body` JSON, text or bytes."""
        data: Any = body if isinstance(body, str | bytes | None) else json.dumps(body)
        all_headers = self._headers(headers)
        if data is not None:
            all_headers["Content-Type"] = content_type
            data = io.BytesIO(data.encode() if isinstance(data, str) else data)
        query = {key: str(value) for key, value in params.items()}
        async with self._session.request(
            method, self.url + path, data=data, params=query, headers=all_headers
        ) as response:
            raw = await response.read()
            try:
                parsed = json.loads(raw)
            except ValueError:
                parsed = raw.decode(errors="replace")
            return Answer(response.status, response.headers, parsed)

    async def get(self, path: str, **params: Any) -> Answer:
        """GET."""
        return await self.call("GET", path, **params)

    async def create(self, path: str, body: Any, **params: Any) -> Answer:
        """POST."""
        return await self.call("POST", path, body, **params)

    async def replace(self, path: str, body: Any, **params: Any) -> Answer:
        """PUT."""
        return await self.call("PUT", path, body, **params)

    async def patch(self, path: str, body: Any, kind: str = "merge", **params: Any) -> Answer:
        """PATCH of kind json, merge or strategic."""
        return await self.call("PATCH", path, body, content_type=CONTENT_TYPES[kind], **params)

    async def delete(self, path: str, body: Any = None, **params: Any) -> Answer:
        """DELETE."""
        return await self.call("DELETE", path, body, **params)

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, *, headers: Mapping[str, str] | None = None, **params: Any
    ) -> AsyncIterator[Watch]:
        """Open a watch; AssertionError unless the answer is 200."""
        query = {"watch": "1", "timeoutSeconds": "30"}
        query |= {key: str(value) for key, value in params.items()}
        async with self._session.get(
            self.url + path, params=query, headers=self._headers(headers)
        ) as response:
            assert response.status == 200, await response.text()
            yield Watch(response)


@contextlib.asynccontextmanager
async def connect(kubeconfig: Path) -> AsyncIterator[Api]:
    """An Api as the user of a kubeconfig."""
    url, context, token = read_kubeconfig(kubeconfig)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=2**22) as session:
        yield Api(session, url, token)


@contextlib.asynccontextmanager
async def connect_as(kubeconfig: Path, token: str) -> AsyncIterator[Api]:
    """An Api as the bearer of `token` ("": anonymous), without the kubeconfig's certificate."""
    url, context, _ = read_kubeconfig(kubeconfig, with_certificate=False)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Api(session, url, token)


def read_kubeconfig(
    kubeconfig: Path, *, with_certificate: bool = True
) -> tuple[str, ssl.SSLContext, str]:
    """Return the server's address, a TLS context (with the user's certificate) and a token."""
    from kubernetes import client, config

    settings = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=settings)
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if with_certificate and settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    token = settings.get_api_key_with_prefix("authorization") or ""
    return settings.host, context, token.removeprefix("Bearer ")


async def eventually(check: Callable[[], Awaitable[Any]], seconds: float = DEADLINE_SECONDS) -> Any:
    """Return the first true value of `check()`; AssertionError with the last value in the end."""
    deadline = time.monotonic() + seconds
    while True:
        value = await check()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s; last value: {value!r}"
        await asyncio.sleep(0.05)


def unique(prefix: str) -> str:
    """A name that no other test has."""
    return f"{prefix}-{secrets.token_hex(4)}"
