"""Memory that a long-running embedded API frees: old Events, and decoded old versions."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from devcluster import controllers
from devcluster.controllers import Namespaces
from devcluster.gc import GarbageCollector
from devcluster.schemas.kinds import BY_RESOURCE
from devcluster.schemas.registry import Registry
from devcluster.server import DevCluster
from devcluster.status import StatusError
from devcluster.storage.objects import Objects
from devcluster.storage.store import DECODED_BYTES, HISTORY_BYTES, Store

if TYPE_CHECKING:
    from pathlib import Path

CMS = "/api/v1/namespaces/default/configmaps"
EVENTS = "/api/v1/namespaces/default/events"
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def event(name: str) -> dict[str, Any]:
    regarding = {"kind": "Pod", "name": "a", "namespace": "default"}
    about = {"involvedObject": regarding, "reason": "Made"}
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, **about}


async def test_events_go_after_an_hour_also_where_something_changes_all_the_time(
    tmp_path: Path, open_http: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controllers, "_SWEEP_SECONDS", 0.2)
    now = NOON
    cluster = DevCluster(tmp_path / "busy", clock=lambda: now)
    await cluster.start()
    http = open_http(cluster.kubeconfig)
    await http.make(EVENTS, event("old"))
    now += timedelta(minutes=2)
    await http.make(EVENTS, event("young"))
    now += timedelta(minutes=59)
    await http.make(CMS, {"metadata": {"name": "busy"}})

    async def keep_busy() -> None:
        for number in range(100_000):
            await http.patch(f"{CMS}/busy", {"data": {"n": str(number)}})

    busy = asyncio.create_task(keep_busy())
    await asyncio.wait_for(http.until_gone(f"{EVENTS}/old"), 90)
    assert (await http.get(f"{EVENTS}/young")).status == 200
    busy.cancel()
    await asyncio.gather(busy, return_exceptions=True)
    await http.session.close()
    await cluster.stop()


async def test_of_too_many_events_the_oldest_go_earlier_but_none_of_the_last_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = NOON
    monkeypatch.setattr(controllers, "EVENTS_KEPT", 3)
    store = Store(tmp_path / "objects.sqlite")
    objects = Objects(store, Registry(store), lambda: now)
    namespaces = Namespaces(objects, "")
    namespaces.create_initial()
    keeper = controllers.Controllers(objects, namespaces, GarbageCollector(objects))
    for minute in range(6):
        now = NOON + timedelta(minutes=minute)
        objects.create(BY_RESOURCE["", "v1", "events"], "default", event(f"at-{minute}"))

    def left(minute: int) -> list[str]:
        nonlocal now
        now = NOON + timedelta(minutes=minute)
        keeper.forget_old_events()
        return [item.key[1] for item in objects.store.items("events")]

    assert left(6) == [f"at-{n}" for n in range(1, 6)]  # more than three, but not older than 5 min
    assert left(30) == ["at-3", "at-4", "at-5"]
    assert left(64) == ["at-4", "at-5"]


def config_map(name: str, number: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": name}, "data": {"n": str(number)}}


def decoded_bytes(store: Store) -> int:
    versions = {id(i): i for b in store.buckets() for i in store.items(b)}
    for bucket in store.buckets():
        for change in store.changes_since(bucket, 1):
            versions |= {id(i): i for i in (change.item, change.previous) if i is not None}
    return sum(len(i.data) for i in versions.values() if i.decoded is not None)


def test_of_most_versions_only_the_json_is_kept_and_they_read_the_same(tmp_path: Path) -> None:
    store = Store(tmp_path / "objects.sqlite")
    start, filler, total = store.revision, {"f": "x" * 5_000}, 2 * DECODED_BYTES // 5_000
    for number in range(total // 2):
        store.put("configmaps", config_map("busy", number) | filler)
        store.put("configmaps", config_map(f"quiet-{number}", number) | filler)
    for _ in range(2):  # also when all of them are read
        assert DECODED_BYTES * 0.9 < decoded_bytes(store) <= DECODED_BYTES
        names = {item.body["metadata"]["name"] for item in store.items("configmaps")}
        assert len(names) == total // 2 + 1
        changes = store.changes_since("configmaps", start)
        assert [c.item.body["data"]["n"] for c in changes[::2]] == list(map(str, range(total // 2)))
    (then,) = [i for i in store.items_at("configmaps", start + 5) if i.key == ("n", "busy")]
    assert then.body["data"] == {"n": "2"}


def test_what_each_request_reads_stays_decoded_until_it_changes(tmp_path: Path) -> None:
    store = Store(tmp_path / "objects.sqlite")
    bucket, huge = "roles.rbac.authorization.k8s.io", {"f": "x" * DECODED_BYTES}
    first = store.put(bucket, config_map("rules", 1))
    store.put("configmaps", config_map("large", 1) | huge)
    assert first.decoded is not None
    second = store.put(bucket, config_map("rules", 2))
    store.put("configmaps", config_map("large", 2) | huge)
    assert (first.decoded, second.decoded is None) == (None, False)
    last = store.remove(bucket, "n", "rules")
    store.put("configmaps", config_map("large", 3) | huge)
    assert (second.decoded, last.decoded) == (None, None)
    assert second.body["data"] == {"n": "2"}


def test_the_history_of_large_objects_ends_earlier(tmp_path: Path) -> None:
    store = Store(tmp_path / "objects.sqlite")
    start, megabyte = store.revision, "x" * 2**20
    fit = HISTORY_BYTES // (2**20 + 200)
    for number in range(3 * fit):
        store.put("configmaps", config_map("large", number) | {"data": {"n": megabyte}})
    assert len(store.changes_since("configmaps", store.revision - fit)) == fit
    with pytest.raises(StatusError, match="too old resource version"):
        store.changes_since("configmaps", start + fit)
