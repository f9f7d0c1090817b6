"""The store and its indexes agree, whatever comes and goes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipuhub.kube.informer import IndexedStore, key_of


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "x", "labels": labels}}


def by_job(manifest: dict[str, Any]) -> list[str]:
    job = manifest["metadata"]["labels"].get("job")
    return [job] if job else []


def names(manifests: list[dict[str, Any]]) -> list[str]:
    return [manifest["metadata"]["name"] for manifest in manifests]


def test_objects_are_found_by_key_and_by_index() -> None:
    store = IndexedStore({"job": by_job})
    store.put(pod("a", job="1"))
    store.put(pod("b", job="1"))
    store.put(pod("c"))
    assert names(store.by_index("job", "1")) == ["a", "b"]
    assert store.by_index("job", "none") == []
    assert store.get(("x", "c")) == pod("c")
    assert store.get(("y", "c")) is None
    assert len(store) == 3


def test_an_object_that_changes_its_index_value_leaves_the_old_one() -> None:
    store = IndexedStore({"job": by_job})
    store.put(pod("a", job="1"))
    store.put(pod("a", job="2"))
    assert store.by_index("job", "1") == []
    assert names(store.by_index("job", "2")) == ["a"]
    assert store.remove(("x", "a")) == pod("a", job="2")
    assert store.by_index("job", "2") == []
    assert store.remove(("x", "a")) is None


def test_an_unknown_index_is_a_programming_error_that_names_the_known_ones() -> None:
    with pytest.raises(KeyError, match="no index 'jobs'"):
        IndexedStore({"job": by_job}).by_index("jobs", "1")


def test_cluster_wide_objects_have_an_empty_namespace() -> None:
    assert key_of({"metadata": {"name": "n"}}) == ("", "n")


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.sampled_from(["", "1", "2"]))))
def test_an_index_always_equals_a_scan_of_all_objects(
    steps: list[tuple[bool, str, str]],
) -> None:
    store = IndexedStore({"job": by_job})
    for keep, name, job in steps:
        if keep:
            store.put(pod(name, job=job))
        else:
            store.remove(("x", name))
        for value in ("1", "2"):
            want = sorted(names([m for m in store.all() if by_job(m) == [value]]))
            assert sorted(names(store.by_index("job", value))) == want
