"""io: HTTP to one API server: TLS, credentials, deadlines, and Retry-After.

It knows nothing of resources; `client.py` does.
"""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
from multidict import CIMultiDict
from yarl import URL

from ipuhub.kube.errors import (
    ConfigError,
    NoCredentials,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    from_answer,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from ipuhub.kube.credentials import ClusterConfig
    from ipuhub.kube.errors import ApiError

JSON = "application/json"
# The server says when to come back; more often than this within one call is the caller's affair.
_MAX_RETRIES = 4
_WARNING = re.compile(r'\b299 \S+ "((?:[^"\\]|\\.)*)"')
# Before Python 3.12.8, a TLS connection that is given up in the middle of an answer, as a watch is,
# waits for the other side's close, and stays open forever if its loop ends first.
_TLS_MAY_STAY_OPEN = sys.version_info < (3, 12, 8)


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `body` is sent as JSON, or as it is when it is bytes.

    `raw` requests the bytes of a JSON answer instead of its decoded value. `headers`, of which
    several may have one name, replace headers of the credentials with the same names. `on_warning`
    gets each warning of the answer, such as warnings of admission webhooks.
    """

    method: str
    path: str
    params: Mapping[str, str] | None = None
    body: Any = None
    content_type: str = JSON
    timeout_seconds: float | None = None
    raw: bool = False
    headers: Sequence[tuple[str, str]] = ()
    on_warning: Callable[[str], None] | None = None


class Transport:
    """Requests and streams over one pool of connections. Close it when done."""

    def __init__(
        self, config: ClusterConfig, user_agent: str, timeout_seconds: float, max_connections: int
    ) -> None:
        self.config = config
        self._user_agent = user_agent
        self._timeout_seconds = timeout_seconds
        # Watches hold their connection for minutes: they must not use up those of the requests.
        self._slots = asyncio.Semaphore(max_connections)
        self._session: aiohttp.ClientSession | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def close(self) -> None:
        """Close all connections; later requests raise RuntimeError."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def send(self, request: Request) -> Any:
        """Return the decoded JSON answer, or its text where it is none.

        Waits and tries again where the server asks for it (429 and 503 with Retry-After) and the
        time of the request allows it; renews refused credentials once. Raises ApiError.
        """
        loop = asyncio.get_running_loop()
        seconds = request.timeout_seconds or self._timeout_seconds
        deadline = loop.time() + seconds
        retries = 0
        while True:
            try:
                async with self._slots:
                    return await self._send_authorized(request, aiohttp.ClientTimeout(seconds))
            except (TooManyRequests, ServerError) as error:
                pause = error.retry_after
                if pause is None or error.status not in {429, 503}:
                    raise
                if retries == _MAX_RETRIES or loop.time() + pause > deadline:
                    raise
            retries += 1
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], silence_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open an answer without end and give its bytes as they come.

        Raises Unreachable when it breaks off, or says nothing for `silence_seconds`; other
        ApiErrors when it does not open.
        """
        patience = aiohttp.ClientTimeout(
            total=None, sock_connect=self._timeout_seconds, sock_read=silence_seconds
        )
        credentials = await self._credentials()
        try:
            async with self._open(Request("GET", path, params), patience, credentials) as answer:
                yield self._chunks(answer)
        except Unauthorized:
            self.config.invalidate(credentials)
            raise

    async def _chunks(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        with self._as_api_errors():
            async for chunk in answer.content.iter_any():
                yield chunk

    async def _send_authorized(self, request: Request, patience: aiohttp.ClientTimeout) -> Any:
        credentials = await self._credentials()
        try:
            return await self._send_once(request, patience, credentials)
        except Unauthorized:
            self.config.invalidate(credentials)
            renewed = await self._credentials()
            if renewed == credentials:
                raise
        return await self._send_once(request, patience, renewed)

    async def _send_once(
        self, request: Request, patience: aiohttp.ClientTimeout, credentials: Mapping[str, str]
    ) -> Any:
        async with self._open(request, patience, credentials) as answer:
            with self._as_api_errors():
                content = await answer.read()
        if request.on_warning is not None:
            for warning in warnings_of(answer.headers.getall("Warning", ())):
                request.on_warning(warning)
        if not answer.content_type.endswith("json"):
            return content.decode(errors="replace")
        if request.raw:
            return content
        try:
            return orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise ServerError(
                502, "BadAnswer", f"The response is not valid JSON: {error}"
            ) from error

    @asynccontextmanager
    async def _open(
        self, request: Request, patience: aiohttp.ClientTimeout, credentials: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        session = await self._connected()
        trust = self.config.trust
        headers = CIMultiDict({"Accept": f"{JSON}, */*", **credentials})
        headers.update(request.headers)
        data = request.body
        if data is not None:
            headers["Content-Type"] = request.content_type
            data = data if isinstance(data, bytes) else orjson.dumps(data)
        with self._as_api_errors():
            answer = await session.request(
                request.method,
                URL(self.config.server + request.path, encoded=True),
                params=request.params,
                data=data,
                headers=headers,
                timeout=patience,
                allow_redirects=False,  # the credentials are for this server alone
                proxy=trust.proxy or None,
                server_hostname=trust.server_name or None,
            )
        async with answer:
            if answer.status >= 300:
                with self._as_api_errors():
                    content = await answer.read()
                raise _error_of(answer, content)
            yield answer

    async def _credentials(self) -> Mapping[str, str]:
        known = self.config.fresh_headers()
        if known is not None:
            return known
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self.config.headers()
        except ConfigError as error:
            raise NoCredentials(str(error)) from error
        except TimeoutError as error:
            sentence = f"No credentials in {self._timeout_seconds:g} s: the exec plug-in is slow."
            raise NoCredentials(sentence) from error

    async def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            async with self._opening:
                if self._session is None:
                    self._session = await self._open_session()
        return self._session

    async def _open_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("this API client is closed")
        try:
            context = await asyncio.to_thread(self.config.ssl_context)
        except ConfigError as error:
            raise NoCredentials(str(error)) from error
        connector = aiohttp.TCPConnector(
            limit=0,
            ssl=True if context is None else context,
            enable_cleanup_closed=_TLS_MAY_STAY_OPEN,
        )
        # Unpacking gzip costs more than the bytes in a cluster's network.
        headers = {"User-Agent": self._user_agent, "Accept-Encoding": "identity"}
        return aiohttp.ClientSession(connector=connector, headers=headers)

    @contextmanager
    def _as_api_errors(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            sentence = f"The Kubernetes API at {self.config.server} did not answer in time."
            raise Unreachable(sentence) from error
        except aiohttp.ClientPayloadError as error:
            sentence = f"The Kubernetes API at {self.config.server} aborted its response."
            raise Unreachable(sentence) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(
                f"The Kubernetes API at {self.config.server} cannot be reached: {error}"
            ) from error


def warnings_of(headers: Iterable[str]) -> list[str]:
    """Return the texts of Warning headers (RFC 7234, 5.5), of which each may hold several."""
    quoted = [text for header in headers for text in _WARNING.findall(header)]
    return [re.sub(r"\\(.)", r"\1", text) for text in quoted]


def _error_of(answer: aiohttp.ClientResponse, content: bytes) -> ApiError:
    try:
        body: object = orjson.loads(content)
    except orjson.JSONDecodeError:
        body = None
    header = answer.headers.get("Retry-After", "")
    retry_after = float(header) if header.isdecimal() else None  # API servers send no dates
    text = content.decode(errors="replace")
    return from_answer(answer.status, body, text=text, retry_after=retry_after)
