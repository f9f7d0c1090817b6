"""Clients that disconnect in the middle of a response, or send half a request, are not reported as
errors."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from devcluster import server
from devcluster.server import DevCluster
from ipuhub.process.health import Limits
from tests.devcluster.integration.conftest import Http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CMS = "/api/v1/namespaces/default/configmaps"
LARGE = {"text": "x" * 200_000}
CLIENTS, ROUNDS = 4, 15


@pytest.mark.parametrize("query", ["", "?watch=1&resourceVersion=0"], ids=["list", "watch"])
async def test_clients_that_go_away_in_the_middle_of_an_answer_leave_no_traceback(
    cluster: DevCluster, http: Any, caplog: pytest.LogCaptureFixture, query: str
) -> None:
    for number in range(20):
        await http.make(CMS, {"metadata": {"name": f"c{number}"}, "data": LARGE})
    url = f"{cluster.url}{CMS}{query}"
    with capture_logs() as entries, caplog.at_level(logging.INFO):
        for number in range(ROUNDS):
            answers = [await http.session.get(url, headers=http.headers) for _ in range(CLIENTS)]
            change = asyncio.create_task(http.patch(f"{CMS}/c0", {"data": {"n": str(number)}}))
            for _ in range(number):  # a little later each time: while it is told to the watches
                await asyncio.sleep(0)
            for answer in answers:
                answer.connection.transport.abort()
                answer.close()
            assert (await change).status == 200
    assert (await http.get(f"{CMS}/c0")).body["data"]["n"] == str(ROUNDS - 1)
    assert [entry for entry in entries if entry["log_level"] in {"error", "warning"}] == []
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


async def test_half_a_body_is_refused_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "Limits", partial(Limits, body_seconds=0.2))
    cluster = DevCluster(tmp_path / "cluster", history=1_000)
    await cluster.start()
    http, end = Http(cluster.kubeconfig), asyncio.Event()

    async def half() -> AsyncIterator[bytes]:
        yield b'{"metadata": '
        await end.wait()

    try:
        async with http.session.post(cluster.url + CMS, data=half()) as answer:
            assert answer.status == 408
    finally:
        end.set()
        await http.session.close()
        await cluster.stop()
