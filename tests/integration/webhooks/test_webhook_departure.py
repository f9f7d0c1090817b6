"""A webhook replica that shuts down still answers reviews that reach it."""

from __future__ import annotations

import asyncio
import signal
import ssl
from typing import TYPE_CHECKING

import aiohttp

from jobs.webhooks.server import VALIDATE_PATH
from tests.fakes.waiting import eventually
from tests.fakes.webhookprocess import running_webhooks

if TYPE_CHECKING:
    from pathlib import Path

AN_HOUR = "3600"


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def test_it_answers_for_a_while_and_sends_its_callers_to_another(tmp_path: Path) -> None:
    async with (
        running_webhooks(tmp_path, IPUHUB_WEBHOOK_DRAIN_SECONDS=AN_HOUR) as webhooks,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting())) as http,
    ):

        async def ask() -> str | None:
            async with http.post(webhooks.reviews + VALIDATE_PATH, data=b"nonsense") as answer:
                assert "not valid JSON" in await answer.text()
                return answer.headers.get("Connection")

        async def ready() -> tuple[int, str]:
            async with http.get(f"{webhooks.pages}/readyz") as answer:
                return answer.status, await answer.text()

        assert await ask() is None
        assert await ready() == (200, "ok")
        webhooks.process.send_signal(signal.SIGTERM)
        going = (503, "end: this replica is shutting down\n")
        await eventually(ready, lambda text: text == going)
        assert await ask() == "close"  # by the connection that it has had, and by a new connection
        assert await ask() == "close"


async def test_without_a_time_to_answer_it_ends_at_once(tmp_path: Path) -> None:
    async with running_webhooks(tmp_path) as webhooks:
        webhooks.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(webhooks.process.wait(), 90) == 0
