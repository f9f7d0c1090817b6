"""Client, cache, Events and reviews against a cluster."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.kube.access import Reviewer
from ipuhub.kube.blocking import BlockingKubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import AlreadyExists, Conflict, Gone, Invalid, NotFound
from ipuhub.kube.events import EventRecorder
from ipuhub.kube.informer import Informer
from ipuhub.kube.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
    NODES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from ipuhub.kube.token import TokenSource
from ipuhub.kube.watch import Scope, Watch

if TYPE_CHECKING:
    from pathlib import Path

    from ipuhub.kube.client import KubeClient

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"suite": "kube"}}, "data": data}


async def test_an_object_lives_through_all_verbs(kube: KubeClient, namespace: str) -> None:
    made = await kube.create(CONFIG_MAPS, config_map("a", k="1"), namespace)
    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")
    with pytest.raises(AlreadyExists):
        await kube.create(CONFIG_MAPS, config_map("a"), namespace)

    merged = await kube.patch(CONFIG_MAPS, "a", {"data": {"k": None, "m": "2"}}, namespace)
    assert merged["data"] == {"m": "2"}
    added = [{"op": "add", "path": "/data/j", "value": "3"}]
    patched = await kube.patch(CONFIG_MAPS, "a", added, namespace, patch_type="json")
    assert patched["data"] == {"m": "2", "j": "3"}
    strategic = {"metadata": {"labels": {"more": "yes"}}}
    await kube.patch(CONFIG_MAPS, "a", strategic, namespace, patch_type="strategic")

    with pytest.raises(Conflict):
        await kube.replace(CONFIG_MAPS, {**made, "data": {"lost": "update"}})
    now = await kube.get(CONFIG_MAPS, "a", namespace)
    assert now["metadata"]["labels"] == {"suite": "kube", "more": "yes"}
    replaced = await kube.replace(CONFIG_MAPS, {**now, "data": {"whole": "new"}})
    assert replaced["data"] == {"whole": "new"}

    with pytest.raises(Conflict):
        await kube.delete(CONFIG_MAPS, "a", namespace, uid="another")
    await kube.delete(CONFIG_MAPS, "a", namespace, uid=made["metadata"]["uid"])
    with pytest.raises(NotFound):
        await kube.get(CONFIG_MAPS, "a", namespace)


async def test_a_stale_version_in_a_merge_patch_is_a_conflict(
    kube: KubeClient, namespace: str
) -> None:
    made = await kube.create(CONFIG_MAPS, config_map("a"), namespace)
    version = made["metadata"]["resourceVersion"]
    guarded = {"metadata": {"resourceVersion": version}, "data": {"by": "one"}}
    await kube.patch(CONFIG_MAPS, "a", guarded, namespace)
    with pytest.raises(Conflict):
        await kube.patch(CONFIG_MAPS, "a", {**guarded, "data": {"by": "two"}}, namespace)
    assert (await kube.get(CONFIG_MAPS, "a", namespace))["data"] == {"by": "one"}


async def test_a_wrong_object_is_invalid_and_names_the_field(
    kube: KubeClient, namespace: str
) -> None:
    with pytest.raises(Invalid, match="metadata.name"):
        await kube.create(CONFIG_MAPS, config_map("No Such Name"), namespace)


async def test_pages_show_everything_once(kube: KubeClient, namespace: str) -> None:
    wanted = {f"m{number:02}" for number in range(23)}
    await asyncio.gather(
        *(kube.create(CONFIG_MAPS, config_map(name), namespace) for name in wanted)
    )
    for limit in (0, 5, 500):
        found = await kube.list(CONFIG_MAPS, namespace, label_selector="suite=kube", limit=limit)
        names = [item["metadata"]["name"] for item in found.items]
        assert sorted(names) == sorted(wanted)
        assert all(item["kind"] == "ConfigMap" for item in found.items)
    everywhere = await kube.list(CONFIG_MAPS, field_selector=f"metadata.namespace={namespace}")
    assert wanted <= {item["metadata"]["name"] for item in everywhere.items}


async def test_cluster_wide_resources_need_no_namespace(kube: KubeClient) -> None:
    assert "default" in {
        item["metadata"]["name"] for item in (await kube.list(NAMESPACES, limit=2)).items
    }
    assert (await kube.list(NODES)).resource_version


async def test_a_cache_ends_up_with_exactly_what_the_server_has(
    kube: KubeClient, namespace: str
) -> None:
    informer = Informer(
        kube,
        CONFIG_MAPS,
        namespace=namespace,
        label_selector="suite=kube",
        indexers={"parity": lambda m: [(m.get("data") or {}).get("parity", "none")]},
    )
    arrived = asyncio.Event()

    def watch_for_end(_old: object, new: dict[str, Any] | None) -> None:
        if new and new["metadata"]["name"] == "end":
            arrived.set()

    informer.add_handler(watch_for_end)
    following = asyncio.create_task(informer.run())

    async def churn(number: int) -> None:
        name = f"m{number}"
        await kube.create(CONFIG_MAPS, config_map(name, parity="none"), namespace)
        await kube.patch(CONFIG_MAPS, name, {"data": {"parity": str(number % 2)}}, namespace)
        if number % 3 == 0:
            await kube.delete(CONFIG_MAPS, name, namespace)

    # Began before the first list, so that changes fall between list and watch too.
    await asyncio.gather(*(churn(number) for number in range(40)))
    await kube.create(CONFIG_MAPS, config_map("end"), namespace)
    await asyncio.wait_for(arrived.wait(), 90)
    truth = await kube.list(CONFIG_MAPS, namespace, label_selector="suite=kube")
    versions = {m["metadata"]["name"]: m["metadata"]["resourceVersion"] for m in truth.items}
    assert versions == {m["metadata"]["name"]: m["metadata"]["resourceVersion"] for m in informer.all()}  # fmt: skip  # noqa: E501
    odd = {m["metadata"]["name"] for m in informer.by_index("parity", "1")}
    assert odd == {f"m{n}" for n in range(40) if n % 2 and n % 3}
    assert informer.relists == 1
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following


async def test_a_watch_from_a_version_of_long_ago_is_gone(kube: KubeClient, namespace: str) -> None:
    watch = Watch(kube, Scope(CONFIG_MAPS, namespace), "1")
    events = watch.events()
    try:
        async with asyncio.timeout(90):
            first = await anext(events)
    except Gone:
        return
    finally:
        await events.aclose()
    # A young server still has its whole history: then nothing may be missing from it.
    assert first.resource_version.isdigit()


async def test_a_watch_resumes_where_another_stopped(kube: KubeClient, namespace: str) -> None:
    start = (await kube.list(CONFIG_MAPS, namespace)).resource_version
    for name in ("a", "b", "c"):
        await kube.create(CONFIG_MAPS, config_map(name), namespace)
    seen: list[str] = []
    version = start
    while len(seen) < 3:
        events = Watch(
            kube, Scope(CONFIG_MAPS, namespace, label_selector="suite=kube"), version
        ).events()
        async with asyncio.timeout(90):
            event = await anext(events)
        await events.aclose()
        version = event.resource_version
        if event.type != "BOOKMARK":
            seen.append(event.object["metadata"]["name"])
    assert seen == ["a", "b", "c"]


# ---------------------------------------------------------------------- Events


async def events_about(kube: KubeClient, namespace: str, name: str) -> list[dict[str, Any]]:
    found = (await kube.list(EVENTS, namespace)).items
    return [event for event in found if event["involvedObject"]["name"] == name]


async def test_the_same_event_is_counted_and_another_is_written(
    kube: KubeClient, namespace: str
) -> None:
    now = NOON
    made = await kube.create(CONFIG_MAPS, config_map("a"), namespace)
    recorder = EventRecorder(kube, "ipuhub-operator", lambda: now)
    for _ in range(3):
        await recorder.record(made, reason="Created", message="created it")
        now += timedelta(minutes=9)
    await recorder.record(made, type="Warning", reason="Failed", message="x" * 5000)
    counts = {
        event["reason"]: (event["type"], event["count"], event["lastTimestamp"])
        for event in await events_about(kube, namespace, "a")
    }
    assert counts == {
        "Created": ("Normal", 3, "2026-01-01T12:18:00Z"),
        "Failed": ("Warning", 1, "2026-01-01T12:27:00Z"),
    }
    now += timedelta(minutes=30)
    await recorder.record(made, reason="Created", message="created it")
    events = await events_about(kube, namespace, "a")
    assert sorted(e["count"] for e in events if e["reason"] == "Created") == [1, 3]
    assert {event["involvedObject"]["uid"] for event in events} == {made["metadata"]["uid"]}
    assert {event["source"]["component"] for event in events} == {"ipuhub-operator"}


async def test_an_event_that_is_written_late_has_the_time_at_which_it_happened(
    kube: KubeClient, namespace: str
) -> None:
    made = await kube.create(CONFIG_MAPS, config_map("a"), namespace)
    recorder = EventRecorder(kube, "c", lambda: NOON + timedelta(minutes=1))
    for seconds in (2, 5):
        at = NOON + timedelta(seconds=seconds)
        await recorder.record(made, reason="R", message="m", at=at)
    (event,) = await events_about(kube, namespace, "a")
    times = (event["firstTimestamp"], event["lastTimestamp"])
    assert times == ("2026-01-01T12:00:02Z", "2026-01-01T12:00:05Z")


async def test_an_event_that_expired_meanwhile_is_written_anew(
    kube: KubeClient, namespace: str
) -> None:
    made = await kube.create(CONFIG_MAPS, config_map("a"), namespace)
    recorder = EventRecorder(kube, "c", lambda: NOON)
    await recorder.record(made, reason="R", message="m")
    (event,) = await events_about(kube, namespace, "a")
    await kube.delete(EVENTS, event["metadata"]["name"], namespace)
    await recorder.record(made, reason="R", message="m")
    assert [e["count"] for e in await events_about(kube, namespace, "a")] == [1]


async def test_one_object_cannot_flood_the_cluster_and_others_are_heard(
    kube: KubeClient, namespace: str
) -> None:
    now = NOON
    loud = await kube.create(CONFIG_MAPS, config_map("loud"), namespace)
    calm = await kube.create(CONFIG_MAPS, config_map("calm"), namespace)
    recorder = EventRecorder(kube, "c", lambda: now)
    for number in range(40):
        await recorder.record(loud, reason="R", message=f"message {number}")
    await recorder.record(calm, reason="R", message="m")
    assert len(await events_about(kube, namespace, "loud")) == 25
    assert len(await events_about(kube, namespace, "calm")) == 1
    assert recorder.dropped == 15
    now += timedelta(minutes=5)
    await recorder.record(loud, reason="R", message="after a while")
    assert len(await events_about(kube, namespace, "loud")) == 26


async def test_an_event_that_cannot_be_written_does_not_stop_the_work(kube: KubeClient) -> None:
    recorder = EventRecorder(kube, "c", lambda: NOON)
    nowhere = {"kind": "Pod", "metadata": {"name": "x" * 253, "namespace": "no-such-namespace"}}
    await recorder.record(nowhere, reason="R", message="m")
    assert recorder.dropped == 1


# ---------------------------------------------------------------------- tokens and permissions


async def test_a_token_is_good_for_its_audience_only_and_its_user_for_what_rbac_says(
    kube: KubeClient, namespace: str
) -> None:
    await kube.create(SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}}, namespace)
    rule = {"apiGroups": ["graphcore.ai"], "resources": ["ipujobs/partitions"], "verbs": ["get"]}
    await kube.create(ROLES, {"metadata": {"name": "r"}, "rules": [rule]}, namespace)
    binding = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": namespace}],
    }
    await kube.create(ROLE_BINDINGS, binding, namespace)
    source = TokenSource(kube, f"{namespace}/robot", "ipuhub-proxy")
    token = await source()
    assert await source() == token

    reviewer = Reviewer(kube, "ipuhub-proxy")
    user = await reviewer.authenticate(token)
    assert user is not None
    assert user.username == f"system:serviceaccount:{namespace}:robot"
    assert f"system:serviceaccounts:{namespace}" in user.groups
    assert await Reviewer(kube, "another").authenticate(token) is None
    assert await reviewer.authenticate("no.such.token") is None
    assert await reviewer.authenticate("") is None

    attributes = {"group": "graphcore.ai", "resource": "ipujobs", "subresource": "partitions"}
    async with asyncio.timeout(90):  # a real server's authoriser learns of a binding by a watch
        while not await Reviewer(kube, "ipuhub-proxy").authorize(
            user, verb="get", namespace=namespace, **attributes
        ):
            await asyncio.sleep(0.05)
    assert not await reviewer.authorize(user, verb="delete", namespace=namespace, **attributes)
    assert not await reviewer.authorize(user, verb="get", namespace="default", **attributes)
    assert not await reviewer.authorize(user, verb="get", **attributes)
    assert not await reviewer.authorize_path(user, verb="get", path="/metrics")


async def test_synchronous_callers_run_the_same_verbs(cluster_kubeconfig: Path) -> None:
    def work() -> dict[str, str]:
        with BlockingKubeClient(load_config(str(cluster_kubeconfig))) as kube:
            client = kube.client
            body = {"metadata": {"generateName": "sync-"}, "data": {"a": "1"}}
            name = kube.run(client.create, CONFIG_MAPS, body, "default")["metadata"]["name"]
            found: dict[str, str] = kube.run(client.get, CONFIG_MAPS, name, "default")["data"]
            kube.run(client.delete, CONFIG_MAPS, name, "default")
            with pytest.raises(NotFound):
                kube.run(client.get, CONFIG_MAPS, name, "default")
        kube.close()
        return found

    assert await asyncio.to_thread(work) == {"a": "1"}


async def test_names_with_colons_are_addressed(kube: KubeClient) -> None:
    name = "ipuhub:test:colons"
    with suppress(NotFound):
        await kube.delete(CLUSTER_ROLES, name)
    await kube.create(CLUSTER_ROLES, {"metadata": {"name": name}, "rules": []})
    assert (await kube.get(CLUSTER_ROLES, name))["metadata"]["name"] == name
    await kube.delete(CLUSTER_ROLES, name)
