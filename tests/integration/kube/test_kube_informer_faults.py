"""A cache against a server that breaks off, forgets, refuses or lies."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from ipuhub.backoff import Backoff
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import ClusterConfig
from ipuhub.kube.informer import Informer
from ipuhub.kube.resources import PODS
from jobs.operator.ownership import trim_pod

from .conftest import BRISK, break_off, event, events, gone_event, page, pod, reply, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .conftest import ScriptedApi


class Changes:
    """The changes that a cache reported to its handler, in order."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def __call__(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        kind = "changed" if old and new else "came" if new else "went"
        metadata = (new or old or {})["metadata"]
        self.queue.put_nowait((kind, f"{metadata['name']}@{metadata['resourceVersion']}"))

    async def next(self, count: int = 1) -> list[tuple[str, str]]:
        async with asyncio.timeout(90):
            return [await self.queue.get() for _ in range(count)]


@asynccontextmanager
async def following(informer: Informer) -> AsyncIterator[Changes]:
    changes = Changes()
    informer.add_handler(changes)
    task = asyncio.create_task(informer.run())
    try:
        yield changes
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_cache_holds_the_list_and_follows_the_watch_from_its_version(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers.append(page(pod("a", "1"), pod("b", "2"), version="100"))
    api.watches.append(
        events(
            event("ADDED", pod("c", "101", job="1")),
            event("MODIFIED", pod("a", "102", job="1")),
            event("DELETED", pod("b", "103")),
            then=api.hang,
        )
    )
    informer = Informer(
        client,
        PODS,
        indexers={"job": lambda m: [v for k, v in m["metadata"]["labels"].items() if k == "job"]},
        transform=lambda m: {**m, "seen": True},
        pace=BRISK,
    )
    assert not informer.synced
    assert informer.stale_seconds(0.0) == float("inf")
    async with following(informer) as changes:
        await informer.wait_synced(10)
        assert await changes.next(5) == [
            ("came", "a@1"),
            ("came", "b@2"),
            ("came", "c@101"),
            ("changed", "a@102"),
            ("went", "b@103"),
        ]
        assert api.watches_seen()[0].query["resourceVersion"] == "100"
        assert informer.resource_version == "103"
        assert {m["metadata"]["name"] for m in informer.all()} == {"a", "c"}
        assert {m["metadata"]["name"] for m in informer.by_index("job", "1")} == {"a", "c"}
        found = informer.get("x", "a")
        assert found is not None
        assert found["seen"]
        assert (found["apiVersion"], found["kind"]) == ("v1", "Pod")
        assert "managedFields" not in found["metadata"]
        assert informer.get("x", "b") is None


@pytest.mark.parametrize(
    "gone", [status(410, "Expired"), events(gone_event())], ids=["as status", "as event"]
)
async def test_a_forgotten_version_leads_to_a_new_list_that_shows_what_was_missed(
    api: ScriptedApi, client: KubeClient, gone: Any
) -> None:
    api.answers += [
        page(pod("same", "1"), pod("stale", "2"), pod("lost", "3"), pod("remade", "4", "old")),
        page(
            pod("same", "1"), pod("stale", "20"), pod("new", "30"), pod("remade", "40", "other"),
            version="200",
        ),
    ]  # fmt: skip
    api.watches.append(gone)
    informer = Informer(client, PODS, pace=BRISK)
    async with following(informer) as changes:
        await changes.next(4)
        assert await changes.next(5) == [
            ("went", "lost@3"),
            ("changed", "stale@20"),
            ("came", "new@30"),
            ("went", "remade@4"),
            ("came", "remade@40"),
        ]
        async with asyncio.timeout(90):
            while len(api.watches_seen()) < 2:
                await asyncio.sleep(0)
        assert api.watches_seen()[1].query["resourceVersion"] == "200"
        assert informer.relists == 2
        assert informer.problem == ""


async def test_where_the_server_shows_objects_otherwise_all_are_taken_again(
    api: ScriptedApi, client: KubeClient
) -> None:
    """A custom resource whose schema has changed: the last that came by the old watch lacks the
    new fields, at a version after which no watch will show it again."""
    whole = pod("a", "101")
    whole["spec"] = {"new": "field"}
    api.answers += [
        page(pod("a", "1"), pod("b", "2")),
        page(whole, pod("b", "2"), version="101"),
    ]
    api.watches += [
        events(event("MODIFIED", pod("a", "101")), then=break_off),
        events(then=api.hang),
    ]
    answers = iter([False, True, False])

    async def must_relist() -> bool:
        return next(answers)

    informer = Informer(client, PODS, must_relist=must_relist, pace=BRISK)
    async with following(informer) as changes:
        assert await changes.next(4) == [
            ("came", "a@1"),
            ("came", "b@2"),
            ("changed", "a@101"),
            ("changed", "a@101"),
        ]
        found = informer.get("x", "a")
        assert found is not None
        assert found["spec"] == {"new": "field"}
        assert informer.relists == 2


async def test_an_object_made_again_under_its_name_goes_before_it_comes(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers.append(page(pod("a", "1", "first")))
    api.watches.append(events(event("MODIFIED", pod("a", "101", "second")), then=api.hang))
    async with following(Informer(client, PODS, pace=BRISK)) as changes:
        assert await changes.next(3) == [("came", "a@1"), ("went", "a@1"), ("came", "a@101")]


async def test_events_that_were_seen_are_not_told_again_after_a_break(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers.append(page())
    api.watches += [
        events(event("ADDED", pod("a", "101")), event("DELETED", pod("a", "102")), then=break_off),
        events(event("DELETED", pod("a", "102")), event("ADDED", pod("b", "103")), then=api.hang),
    ]
    async with following(Informer(client, PODS, pace=BRISK)) as changes:
        assert await changes.next(3) == [("came", "a@101"), ("went", "a@102"), ("came", "b@103")]


async def test_a_cache_waits_for_a_server_that_is_not_there_and_says_why(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers += [status(500, "InternalError"), status(404, "NotFound"), page(pod("a", "1"))]
    informer = Informer(client, PODS, pace=BRISK)
    async with following(informer) as changes:
        assert await changes.next(1) == [("came", "a@1")]
        assert informer.problem == ""
    async with KubeClient(ClusterConfig("http://127.0.0.1:9")) as nobody:
        lonely = Informer(nobody, PODS, pace=BRISK)
        async with following(lonely):
            with pytest.raises(TimeoutError, match=r"pods not listed: .*cannot be reached"):
                await lonely.wait_synced(0.2)
            assert not lonely.synced


async def test_trouble_is_logged_once_and_its_end_too(api: ScriptedApi, client: KubeClient) -> None:
    trouble = status(500, "InternalError")
    api.answers += [*[trouble] * 5, page(pod("a", "1"))]
    api.watches += [*[trouble] * 5, events(event("ADDED", pod("b", "101")), then=api.hang)]
    with capture_logs() as lines:
        async with following(Informer(client, PODS, pace=BRISK)) as changes:
            await changes.next(2)
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("warning", "cannot follow"),
        ("info", "following again"),
        ("warning", "watch interrupted"),
        ("info", "watch is back"),
    ]


async def test_a_cache_that_loses_its_right_keeps_its_objects_and_says_so(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers += [page(pod("a", "1")), status(403, "Forbidden"), page(pod("a", "1"))]
    api.watches.append(status(403, "Forbidden"))
    pace = replace(BRISK, backoff=Backoff(0.2, 0.4))
    informer = Informer(client, PODS, pace=pace)
    async with following(informer) as changes:
        await changes.next(1)
        async with asyncio.timeout(90):
            while not informer.problem:
                await asyncio.sleep(0)
        assert informer.problem == "Forbidden by script"
        assert informer.get("x", "a") is not None
        async with asyncio.timeout(90):
            while informer.problem:
                await asyncio.sleep(0.01)
        assert informer.synced


async def test_a_handler_that_fails_stops_neither_the_cache_nor_the_other_handlers(
    api: ScriptedApi, client: KubeClient
) -> None:
    def broken(_old: object, _new: object) -> None:
        raise ValueError("faulty handler")

    api.answers.append(page(pod("a", "1")))
    api.watches.append(events(event("ADDED", pod("b", "101")), then=api.hang))
    informer = Informer(client, PODS, pace=BRISK)
    informer.add_handler(broken)
    async with following(informer) as changes:
        assert await changes.next(2) == [("came", "a@1"), ("came", "b@101")]


async def test_a_late_handler_learns_what_is_known(api: ScriptedApi, client: KubeClient) -> None:
    api.answers.append(page(pod("a", "1")))
    informer = Informer(client, PODS, pace=BRISK)
    async with following(informer):
        await informer.wait_synced(10)
        late = Changes()
        informer.add_handler(late)
        assert await late.next(1) == [("came", "a@1")]


async def test_age_counts_from_the_servers_last_sign_of_life(
    api: ScriptedApi, client: KubeClient
) -> None:
    now = 50.0
    api.answers.append(page(pod("a", "1")))
    informer = Informer(client, PODS, pace=BRISK, clock=lambda: now)
    async with following(informer) as changes:
        await changes.next(1)
        now = 80.0
        assert informer.stale_seconds(now) == 30.0


async def test_no_event_is_lost_between_the_list_and_the_watch(
    api: ScriptedApi, client: KubeClient
) -> None:
    """The list answers late, with the version of when it was taken; changes came meanwhile."""
    api.answers.append(page(pod("a", "1"), version="100"))
    api.watches.append(events(event("ADDED", pod("meanwhile", "101")), then=api.hang))
    async with following(Informer(client, PODS, pace=BRISK)) as changes:
        assert await changes.next(2) == [("came", "a@1"), ("came", "meanwhile@101")]
    assert api.watches_seen()[0].query["resourceVersion"] == "100"


async def test_wrong_answers_to_a_list_do_not_end_the_cache(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers += [reply("text"), reply({"kind": "Status"}), page(pod("a", "1"))]
    async with following(Informer(client, PODS, pace=BRISK)) as changes:
        assert await changes.next(1) == [("came", "a@1")]


async def test_a_cache_follows_past_malformed_objects(api: ScriptedApi, client: KubeClient) -> None:
    broken, later = pod("a", "1"), pod("a", "103")
    broken["spec"], later["status"] = None, {"containerStatuses": "x"}
    nameless = {"metadata": {"resourceVersion": "102"}}
    api.answers.append(page(broken, nameless, version="100"))
    api.watches.append(
        events(
            event("ADDED", nameless),
            event("MODIFIED", later),
            event("ADDED", pod("b", "104")),
            then=api.hang,
        )
    )
    informer = Informer(client, PODS, pace=BRISK, transform=trim_pod)
    async with following(informer) as changes:
        assert await changes.next(3) == [("came", "a@1"), ("changed", "a@103"), ("came", "b@104")]
    assert informer.relists == 1
