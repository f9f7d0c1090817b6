"""io: answers requests with 503 and a reason while a thread retries the start-up until it succeeds.

A process that does not listen yet cannot say what it waits for: the kubelet reports "connection
refused", and browsers hang.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from ipuhub.concurrency import Pauses
from ipuhub.process.runtime import until_stopped
from ipuhub.webserver.refusals import refuse
from ipuhub.webserver.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

    from ipuhub.webserver.server import Limits


async def serve_until(
    work: Callable[[Pauses], None], server: WebServer, host: str, port: int
) -> bool:
    """Run `work` in a thread and let `server` answer until it ends; raises what it raises.

    Return False if the process was stopped before. Raise OSError if the port is in use.
    """
    pauses = Pauses()
    await server.start(host, port)
    try:
        task = asyncio.ensure_future(asyncio.to_thread(work, pauses))
        await until_stopped(task)
        return not task.cancelled()
    finally:
        pauses.end()
        await server.stop()


def unavailable(sentence: str, limits: Limits) -> WebServer:
    """Return a server that is alive (`/healthz`) and answers all else that PostgreSQL is
    unavailable, with a sentence."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        refusal = refuse(environ.get("PATH_INFO", ""), "database-unavailable", sentence)
        status = HTTPStatus(refusal.status)
        start_response(f"{status.value} {status.phrase}", [*refusal.headers.items()])
        return [refusal.text.encode()]

    return WebServer(answer, limits, constants={"/healthz": "ok"})
