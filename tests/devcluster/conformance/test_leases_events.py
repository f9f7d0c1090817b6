"""Leases under two clients, and Events as kubectl shows them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.kinds import config_map, maps, pod, pods

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl


def leases(namespace: str, name: str = "") -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return f"{path}/{name}" if name else path


def lease(holder: str, **spec: Any) -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lock"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, **spec},
    }


async def test_of_two_that_take_a_lease_one_wins(api: Api, namespace: str) -> None:
    made = (await api.create(leases(namespace), lease("nobody"))).ok(201)
    version = made["metadata"]["resourceVersion"]

    async def take(holder: str) -> int:
        body = lease(holder)
        body["metadata"]["resourceVersion"] = version
        return (await api.replace(leases(namespace, "lock"), body)).status

    results = await asyncio.gather(*(take(f"client-{number}") for number in range(5)))
    assert sorted(results) == [200, 409, 409, 409, 409]
    winner = (await api.get(leases(namespace, "lock"))).ok(200)["spec"]["holderIdentity"]
    assert results[int(winner.removeprefix("client-"))] == 200


async def test_of_two_that_make_a_lease_one_wins(api: Api, namespace: str) -> None:
    answers = await asyncio.gather(
        *(api.create(leases(namespace), lease(f"client-{number}")) for number in range(4))
    )
    assert sorted(answer.status for answer in answers) == [201, 409, 409, 409]


async def test_an_update_of_a_lease_without_a_version_is_refused(api: Api, namespace: str) -> None:
    (await api.create(leases(namespace), lease("a"))).ok(201)
    answer = await api.replace(leases(namespace, "lock"), lease("b"))
    status = answer.refused(422, "Invalid")
    assert "metadata.resourceVersion: Invalid value" in status["message"]
    assert "must be specified for an update" in status["message"]


async def test_micro_times_are_kept_to_the_microsecond(api: Api, namespace: str) -> None:
    time = "2026-01-02T03:04:05.678901Z"
    made = (await api.create(leases(namespace), lease("a", renewTime=time))).ok(201)
    assert made["spec"]["renewTime"] == time


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"leaseDurationSeconds": 0}, "spec.leaseDurationSeconds"),
        ({"leaseTransitions": -1}, "spec.leaseTransitions"),
    ],
    ids=["duration", "transitions"],
)
async def test_a_bad_lease_is_422(api: Api, namespace: str, spec: Json, field: str) -> None:
    status = (await api.create(leases(namespace), lease("a", **spec))).refused(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == field


def event(name: str, regarding: Json, **more: Any) -> Json:
    metadata = regarding["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {
            "apiVersion": regarding["apiVersion"],
            "kind": regarding["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "reason": "Tried",
        "message": "It was tried.",
        "type": "Normal",
        "source": {"component": "conformance"},
        "firstTimestamp": metadata["creationTimestamp"],
        "lastTimestamp": metadata["creationTimestamp"],
        "count": 1,
        **more,
    }


def events(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/events"


EVENT_FIELDS: dict[str, tuple[str, str]] = {
    "kind": ("involvedObject.kind=ConfigMap", "ab"),
    "name": ("involvedObject.name=first", "a"),
    "uid": ("involvedObject.uid={uid}", "a"),
    "namespace": ("involvedObject.namespace={namespace}", "ab"),
    "reason": ("reason=Tried", "a"),
    "type": ("type=Warning", "b"),
    "not-type": ("type!=Warning", "a"),
    "together": ("involvedObject.name=second,type=Warning", "b"),
    "source": ("source=conformance", "ab"),
    "nothing": ("involvedObject.name=third", ""),
}


@pytest.mark.parametrize("row", EVENT_FIELDS)
async def test_events_are_found_by_field(api: Api, namespace: str, row: str) -> None:
    selector, want = EVENT_FIELDS[row]
    first = (await api.create(maps(namespace), config_map("first"))).ok(201)
    second = (await api.create(maps(namespace), config_map("second"))).ok(201)
    (await api.create(events(namespace), event("a", first))).ok(201)
    warning = event("b", second, type="Warning", reason="Failed")
    (await api.create(events(namespace), warning)).ok(201)
    selector = selector.format(uid=first["metadata"]["uid"], namespace=namespace)
    found = (await api.get(events(namespace), fieldSelector=selector)).ok(200)
    assert "".join(item["metadata"]["name"] for item in found["items"]) == want


async def test_an_event_is_counted_up_by_a_patch(api: Api, namespace: str) -> None:
    about = (await api.create(maps(namespace), config_map("first"))).ok(201)
    (await api.create(events(namespace), event("a", about))).ok(201)
    patch = {"count": 2, "lastTimestamp": "2026-01-01T00:00:00Z"}
    made = (await api.patch(f"{events(namespace)}/a", patch, "strategic")).ok(200)
    assert made["count"] == 2
    assert made["lastTimestamp"] == "2026-01-01T00:00:00Z"


async def test_an_event_lies_in_the_namespace_of_its_object(api: Api, namespace: str) -> None:
    about = (await api.create(maps(namespace), config_map("first"))).ok(201)
    about["metadata"]["namespace"] = "default"
    status = (await api.create(events(namespace), event("a", about))).refused(422, "Invalid")
    assert "involvedObject.namespace" in status["message"]


async def test_kubectl_describe_shows_the_events_of_a_pod(
    api: Api, kubectl: Kubectl, pod_namespace: str
) -> None:
    body = pod("a", schedulerName="nobody")
    made = (await api.create(pods(pod_namespace), body)).ok(201)
    (await api.create(events(pod_namespace), event("a", made))).ok(201)
    output = kubectl.run("describe", "pod", "a", "-n", pod_namespace)
    table = output[output.index("Events:") :]
    assert table.split()[:6] == ["Events:", "Type", "Reason", "Age", "From", "Message"]
    assert "Tried" in table
    assert "conformance" in table
    assert "It was tried." in table


async def test_kubectl_lists_events_of_one_object(
    api: Api, kubectl: Kubectl, namespace: str
) -> None:
    about = (await api.create(maps(namespace), config_map("first"))).ok(201)
    (await api.create(events(namespace), event("a", about))).ok(201)
    output = kubectl.run("events", "-n", namespace, "--for", "configmap/first")
    lines = output.splitlines()
    assert lines[0].split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert lines[1].split()[1:4] == ["Normal", "Tried", "ConfigMap/first"]
