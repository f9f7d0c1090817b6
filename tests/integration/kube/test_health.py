"""The health pages of a process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import aiohttp
import pytest

from ipuhub.kube.access import Reviewer
from ipuhub.process.health import Health, build_runner, listening
from ipuhub.process.metrics import Page
from ipuhub.process.metricspage import Guard, metrics_route

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def pages(health: Health) -> dict[str, tuple[int, str]]:
    """Fetch both pages: path -> (status, text)."""
    found = {}
    async with (
        listening(build_runner(health.app()), "127.0.0.1", 0) as port,
        aiohttp.ClientSession() as session,
    ):
        for path in ("healthz", "readyz"):
            async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                found[path] = (answer.status, await answer.text())
    return found


async def test_a_process_without_troubles_says_ok(clock: Clock) -> None:
    health = Health(clock)
    health.set("cache", True)
    health.ask("watch", lambda: "")
    health.beat("loop")
    assert await pages(health) == {"healthz": (200, "ok"), "readyz": (200, "ok")}


async def test_readiness_names_each_failing_check_and_liveness_does_not_care(
    clock: Clock,
) -> None:
    health = Health(clock)
    health.set("cache", False, "not listed yet")
    health.set("proxy", False)
    health.set("fine", True, "ignored")
    health.ask("watch", lambda: "pods: no answer")
    got = await pages(health)
    assert got["healthz"] == (200, "ok")
    want = "cache: not listed yet\nproxy: no\nwatch: pods: no answer\n"
    assert got["readyz"] == (503, want)
    health.set("cache", True)
    health.set("proxy", True)
    assert health.not_ready() == ["watch: pods: no answer"]


async def test_a_problem_of_several_lines_stands_in_one(clock: Clock) -> None:
    health = Health(clock)
    message = "connection failed: Connection refused\n\tIs the server running on that host?\n"
    health.set("PostgreSQL", False, message)
    health.ask("API server", lambda: message)
    want = "connection failed: Connection refused Is the server running on that host?"
    assert (await pages(health))["readyz"] == (503, f"PostgreSQL: {want}\nAPI server: {want}\n")


async def test_a_note_is_shown_on_readyz_and_fails_nothing(clock: Clock) -> None:
    health = Health(clock)
    health.note("crd", "apply ours")
    health.note("other", "")
    assert await pages(health) == {"healthz": (200, "ok"), "readyz": (200, "ok\ncrd: apply ours\n")}
    assert not any(health.checks().values())
    health.set("proxy", False, "away")
    assert (await pages(health))["readyz"] == (503, "proxy: away\ncrd: apply ours\n")
    health.set("proxy", True)
    health.note("crd", "")
    assert (await pages(health))["readyz"] == (200, "ok")
    with health.term():
        health.note("term", "of this leader")
    assert health.notes() == []
    note = "is away,\nfor now"
    health.note("asked", lambda: note)
    assert health.notes() == ["asked: is away, for now"]
    note = ""
    assert health.notes() == []


async def test_a_loop_that_stands_still_makes_the_process_unhealthy_until_it_moves(
    clock: Clock,
) -> None:
    health = Health(clock)
    health.beat("sweep", 60)
    clock.now = 60
    assert health.not_alive() == []
    clock.now = 61
    want = "sweep: no sign of life for 61 s (limit: 60 s)\n"
    assert await pages(health) == {"healthz": (503, want), "readyz": (503, want)}
    health.beat("sweep")
    assert health.not_alive() == []
    clock.now = 122
    assert health.not_alive() == ["sweep: no sign of life for 61 s (limit: 60 s)"]


async def test_the_first_beat_is_a_promise_too(clock: Clock) -> None:
    health = Health(clock)
    health.beat("loop", max_age_seconds=10)
    clock.now = 11
    assert health.not_alive() == ["loop: no sign of life for 11 s (limit: 10 s)"]


async def test_who_no_longer_leads_is_neither_unready_nor_restarted_for_what_he_did(
    clock: Clock,
) -> None:
    health = Health(clock)
    health.beat("lease", 1_000)
    health.ask("leader election", lambda: "")

    def work() -> None:
        health.beat("loop", 10)
        health.set("cache", False, "not listed yet")
        health.ask("proxy", lambda: "does not answer")
        clock.now = 100
        health.beat("lease")
        raise ValueError("the term ends")

    with pytest.raises(ValueError, match="the term ends"), health.term():
        work()
    clock.now = 500
    assert await pages(health) == {"healthz": (200, "ok"), "readyz": (200, "ok")}
    clock.now = 1_101
    assert health.not_alive() == ["lease: no sign of life for 1001 s (limit: 1000 s)"]


async def test_a_token_that_is_no_text_is_refused_and_logs_nothing(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard("secret", lambda: Reviewer(cast("KubeClient", None), ""))
    runner = build_runner(Health(clock).app([metrics_route(Page(), guard)]))
    async with listening(runner, "127.0.0.1", 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        writer.write(head + b"Authorization: Bearer \xff\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
        writer.close()
    assert not [record for record in caplog.records if record.exc_info]
