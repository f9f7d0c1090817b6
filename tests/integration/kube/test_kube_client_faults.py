"""The client against a server that misbehaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import ClusterConfig
from ipuhub.kube.errors import (
    AlreadyExists,
    Gone,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from ipuhub.kube.resources import CONFIG_MAPS, PODS, WriteOptions

from .conftest import break_off, events, page, pod, reply, status

if TYPE_CHECKING:
    from .conftest import ScriptedApi


async def test_pages_are_put_together_and_items_get_their_kind(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers += [page(pod("a", "1"), token="t1"), page(pod("b", "2"))]
    found = await client.list(PODS, "x", label_selector="l=1", field_selector="f=2", limit=1)
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]
    assert {(item["apiVersion"], item["kind"]) for item in found.items} == {("v1", "Pod")}
    assert found.resource_version == "100"
    first, second = (seen.query for seen in api.seen)
    assert first == {"labelSelector": "l=1", "fieldSelector": "f=2", "limit": "1"}
    assert second == {**first, "continue": "t1"}


async def test_a_paging_token_that_expires_in_the_middle_of_a_list_starts_it_anew_in_one_piece(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers += [
        page(pod("a", "1"), token="t1"),
        status(410, "Expired"),
        page(pod("b", "2"), pod("c", "3"), version="200"),
    ]
    found = await client.list(PODS, limit=1, resource_version="90")
    assert [item["metadata"]["name"] for item in found.items] == ["b", "c"]
    assert found.resource_version == "200"
    assert api.seen[2].query == {}


async def test_a_list_without_pages_that_is_gone_is_not_tried_for_ever(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers += [status(410, "Expired"), status(410, "Expired")]
    with pytest.raises(Gone):
        await client.list(PODS)
    assert len(api.seen) == 2


async def test_a_list_may_have_null_items(api: ScriptedApi, client: KubeClient) -> None:
    api.answers.append(reply({"metadata": {"resourceVersion": "7"}, "items": None}))
    assert (await client.list(PODS)).items == []


@pytest.mark.parametrize("code", [429, 503])
async def test_a_server_that_asks_to_wait_is_asked_again(
    api: ScriptedApi, client: KubeClient, code: int
) -> None:
    refusal = status(code, "TooManyRequests", Retry_After="0")
    api.answers += [refusal, refusal, reply(pod("a", "1"))]
    created = await client.create(PODS, pod("a", ""))
    assert created["metadata"]["name"] == "a"
    assert [orjson.loads(seen.body)["metadata"]["name"] for seen in api.seen] == ["a"] * 3


async def test_waiting_longer_than_the_request_may_last_is_left_to_the_caller(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers.append(status(429, "TooManyRequests", Retry_After="3600"))
    with pytest.raises(TooManyRequests) as caught:
        await client.get(PODS, "a", "x")
    assert caught.value.retry_after == 3600


async def test_an_endless_wish_to_wait_ends(api: ScriptedApi, client: KubeClient) -> None:
    api.answers += [status(429, "TooManyRequests", Retry_After="0")] * 50
    with pytest.raises(TooManyRequests):
        await client.get(PODS, "a", "x")
    assert len(api.seen) == 5


async def test_a_failure_without_the_wish_to_wait_is_not_repeated(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers += [status(500, "InternalError", Retry_After="0"), reply({})]
    with pytest.raises(ServerError):
        await client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "x")
    assert len(api.seen) == 1


async def test_errors_carry_the_servers_words(api: ScriptedApi, client: KubeClient) -> None:
    api.answers += [status(409, "AlreadyExists"), status(404, "NotFound")]
    with pytest.raises(AlreadyExists, match="AlreadyExists by script"):
        await client.create(PODS, pod("a", ""))
    with pytest.raises(NotFound, match="NotFound by script"):
        await client.get(PODS, "a", "x")


async def test_nobody_there_is_unreachable_and_says_where() -> None:
    async with KubeClient(ClusterConfig("http://127.0.0.1:9")) as client:
        with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:9 cannot be reached"):
            await client.get(PODS, "a", "x")


async def test_a_server_that_never_answers_is_given_up(api: ScriptedApi) -> None:
    async def never(_: web.Request) -> web.StreamResponse:
        await api.stopping.wait()
        return web.Response()

    api.answers.append(never)
    async with KubeClient(ClusterConfig(api.url), timeout_seconds=0.05) as client:
        with pytest.raises(Unreachable, match="did not answer in time"):
            await client.get(PODS, "a", "x")


async def test_an_answer_that_breaks_off_is_unreachable(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers.append(events(b'{"metadata":', then=break_off))
    with pytest.raises(Unreachable, match="aborted its response"):
        await client.get(PODS, "a", "x")


async def test_an_answer_that_is_no_json_is_a_server_error(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers.append(events(b'{"metadata":'))
    with pytest.raises(ServerError, match="not valid JSON"):
        await client.get(PODS, "a", "x")


async def test_a_redirect_is_not_followed_with_the_credentials(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers += [
        reply({"message": "moved"}, 302, Location="http://127.0.0.1:9/elsewhere"),
        reply({}),
    ]
    with pytest.raises(Exception, match="moved"):
        await client.get(PODS, "a", "x")
    assert len(api.seen) == 1


async def test_text_is_returned_as_text(api: ScriptedApi, client: KubeClient) -> None:
    async def log(_: web.Request) -> web.StreamResponse:
        return web.Response(text="step 1\nstep 2 é\n")

    api.answers.append(log)
    path = PODS.path("x", "a", "log")
    assert await client.request("GET", path, params={"tailLines": "2"}) == "step 1\nstep 2 é\n"
    assert api.seen[0].query == {"tailLines": "2"}


async def test_delete_states_its_preconditions_and_policy(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers += [reply({}), reply({})]
    await client.delete(
        PODS,
        "a",
        "x",
        uid="u1",
        resource_version="5",
        grace_period_seconds=0,
        propagation="Foreground",
    )
    await client.delete(PODS, "a", "x")
    assert orjson.loads(api.seen[0].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": "u1", "resourceVersion": "5"},
    }
    assert orjson.loads(api.seen[1].body) == {"apiVersion": "v1", "kind": "DeleteOptions"}


async def test_requests_wait_for_a_free_connection_and_watches_take_none(
    api: ScriptedApi,
) -> None:
    running = most = 0

    async def slow(_: web.Request) -> web.StreamResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _turn in range(20):
            await asyncio.sleep(0)
        running -= 1
        return web.json_response(pod("a", "1"))

    api.answers += [slow] * 12
    async with (
        KubeClient(ClusterConfig(api.url), max_connections=3) as client,
        client.stream(PODS, PODS.path(), {"watch": "1"}, 20),
        client.stream(PODS, PODS.path(), {"watch": "1"}, 20),
        client.stream(PODS, PODS.path(), {"watch": "1"}, 20),
    ):
        await asyncio.gather(*(client.get(PODS, "a", "x") for _ in range(12)))
    assert most <= 3


async def test_options_of_a_deletion_are_in_its_body_and_those_of_other_writes_in_the_query(
    api: ScriptedApi, client: KubeClient
) -> None:
    """With a body, an API server ignores the query of a deletion and would carry it out."""
    api.answers += [reply({}) for _ in range(4)]
    tried = WriteOptions(dry_run=True, manager="me", is_strict=True, acts_as="ann")
    await client.delete(PODS, "a", "x", uid="u1", options=tried)
    await client.create(PODS, {"metadata": {}}, "x", options=tried)
    await client.patch(PODS, "a", {}, "x", options=tried)
    await client.try_create(PODS, {"metadata": {}})
    query = {"dryRun": "All", "fieldManager": "me", "fieldValidation": "Strict"}
    assert [seen.query for seen in api.seen] == [{}, query, query, {"dryRun": "All"}]
    assert orjson.loads(api.seen[0].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u1"},
        "dryRun": ["All"],
    }
    assert [seen.headers.get("Impersonate-User") for seen in api.seen] == ["ann"] * 3 + [None]


async def test_calls_are_counted_by_verb_and_resource(api: ScriptedApi, client: KubeClient) -> None:
    api.answers += [page(pod("a", "1"), token="t"), page(), reply({}), reply({})]
    await client.list(PODS)
    await client.patch(CONFIG_MAPS, "m", {"data": {}}, "x", options=WriteOptions(manager="me"))
    await client.request("GET", "/version")
    assert client.calls == {("list", "pods"): 2, ("patch", "configmaps"): 1, ("request", "GET"): 1}
    assert api.seen[2].query == {"fieldManager": "me"}
    assert api.seen[2].headers["Content-Type"] == "application/merge-patch+json"


async def test_a_closed_client_says_so(client: KubeClient) -> None:
    await client.close()
    with pytest.raises(RuntimeError, match="closed"):
        await client.get(PODS, "a", "x")


async def test_malformed_pods_are_read_without_what_is_wrong_and_counted(
    api: ScriptedApi, client: KubeClient
) -> None:
    counted: list[str] = []
    client.on_malformed = counted.append
    broken = pod("a", "1") | {"status": {"phase": "Running", "conditions": "x"}}
    nameless = {"metadata": {"resourceVersion": "3"}}
    api.answers += [page(broken, nameless, pod("b", "2")), reply(broken), reply(nameless)]
    with capture_logs() as logs:
        found = (await client.list(PODS)).items
        assert [each["metadata"]["name"] for each in found] == ["a", "b"]
        assert found[0]["status"] == {"phase": "Running"}
        assert (await client.get(PODS, "a", "x"))["status"] == {"phase": "Running"}
        with pytest.raises(ServerError, match="did not answer with a Pod"):
            await client.get(PODS, "c", "x")
    assert counted == ["pods"] * 4
    warned = [each["what"] for each in logs if each["event"] == "malformed fields ignored"]
    assert warned == ["status.conditions", "metadata.name"]  # the same object once
