"""Pods, Nodes and Leases with fields of wrong types: every reader gets by without them."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from dashboard.components import Signs, by_lease
from ipuhub.kube.leaderelection import LeaderElection
from ipuhub.kube.resources import CONFIG_MAPS, LEASES, NODES, PODS
from ipuhub.kube.shapes import NAME, read_object
from ipuhub.recording.reading import Decoder, Reader
from jobs.operator.ownership import controller_of, trim_node, trim_pod
from jobs.operator.pods import from_manifest, trouble_of_node
from partitions.proxy.nodes.informer import _labels, node_of, shown_node, trimmed_node
from partitions.proxy.nodes.visibility import Count, plan_visibility
from tests.builders.mutations import paths_of, with_value
from usage.legacy.patches import ClusterObjects, legacy_patches
from usage.pods.recorder import PodRecorder, PodSelection

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipuhub.kube.resources import Manifest, Resource

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
AT = "2026-05-04T11:00:00Z"
META = {
    "name": "a",
    "namespace": "x",
    "uid": "u",
    "resourceVersion": "7",
    "creationTimestamp": AT,
    "labels": {"graphcore.ai/role": "worker", "ipu": "yes"},
    "annotations": {"ipuhub.io/usage": "{}", "ipuhub.io/advertised-by": "me"},
    "ownerReferences": [{"kind": "IPUJob", "name": "j", "uid": "o", "controller": True}],
}
STATES: list[dict[str, Any]] = [
    {"waiting": {"reason": "ImagePullBackOff", "message": "no"}},
    {"running": {"startedAt": AT}},
    {"terminated": {"exitCode": 1, "reason": "Error", "startedAt": AT, "finishedAt": AT}},
]
CONDITIONS = [
    {"type": "Ready", "status": "False", "reason": "No", "message": "m", "lastTransitionTime": AT},
    {"type": "PodScheduled", "status": "True", "lastTransitionTime": AT},
]
CONTAINERS = [{"name": "c", "restartPolicy": "Always", "resources": {"limits": {"memory": "1Gi"}}}]


def _pod(state: dict[str, Any], phase: str) -> Manifest:
    statuses = [{"name": "c", "image": "i", "state": state}]
    return {
        "kind": "Pod",
        "metadata": META,
        "spec": {
            "nodeName": "n",
            "activeDeadlineSeconds": 9,
            "initContainers": [{**CONTAINERS[0], "name": "i"}],
            "containers": CONTAINERS,
        },
        "status": {
            "phase": phase,
            "reason": "Evicted",
            "startTime": AT,
            "conditions": CONDITIONS,
            "initContainerStatuses": [{"name": "i", "image": "i", "state": STATES[2]}],
            "containerStatuses": statuses,
        },
    }


NODE: Manifest = {
    "kind": "Node",
    "metadata": META,
    "spec": {"unschedulable": True},
    "status": {
        "conditions": CONDITIONS,
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "capacity": {"graphcore.ai/ipu": "4"},
        "allocatable": {"graphcore.ai/ipu": "4"},
    },
}
LEASE: Manifest = {
    "kind": "Lease",
    "metadata": META,
    "spec": {
        "holderIdentity": "h",
        "acquireTime": AT,
        "renewTime": AT,
        "leaseDurationSeconds": 15,
        "leaseTransitions": 3,
    },
}


def _by_operator(pod: Manifest) -> None:
    from_manifest(trim_pod(pod))
    from_manifest(pod)
    controller_of(pod)


def _by_nodes_of_operator(node: Manifest) -> None:
    trouble_of_node(trim_node(node))


def _by_proxy(node: Manifest) -> None:
    trimmed = trimmed_node(node)
    node_of(trimmed)
    list(_labels(trimmed))
    count = Count("ipu=yes", 4, 4)
    plan_visibility([shown_node(trimmed)], [count], "me", on_masters=True)


def _by_dashboard(lease: Manifest) -> None:
    by_lease("operator", Signs(lease), NOW)


def _by_election(lease: Manifest) -> None:
    election = LeaderElection(None, "x", "a", "me")  # type: ignore[arg-type]
    spec = lease.get("spec") or {}
    election._may_take(spec)
    election._spec(spec)


def _by_patches(pod: Manifest) -> None:
    list(legacy_patches(ClusterObjects(pods=[pod], everything=True)))


PODS_OF = [
    _pod(state, phase)
    for state, phase in zip(STATES, ("Pending", "Running", "Failed"), strict=True)
]
READERS: list[tuple[Resource, Manifest, Callable[[Manifest], None]]] = [
    *((PODS, pod, _by_operator) for pod in PODS_OF),
    (PODS, PODS_OF[1], _by_patches),
    (NODES, NODE, _by_nodes_of_operator),
    (NODES, NODE, _by_proxy),
    (LEASES, LEASE, _by_dashboard),
    (LEASES, LEASE, _by_election),
]
WRONG: list[Any] = [None, "x", 10**400, True, [None], [[]], {"x": 1}]


@pytest.mark.parametrize(("resource", "sound", "reader"), READERS)
def test_every_reader_gets_by_with_a_wrong_value_in_any_place(
    resource: Resource, sound: Manifest, reader: Callable[[Manifest], None]
) -> None:
    reader(sound)
    for path in [*paths_of(sound)][1:]:
        for value in WRONG:
            read = read_object(resource, with_value(sound, path, value)).manifest
            if read is not None:
                reader(read)


@pytest.mark.parametrize("pod", PODS_OF)
def test_a_recorder_makes_a_fault_of_a_wrong_value_in_any_place(pod: Manifest) -> None:
    decoder, reader = (
        Decoder(PodRecorder.manifest),
        Reader(PodRecorder(PodSelection(all_pods=True))),
    )
    for path in [*paths_of(pod)][1:]:
        if path[:2] == ("metadata", "resourceVersion") or path == ("metadata",):
            continue  # a line without a version is no event: the watch begins again
        for value in WRONG:
            text = json.dumps({"type": "MODIFIED", "object": with_value(pod, path, value)})
            batch = reader.read([decoder.line(text.encode())], NOW)
            assert len(batch.rows) + len(batch.faults) > 0


@pytest.mark.parametrize(("resource", "sound"), [(r, m) for r, m, _ in READERS])
def test_a_sound_object_is_returned_as_it_is(resource: Resource, sound: Manifest) -> None:
    before = copy.deepcopy(sound)
    read = read_object(resource, sound)
    assert read.manifest is sound
    assert read.manifest == before
    assert read.malformed == ()


@pytest.mark.parametrize(
    ("resource", "sound", "path", "value", "want"),
    [
        (PODS, PODS_OF[1], ("spec",), "x", "spec"),
        (PODS, PODS_OF[1], ("spec", "containers"), {}, "spec.containers"),
        (PODS, PODS_OF[1], ("status", "conditions"), "x", "status.conditions"),
        (PODS, PODS_OF[1], ("status", "conditions", 0), None, "status.conditions[0]"),
        (PODS, PODS_OF[1], ("metadata", "labels", "ipu"), 1, "metadata.labels.ipu"),
        (NODES, NODE, ("spec", "unschedulable"), "no", "spec.unschedulable"),
        (LEASES, LEASE, ("spec", "renewTime"), 5, "spec.renewTime"),
        (LEASES, LEASE, ("spec", "leaseTransitions"), 10**30, "spec.leaseTransitions"),
    ],
)
def test_what_is_dropped_is_named(
    resource: Resource, sound: Manifest, path: tuple[str | int, ...], value: object, want: str
) -> None:
    read = read_object(resource, with_value(sound, path, value))
    assert read.malformed == (want,)
    assert read.manifest is not None
    assert read.manifest["metadata"]["name"] == "a"


def test_a_null_is_a_missing_field() -> None:
    read = read_object(PODS, with_value(PODS_OF[1], ("spec",), None))
    assert read.malformed == ()
    assert read.manifest is not None
    assert "spec" not in read.manifest


@pytest.mark.parametrize("found", [None, [], "x", {}, {"metadata": {}}, {"metadata": {"name": 1}}])
def test_an_object_without_a_name_is_none(found: object) -> None:
    assert read_object(PODS, found) == (None, (NAME,))


def test_other_kinds_are_not_judged() -> None:
    found = {"spec": 5}
    assert read_object(CONFIG_MAPS, found) == (found, ())
    assert read_object(CONFIG_MAPS, "x") == (None, (NAME,))
