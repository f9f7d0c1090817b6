"""Strategic merge patches; the results were taken from a 1.20 API server."""

from __future__ import annotations

import copy

import pytest
from hypothesis import strategies as st

from devcluster.status import StatusError
from devcluster.storage.patch import STRATEGIC_PATCH, apply_patch

_KEYS = {
    "metadata.finalizers": "",
    "spec.containers": "name",
    "spec.containers.env": "name",
    "spec.containers.ports": "containerPort",
    "spec.volumes": "name",
    "spec.imagePullSecrets": "name",
}
_OBJECT = {
    "metadata": {"finalizers": ["x.io/a", "x.io/b"], "annotations": {"k": "v"}},
    "spec": {
        "containers": [
            {
                "name": "one",
                "image": "i1",
                "args": ["a", "b"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [
                    {"containerPort": 80, "protocol": "TCP"},
                    {"containerPort": 81, "protocol": "UDP"},
                ],
            },
            {"name": "two", "image": "i2"},
        ],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c"}}],
        "imagePullSecrets": [{"name": "s1"}],
    },
}


def _patched(patch):
    before = copy.deepcopy(_OBJECT)
    result = apply_patch(_OBJECT, patch, STRATEGIC_PATCH, _KEYS)
    assert before == _OBJECT
    return result


def _containers(patch):
    return [
        (item["name"], item["image"]) for item in _patched({"spec": patch})["spec"]["containers"]
    ]


def test_inner_lists_of_a_merged_item_follow_their_own_rule():
    patch = {
        "name": "one",
        "args": ["c"],
        "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "x"}],
        "ports": [{"containerPort": 81, "protocol": "TCP"}],
    }
    one = _patched({"spec": {"containers": [patch]}})["spec"]["containers"][0]
    assert one["args"] == ["c"]
    assert [(item["name"], item["value"]) for item in one["env"]] == [
        ("A", "1"),
        ("B", "3"),
        ("C", "x"),
    ]
    assert one["ports"] == [
        {"containerPort": 80, "protocol": "TCP"},
        {"containerPort": 81, "protocol": "TCP"},
    ]


def test_a_list_without_a_merge_key_is_replaced():
    patched = _patched({"spec": {"tolerations": [{"key": "z"}]}})
    assert patched["spec"]["tolerations"] == [{"key": "z"}]


def test_retain_keys_drops_the_other_members_of_a_union():
    volume = {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}
    patched = _patched({"spec": {"volumes": [volume]}})
    assert patched["spec"]["volumes"][0] == {"name": "v", "hostPath": {"path": "/x"}}


def test_texts_merge_as_a_set():
    patched = _patched({"metadata": {"finalizers": ["x.io/c", "x.io/a"]}})
    assert patched["metadata"]["finalizers"] == ["x.io/a", "x.io/b", "x.io/c"]


def test_texts_are_deleted_by_their_directive():
    patch = {
        "$deleteFromPrimitiveList/finalizers": ["x.io/a"],
        "$setElementOrder/finalizers": ["x.io/b"],
    }
    assert _patched({"metadata": patch})["metadata"]["finalizers"] == ["x.io/b"]


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        ({"$patch": "replace", "q": "r"}, {"q": "r"}),
        ({"$patch": "delete"}, {}),
        ({"$patch": "merge", "q": "r"}, {"k": "v", "q": "r"}),
        ({"k": None, "nope": None}, {}),
    ],
)
def test_maps_merge_replace_or_empty_by_directive(annotations, want):
    assert _patched({"metadata": {"annotations": annotations}})["metadata"]["annotations"] == want


def test_what_the_object_did_not_have_arrives_without_nulls_and_directives():
    patch = {
        "affinity": {"a": None, "b": {"$patch": "replace", "c": 1}, "$retainKeys": ["b"]},
        "initContainers": [
            {"name": "x", "$patch": "delete"},
            {"$patch": "replace"},
            {"name": "i", "image": None},
        ],
    }
    spec = _patched({"spec": patch})["spec"]
    assert spec["affinity"] == {"b": {"c": 1}}
    assert spec["initContainers"] == [{"name": "i"}]


@pytest.mark.parametrize(
    ("patch", "want_status", "want_message"),
    [
        (
            {"spec": {"containers": [{"image": "n"}]}},
            500,
            "map: map[image:n] does not contain declared merge key: name",
        ),
        (
            {"metadata": {"annotations": {"$patch": "bogus"}}},
            500,
            "unknown patch type: bogus in map: map[$patch:bogus]",
        ),
        (
            {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "hostPath": {}}]}},
            400,
            "invalid patch format of retainKeys",
        ),
        ({"metadata": {"finalizers": [{}]}}, 400, "invalid patch format of primitive list"),
        (
            {"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}},
            400,
            "invalid patch format of primitive list",
        ),
        (
            {"spec": {"containers": ["x"]}},
            500,
            "expected a map in a list merged by name, found x",
        ),
    ],
)
def test_a_malformed_patch_is_refused_in_the_servers_words(patch, want_status, want_message):
    with pytest.raises(StatusError) as caught:
        _patched(patch)
    assert (caught.value.code, caught.value.message) == (want_status, want_message)


_NAMES = st.lists(st.sampled_from("abcdef"), unique=True, max_size=5)
_ITEMS = st.dictionaries(st.sampled_from(["image", "cpu"]), st.integers(0, 2))


def _objects():
    containers = st.tuples(_NAMES, st.lists(_ITEMS, min_size=5, max_size=5)).map(
        lambda pair: [{"name": name, **item} for name, item in zip(pair[0], pair[1], strict=False)]
    )
    return st.fixed_dictionaries(
        {
            "spec": st.fixed_dictionaries({"containers": containers}),
            "metadata": st.fixed_dictionaries({"finalizers": _NAMES}),
        }
    )


def _diff_as_kubectl_does(old, new):
    """A two-way strategic patch: deletions as directives, the wanted order beside them."""
    before = {item["name"]: item for item in old["spec"]["containers"]}
    after = {item["name"]: item for item in new["spec"]["containers"]}
    changed = []
    for name, item in after.items():
        known = before.get(name, {})
        delta = {key: value for key, value in item.items() if known.get(key) != value}
        delta.update({key: None for key in known if key not in item})
        if name not in before or delta:
            changed.append({**delta, "name": name})
    gone = [{"name": name, "$patch": "delete"} for name in before if name not in after]
    old_texts, new_texts = old["metadata"]["finalizers"], new["metadata"]["finalizers"]
    return {
        "spec": {
            "containers": changed + gone,
            "$setElementOrder/containers": [{"name": name} for name in after],
        },
        "metadata": {
            "finalizers": [text for text in new_texts if text not in old_texts],
            "$deleteFromPrimitiveList/finalizers": [
                text for text in old_texts if text not in new_texts
            ],
            "$setElementOrder/finalizers": new_texts,
        },
    }
