"""Lists and watches: consistency, selectors, pages, resumption, bookmarks."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import aiohttp

from devcluster.server import DevCluster

CMS = "/api/v1/namespaces/default/configmaps"
MARK = "labelSelector=x"


def marked(name: str, value: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"x": value}}, "data": {}}


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer.body["items"]]


async def test_pages_show_one_state_whatever_is_written_between_them(http):
    for name in ("a", "b", "c", "d"):
        await http.make(CMS, marked(name))
    first = await http.get(f"{CMS}?{MARK}&limit=2")
    token = first.body["metadata"]["continue"]
    await http.delete(f"{CMS}/c")
    await http.make(CMS, marked("bb"))
    second = await http.get(f"{CMS}?{MARK}&limit=2&continue={token}")
    assert names(first) + names(second) == ["a", "b", "c", "d"]
    revisions = {page.body["metadata"]["resourceVersion"] for page in (first, second)}
    assert len(revisions) == 1
    assert "continue" not in second.body["metadata"]


async def test_a_page_says_how_many_remain_unless_a_selector_hides_it(http):
    for name in ("a", "b", "c"):
        await http.make(CMS, marked(name))
    page = await http.get(f"{CMS}?limit=1")
    assert page.body["metadata"]["remainingItemCount"] == 3  # b, c and kube-root-ca.crt
    page = await http.get(f"{CMS}?{MARK}&limit=1")
    assert "remainingItemCount" not in page.body["metadata"]


async def test_a_continue_token_from_a_forgotten_past_is_gone(tmp_path, open_http):
    cluster = DevCluster(tmp_path / "small", history=5)
    await cluster.start()
    http = open_http(cluster.kubeconfig)
    for name in ("a", "b"):
        await http.make(CMS, marked(name))
    token = (await http.get(f"{CMS}?limit=1")).body["metadata"]["continue"]
    for number in range(10):
        await http.patch(f"{CMS}/a", {"data": {"n": str(number)}})
    answer = await http.get(f"{CMS}?limit=1&continue={token}")
    assert (answer.status, answer.body["reason"]) == (410, "Expired")
    async with http.watch(f"{CMS}?resourceVersion=1") as events:
        event = await anext(events)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    await http.session.close()
    await cluster.stop()


async def test_an_exact_list_shows_the_past_and_a_future_one_is_refused(http):
    created = await http.make(CMS, marked("a"))
    revision = created["metadata"]["resourceVersion"]
    await http.patch(f"{CMS}/a", {"data": {"n": "1"}})
    await http.make(CMS, marked("b"))
    exact = f"{CMS}?{MARK}&resourceVersion={revision}&resourceVersionMatch=Exact"
    past = await http.get(exact)
    bare = {key: created[key] for key in created if key not in {"apiVersion", "kind"}}
    assert past.body["items"] == [bare]
    assert past.body["metadata"]["resourceVersion"] == revision
    now = await http.get(f"{CMS}?{MARK}&resourceVersion=0")
    assert names(now) == ["a", "b"]
    future = await http.get(f"{CMS}?resourceVersion=99999999")
    assert (future.status, future.headers["Retry-After"]) == (504, "1")


async def test_selectors_filter_and_an_unknown_field_is_refused(http):
    await http.make(CMS, marked("a", "1"))
    await http.make(CMS, marked("b", "2"))
    assert names(await http.get(f"{CMS}?labelSelector=x%20in%20(2,3)")) == ["b"]
    assert names(await http.get(f"{CMS}?fieldSelector=metadata.name%3Da")) == ["a"]
    assert (await http.get(f"{CMS}?fieldSelector=data.x%3Da")).status == 400
    assert (await http.get(f"{CMS}?labelSelector=,,")).status == 400


async def test_all_namespaces_are_listed_in_order(http):
    answer = await http.get("/api/v1/serviceaccounts")
    spaces = [item["metadata"]["namespace"] for item in answer.body["items"]]
    assert spaces == ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_a_large_list_is_compressed_for_who_can_read_it(http):
    body = marked("large")
    body["data"] = {"a": "x" * 300_000}
    await http.make(CMS, body)
    headers = {**http.headers, "Accept-Encoding": "gzip"}
    url = f"{http.url}{CMS}"
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        context = http.session.connector._ssl
        async with session.get(url, headers=headers, ssl=context) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert b"xxxx" in gzip.decompress(await answer.read())


async def test_a_watch_continues_where_the_list_ended(http):
    await http.make(CMS, marked("a"))
    revision = (await http.get(CMS)).body["metadata"]["resourceVersion"]
    await http.patch(f"{CMS}/a", {"data": {"n": "1"}})
    async with http.watch(f"{CMS}?resourceVersion={revision}") as events:
        await http.make(CMS, marked("b"))
        await http.delete(f"{CMS}/a")
        seen = [await anext(events) for _ in range(3)]
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in seen] == [
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]
    revisions = [int(e["object"]["metadata"]["resourceVersion"]) for e in seen]
    assert revisions == sorted(set(revisions))


async def test_a_watch_without_a_version_begins_with_what_is_there(http):
    await http.make(CMS, marked("a"))
    async with http.watch(f"{CMS}?{MARK}") as events:
        event = await anext(events)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")


async def test_an_object_that_leaves_the_selector_is_deleted_for_the_watch(http):
    await http.make(CMS, marked("a", "1"))
    revision = (await http.get(CMS)).body["metadata"]["resourceVersion"]
    query = f"labelSelector=x%3D1&resourceVersion={revision}"
    async with http.watch(f"{CMS}?{query}") as events:
        await http.patch(f"{CMS}/a", {"metadata": {"labels": {"x": "2"}}})
        left = await anext(events)
        await http.patch(f"{CMS}/a", {"metadata": {"labels": {"x": "1"}}})
        back = await anext(events)
    assert (left["type"], left["object"]["metadata"]["labels"]) == ("DELETED", {"x": "1"})
    assert back["type"] == "ADDED"


async def test_a_watch_ends_in_time_with_a_bookmark(http):
    revision = (await http.get(CMS)).body["metadata"]["resourceVersion"]
    query = f"resourceVersion={revision}&timeoutSeconds=1&allowWatchBookmarks=true"
    async with http.watch(f"{CMS}?{query}") as events:
        await http.make("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
        seen = [event async for event in events]
    assert [event["type"] for event in seen] == ["BOOKMARK"]
    marked_revision = int(seen[0]["object"]["metadata"]["resourceVersion"])
    assert marked_revision > int(revision)


async def test_streaming_lists_are_refused_so_that_clients_fall_back(http):
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    answer = await http.get(f"{CMS}?{query}")
    assert answer.status == 422
    assert "WatchList feature gate" in answer.body["message"]


async def test_a_watch_of_one_object_sees_only_that(http):
    await http.make(CMS, marked("a"))
    async with http.watch(f"{CMS}?fieldSelector=metadata.name%3Da") as events:
        assert (await anext(events))["type"] == "ADDED"
        await http.make(CMS, marked("b"))
        await http.patch(f"{CMS}/a", {"data": {"n": "1"}})
        event = await anext(events)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("MODIFIED", "a")


async def test_the_server_stops_while_watches_are_open(tmp_path, open_http):
    cluster = DevCluster(tmp_path / "short")
    await cluster.start()
    http = open_http(cluster.kubeconfig)
    async with http.watch(f"{CMS}?resourceVersion=0") as events:
        await anext(events)
        async with asyncio.timeout(60):
            await cluster.stop()
    await http.session.close()
