"""Watches: nothing is lost, nothing comes twice, and how they end."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.devcluster.conformance.kinds import config_map, maps, pod, pods, widget, widgets_path

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl
    from tests.devcluster.conformance.servers import Server


def brief(event: Json) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


async def version_of(api: Api, path: str) -> str:
    return str((await api.get(path)).ok(200)["metadata"]["resourceVersion"])


async def test_a_watch_from_a_list_loses_nothing(api: Api, namespace: str, widgets: str) -> None:
    path = widgets_path(widgets, namespace)
    (await api.create(path, widget(widgets, "old"))).ok(201)
    version = await version_of(api, path)
    (await api.create(path, widget(widgets, "a", count=1))).ok(201)
    (await api.patch(f"{path}/a", {"spec": {"count": 2}})).ok(200)
    (await api.delete(f"{path}/a")).ok(200)
    async with api.watch(path, resourceVersion=version) as watch:
        (await api.create(path, widget(widgets, "b"))).ok(201)
        events = await watch.until(lambda event: brief(event) == ("ADDED", "b"))
    assert [brief(event) for event in events] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("ADDED", "b"),
    ]
    assert [event["object"]["spec"].get("count") for event in events[:3]] == [1, 2, 2]


async def test_versions_of_events_rise_also_at_a_deletion(
    api: Api, namespace: str, widgets: str
) -> None:
    path = widgets_path(widgets, namespace)
    version = await version_of(api, path)
    made = (await api.create(path, widget(widgets, "a"))).ok(201)
    (await api.delete(f"{path}/a")).ok(200)
    async with api.watch(path, resourceVersion=version) as watch:
        events = await watch.until(lambda event: event["type"] == "DELETED")
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions[0] == int(made["metadata"]["resourceVersion"])
    assert versions[0] < versions[1]


@pytest.mark.parametrize("version", ["none", "0"])
async def test_a_watch_from_nowhere_begins_with_what_is_there(
    api: Api, namespace: str, widgets: str, version: str
) -> None:
    path = widgets_path(widgets, namespace)
    for name in ("a", "b"):
        (await api.create(path, widget(widgets, name))).ok(201)
    params = {} if version == "none" else {"resourceVersion": version}
    async with api.watch(path, **params) as watch:
        seen = {brief(await watch.next()) for _ in range(2)}
    assert seen == {("ADDED", "a"), ("ADDED", "b")}


async def test_a_selector_turns_changes_into_added_and_deleted(api: Api, namespace: str) -> None:
    path = maps(namespace)
    version = await version_of(api, path)
    async with api.watch(path, resourceVersion=version, labelSelector="on=yes") as watch:
        (await api.create(path, config_map("a", labels={"on": "no"}))).ok(201)
        for value in ("yes", "no"):
            (await api.patch(f"{path}/a", {"metadata": {"labels": {"on": value}}})).ok(200)
        (await api.create(path, config_map("b", labels={"on": "yes"}))).ok(201)
        (await api.patch(f"{path}/b", {"data": {"k": "v"}})).ok(200)
        events = await watch.until(lambda event: brief(event) == ("MODIFIED", "b"))
    assert [brief(event) for event in events] == [
        ("ADDED", "a"),
        ("DELETED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "b"),
    ]
    # The object of that DELETED is the last state that matched, at the version of the change.
    assert events[1]["object"]["metadata"]["labels"] == {"on": "yes"}
    assert int(events[1]["object"]["metadata"]["resourceVersion"]) > int(
        events[0]["object"]["metadata"]["resourceVersion"]
    )


async def test_a_field_selector_turns_changes_into_added_and_deleted(
    api: Api, pod_namespace: str
) -> None:
    path = pods(pod_namespace)
    (await api.create(path, pod("a", schedulerName="nobody"))).ok(201)
    version = await version_of(api, path)
    selector = "status.phase=Running"
    async with api.watch(path, resourceVersion=version, fieldSelector=selector) as watch:
        for phase in ("Running", "Succeeded"):
            (await api.patch(f"{path}/a/status", {"status": {"phase": phase}})).ok(200)
        events = await watch.until(lambda event: event["type"] == "DELETED")
    assert [brief(event) for event in events] == [("ADDED", "a"), ("DELETED", "a")]


async def test_one_object_is_watched_by_name(api: Api, namespace: str) -> None:
    path = maps(namespace)
    (await api.create(path, config_map("a"))).ok(201)
    version = await version_of(api, path)
    (await api.create(path, config_map("b"))).ok(201)
    (await api.patch(f"{path}/a", {"data": {"k": "v"}})).ok(200)
    selector = "metadata.name=a"
    async with api.watch(path, resourceVersion=version, fieldSelector=selector) as watch:
        assert brief(await watch.next()) == ("MODIFIED", "a")


async def test_a_watch_ends_after_its_seconds(api: Api, namespace: str, widgets: str) -> None:
    path = widgets_path(widgets, namespace)
    version = await version_of(api, path)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with api.watch(path, resourceVersion=version, timeoutSeconds=1) as watch:
        events = await watch.rest()
    assert events == []
    assert loop.time() - begun < 10


async def test_a_bookmark_tells_the_version_of_what_a_watch_did_not_see(
    api: Api, namespace: str, widgets: str
) -> None:
    """It comes just before the end of a watch that allows it."""
    path = widgets_path(widgets, namespace)
    params = {
        "resourceVersion": await version_of(api, path),
        "allowWatchBookmarks": "true",
        "timeoutSeconds": 5,
        "labelSelector": "never=there",
    }
    async with api.watch(path, **params) as watch:
        unseen = (await api.create(path, widget(widgets, "a"))).ok(201)
        events = await watch.rest()
    assert {event["type"] for event in events} == {"BOOKMARK"}
    last = events[-1]["object"]
    assert last["kind"] == "Widget"
    assert last["apiVersion"] == f"{widgets}/v1"
    version = last["metadata"]["resourceVersion"]
    assert int(version) >= int(unseen["metadata"]["resourceVersion"])
    (await api.create(path, widget(widgets, "b"))).ok(201)
    async with api.watch(path, resourceVersion=version) as watch:
        assert brief(await watch.next()) == ("ADDED", "b")


async def test_no_bookmarks_unasked(api: Api, namespace: str, widgets: str) -> None:
    path = widgets_path(widgets, namespace)
    version = await version_of(api, path)
    async with api.watch(path, resourceVersion=version, timeoutSeconds=3) as watch:
        assert await watch.rest() == []


@pytest.mark.expires_history
async def test_a_watch_from_too_old_a_version_is_410(
    api: Api, namespace: str, server: Server, widgets: str
) -> None:
    """It comes as an ERROR event whose object is the Status; some servers answer 410 at once."""
    assert server.expire_history is not None
    server.expire_history()
    path = widgets_path(widgets, namespace)
    # Real servers keep recent changes of a kind in memory: version 1 is before all of them.
    answer = await api.get(path, watch="1", resourceVersion="1", timeoutSeconds="5")
    if answer.status == 200:
        assert answer.body["type"] == "ERROR"
        status = answer.body["object"]
    else:
        assert answer.status == 410
        status = answer.body
    assert status["kind"] == "Status"
    assert status["apiVersion"] == "v1"
    assert status["status"] == "Failure"
    assert status["code"] == 410
    assert status["reason"] in {"Expired", "Gone"}
    assert "too old resource version: 1" in status["message"]


async def test_events_come_as_lines_of_json(api: Api, namespace: str) -> None:
    (await api.create(maps(namespace), config_map("a", {"k": "line\nbreak"}))).ok(201)
    async with api.watch(maps(namespace)) as watch:
        assert watch.response.headers["Content-Type"].startswith("application/json")
        assert watch.response.headers.get("Transfer-Encoding") == "chunked"
        events = await watch.until(lambda event: brief(event) == ("ADDED", "a"))
    made = events[-1]["object"]
    assert made["kind"] == "ConfigMap"
    assert made["apiVersion"] == "v1"
    assert made["data"] == {"k": "line\nbreak"}


async def test_two_watches_see_the_same(api: Api, namespace: str) -> None:
    path = maps(namespace)
    version = await version_of(api, path)
    async with (
        api.watch(path, resourceVersion=version) as one,
        api.watch(path, resourceVersion=version) as two,
    ):
        (await api.create(path, config_map("a"))).ok(201)
        (await api.delete(f"{path}/a")).ok(200)
        for watch in (one, two):
            await watch.until(lambda event: event["type"] == "DELETED")
    seen = [[event for event in watch.events if brief(event)[1] == "a"] for watch in (one, two)]
    assert seen[0] == seen[1]
    assert [brief(event) for event in seen[0]] == [("ADDED", "a"), ("DELETED", "a")]


async def test_a_burst_arrives_whole_and_in_order(api: Api, namespace: str, widgets: str) -> None:
    path = widgets_path(widgets, namespace)
    version = await version_of(api, path)
    async with api.watch(path, resourceVersion=version) as watch:
        bodies = [widget(widgets, f"n{number}") for number in range(60)]
        made = await asyncio.gather(*(api.create(path, body) for body in bodies))
        order = sorted(
            (int(answer.ok(201)["metadata"]["resourceVersion"]), answer.body["metadata"]["name"])
            for answer in made
        )
        events = [await watch.next() for _ in range(60)]
    assert [brief(event)[1] for event in events] == [name for _, name in order]


async def test_a_deletion_with_finalizers_is_first_a_change(api: Api, namespace: str) -> None:
    path = maps(namespace)
    version = await version_of(api, path)
    (await api.create(path, config_map("a", finalizers=["example.com/hold"]))).ok(201)
    (await api.delete(f"{path}/a")).ok(200)
    (await api.patch(f"{path}/a", {"metadata": {"finalizers": None}})).ok(200)
    async with api.watch(path, resourceVersion=version, fieldSelector="metadata.name=a") as watch:
        events = await watch.until(lambda event: event["type"] == "DELETED")
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert "deletionTimestamp" in events[1]["object"]["metadata"]


def test_kubectl_watches_as_a_table(kubectl: Kubectl, namespace: str, widgets: str) -> None:
    kubectl.run("apply", "-n", namespace, "-f", "-", stdin=widget(widgets, "a", count=3))
    command = ["kubectl", "get", f"widgets.{widgets}", "-n", namespace, "-w"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=kubectl.environment()
    ) as watching:
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(2)]
        watching.terminate()
    assert lines[0].split() == ["NAME", "COUNT", "COLOR", "READY", "WHEN", "AGE"]
    assert lines[1].split()[:3] == ["a", "3", "red"]
