"""What a long-lived embedded API lets go: old Events, and the decoded form of old versions."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.devcluster import controllers
from ipuhub.devcluster.server import DevCluster
from ipuhub.devcluster.status import StatusError
from ipuhub.devcluster.store import HISTORY_BYTES, RECENT, Store

if TYPE_CHECKING:
    from pathlib import Path

CMS = "/api/v1/namespaces/default/configmaps"
EVENTS = "/api/v1/namespaces/default/events"
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def event(name: str) -> dict[str, Any]:
    regarding = {"kind": "Pod", "name": "a", "namespace": "default"}
    return {"metadata": {"name": name}, "involvedObject": regarding, "reason": "Made"}


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


def config_map(name: str, number: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": name}, "data": {"n": str(number)}}


def test_of_old_versions_only_the_json_is_kept_and_they_read_the_same(tmp_path: Path) -> None:
    store = Store(tmp_path / "objects.sqlite")
    quiet = store.put("configmaps", config_map("quiet", 0))
    start = store.revision
    for number in range(2 * RECENT):
        store.put("configmaps", config_map("busy", number))
    changes = store.changes_since("configmaps", start)
    assert [c.item.body["data"]["n"] for c in changes] == [str(n) for n in range(2 * RECENT)]
    decoded = [change for change in changes if change.item.decoded is not None]
    assert len(decoded) == RECENT  # reading an old version does not keep it
    assert quiet.decoded is None
    assert quiet.body["data"] == {"n": "0"}
    assert quiet.decoded is quiet.body  # reading a present one does
    (then,) = [i for i in store.items_at("configmaps", start + 3) if i.key == ("n", "busy")]
    assert then.body["data"] == {"n": "2"}


def test_the_history_of_large_objects_ends_earlier(tmp_path: Path) -> None:
    store = Store(tmp_path / "objects.sqlite")
    start, megabyte = store.revision, "x" * 2**20
    fit = HISTORY_BYTES // (2**20 + 200)
    for number in range(3 * fit):
        store.put("configmaps", config_map("large", number) | {"data": {"n": megabyte}})
    assert len(store.changes_since("configmaps", store.revision - fit)) == fit
    with pytest.raises(StatusError, match="too old resource version"):
        store.changes_since("configmaps", start + fit)
