"""A watch against a server that breaks off, forgets, falls silent or lies."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.backoff import Backoff
from ipuhub.kube.errors import Forbidden, Gone
from ipuhub.kube.resources import PODS
from ipuhub.kube.watch import Pace, Scope, Watch
from tests.fakes.waiting import eventually

from .conftest import BRISK, bookmark, break_off, event, events, gone_event, pod, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import web

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import WatchEvent

    from .conftest import ScriptedApi


async def take(watch: Watch, count: int) -> list[WatchEvent]:
    taken: list[WatchEvent] = []
    async with asyncio.timeout(90), aclosing(watch.events()) as stream:
        async for one in stream:
            taken.append(one)
            if len(taken) == count:
                break
    return taken


@asynccontextmanager
async def silent(watch: Watch, seconds: float) -> AsyncIterator[None]:
    """A watch that has been in trouble for so long, and has told nothing."""
    following = asyncio.create_task(take(watch, 1))
    try:
        await eventually(lambda: watch.problem)
        done, _ = await asyncio.wait({following}, timeout=seconds)
        assert not done
        yield
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def watch_of(client: KubeClient, pace: Pace = BRISK, version: str = "100") -> Watch:
    return Watch(client, Scope(PODS, "x", "l=1", "f=2"), version, pace=pace)


def names(taken: list[WatchEvent]) -> list[str]:
    return [one.object["metadata"].get("name", one.type) for one in taken]


async def test_a_watch_asks_for_what_it_covers_and_for_bookmarks(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.watches.append(events(event("ADDED", pod("a", "101"))))
    await take(watch_of(client), 1)
    query = api.seen[0].query
    assert 16 <= int(query.pop("timeoutSeconds")) <= 20
    assert query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "100",
        "labelSelector": "l=1",
        "fieldSelector": "f=2",
    }


@pytest.mark.parametrize("then", [None, break_off])
async def test_a_watch_resumes_after_its_last_event_however_it_ended(
    api: ScriptedApi, client: KubeClient, then: Any
) -> None:
    api.watches += [
        events(event("ADDED", pod("a", "101")), event("MODIFIED", pod("a", "102")), then=then),
        events(event("DELETED", pod("a", "103"))),
    ]
    taken = await take(watch_of(client), 3)
    assert [one.type for one in taken] == ["ADDED", "MODIFIED", "DELETED"]
    assert [seen.query["resourceVersion"] for seen in api.seen] == ["100", "102"]


async def test_a_bookmark_moves_the_place_to_resume_from(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.watches += [events(bookmark("150")), events(event("ADDED", pod("a", "151")))]
    assert names(await take(watch_of(client), 2)) == ["BOOKMARK", "a"]
    assert [seen.query["resourceVersion"] for seen in api.seen] == ["100", "150"]


@pytest.mark.parametrize("then", [None, break_off])
async def test_half_an_event_is_not_an_event_and_comes_whole_after_resuming(
    api: ScriptedApi, client: KubeClient, then: Any
) -> None:
    half = b'{"type":"ADDED","object":{"metadata":{"name":"b","resourceVer'
    api.watches += [
        events(event("ADDED", pod("a", "101")), half, then=then),
        events(event("ADDED", pod("b", "102"))),
    ]
    assert names(await take(watch_of(client), 2)) == ["a", "b"]
    assert api.seen[1].query["resourceVersion"] == "101"


@pytest.mark.parametrize(
    "answer", [status(410, "Expired"), events(gone_event())], ids=["as status", "as event"]
)
async def test_a_forgotten_version_is_gone(
    api: ScriptedApi, client: KubeClient, answer: Any
) -> None:
    api.watches.append(answer)
    with pytest.raises(Gone):
        await take(watch_of(client), 1)


async def test_a_silent_connection_is_given_up_and_resumed(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.watches += [
        events(event("ADDED", pod("a", "101")), then=api.hang),
        events(event("ADDED", pod("b", "102"))),
    ]
    taken = await take(watch_of(client, replace(BRISK, silence_seconds=0.05)), 2)
    assert names(taken) == ["a", "b"]
    assert api.seen[1].query["resourceVersion"] == "101"


@pytest.mark.parametrize(
    "trouble",
    [
        status(500, "InternalError"),
        status(429, "TooManyRequests"),
        status(401, "Unauthorized"),
        events(b"<html>no event</html>\n"),
        events(event("ERROR", {"kind": "Status", "code": 500, "message": "etcd is slow"})),
    ],
    ids=["500", "429", "401", "no event", "error event"],
)
async def test_passing_trouble_is_waited_out(
    api: ScriptedApi, client: KubeClient, trouble: Any
) -> None:
    api.watches += [trouble, trouble, events(event("ADDED", pod("a", "101")))]
    assert names(await take(watch_of(client), 1)) == ["a"]
    assert {seen.query["resourceVersion"] for seen in api.seen} == {"100"}


async def test_what_waiting_does_not_cure_is_raised(api: ScriptedApi, client: KubeClient) -> None:
    api.watches.append(status(403, "Forbidden"))
    with pytest.raises(Forbidden):
        await take(watch_of(client), 1)


async def test_a_server_that_closes_each_watch_at_once_is_asked_ever_more_rarely(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.watches += [events()] * 50
    pace = Pace(backoff=Backoff(0.05, 10.0), healthy_seconds=5.0)
    watch = watch_of(client, pace)
    async with silent(watch, 0.5):
        assert watch.problem == "the server closes the watch at once"
    assert len(api.seen) <= 6


async def test_a_refusal_that_names_a_time_is_respected(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.watches += [status(429, "TooManyRequests", Retry_After="60"), events()]
    async with silent(watch_of(client), 0.2):
        assert len(api.seen) == 1


async def test_a_connection_that_takes_long_to_fail_is_no_sign_of_health(
    api: ScriptedApi, client: KubeClient
) -> None:
    async def late_failure(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.02)
        return await status(500, "InternalError")(request)

    api.watches += [late_failure] * 50
    pace = Pace(backoff=Backoff(0.02, 10.0), healthy_seconds=0.01)
    watch = watch_of(client, pace)
    async with silent(watch, 0.6):
        assert watch.problem == "InternalError by script"
    assert len(api.seen) <= 8
