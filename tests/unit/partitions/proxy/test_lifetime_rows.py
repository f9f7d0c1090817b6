"""The tracker's ConfigMaps as the recorder of partition lifetimes reads them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ipuhub.partition import Phase
from partitions.history.recorder import shard_of, tombstones
from partitions.proxy.tracker import encode_entry
from tests.builders.trackerentries import NOW, entry


def config_map(data: dict[str, str] | None) -> dict[str, Any]:
    meta = {"uid": "map-uid", "namespace": "ipuhub-system", "name": "ipu-partitions-tracker"}
    return {"metadata": meta} | ({} if data is None else {"data": data})


def test_entries_are_read_and_what_is_none_is_told_with_its_key() -> None:
    good = entry(1)
    shard = shard_of(config_map({good.key: encode_entry(good), "odd": "{", "u.0.0": "[]"}))
    assert shard.uid == "map-uid"
    assert shard.entries == (good,)
    assert [one.key for one in shard.unreadable] == ["odd", "u.0.0"]
    assert "odd" in shard.unreadable[0].reason
    assert sorted(shard.keys) == sorted([good.key, "odd", "u.0.0"])


def test_an_empty_map_and_a_deleted_one_show_nothing() -> None:
    assert shard_of(config_map(None)).keys == []
    good = entry(1)
    gone = shard_of(config_map({good.key: encode_entry(good)}), is_deleted=True)
    assert (gone.uid, gone.keys) == ("map-uid", [])


@pytest.mark.parametrize(
    "change", [{"size": 2**31}, {"attempt": -1}, {"namespace": "a\x00b"}, {"message": "\x00"}]
)
def test_what_the_database_cannot_hold_is_unreadable(change: dict[str, Any]) -> None:
    good = entry(1)
    text = json.dumps(json.loads(encode_entry(good)) | change)
    shard = shard_of(config_map({good.key: text}))
    assert shard.entries == ()
    assert [one.key for one in shard.unreadable] == [good.key]


def test_tombstones_wait_until_they_are_recorded() -> None:
    dead = entry(1, phase=Phase.RELEASED, released_at=NOW)
    entries = (entry(0), dead, replace(dead, uid="other", recorded=True))
    assert tombstones(entries) == [dead.key]
