"""Custom resources: schemas, defaults, status, scale, generations, the end of a CRD."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TOYS = "/apis/example.com/v1/namespaces/default/toys"


def crd() -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "replicas": {"type": "integer"},
            "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    status["properties"]["replicas"] = {"type": "integer"}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
            },
        },
    }
    names = {"plural": "toys", "kind": "Toy", "shortNames": ["ty"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "toys.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


def toy(name: str = "a", **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": name}}
    return {**head, "spec": {"size": 1, **spec}}


@pytest.fixture
async def toys(http: Any) -> Any:
    await http.make(CRDS, crd())
    while (await http.get(TOYS)).status != 200:
        await asyncio.sleep(0.05)
    return http


async def test_a_crd_is_established_and_served_at_once(toys):
    body = (await toys.get(f"{CRDS}/toys.example.com")).body
    conditions = {c["type"]: c["status"] for c in body["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert body["status"]["acceptedNames"]["listKind"] == "ToyList"
    listed = (await toys.get(TOYS)).body
    assert (listed["kind"], listed["items"]) == ("ToyList", [])


async def test_a_crd_that_nobody_could_serve_is_refused(http):
    body = crd()
    version = body["spec"]["versions"][0]
    version["storage"] = False
    answer = await http.call("POST", CRDS, body)
    assert answer.status == 422
    assert "exactly one version" in answer.body["message"]
    version |= {"storage": True, "schema": {}}
    assert (await http.call("POST", CRDS, body)).status == 422


async def test_defaults_are_filled_in_and_unknown_fields_dropped_but_not_in_templates(toys):
    body = await toys.make(TOYS, toy(wrong=1, template={"anything": {"goes": 1}}))
    assert body["spec"] == {"size": 1, "colour": "red", "template": {"anything": {"goes": 1}}}


async def test_an_unknown_field_is_warned_of_or_refused_as_the_client_asks(toys):
    warned = await toys.call("POST", TOYS, toy("a", wrong=1))
    assert warned.headers["Warning"] == '299 - "unknown field \\"spec.wrong\\""'
    strict = await toys.call("POST", f"{TOYS}?fieldValidation=Strict", toy("b", wrong=1))
    assert strict.status == 400
    assert 'strict decoding error: unknown field "spec.wrong"' in strict.body["message"]
    ignored = await toys.call("POST", f"{TOYS}?fieldValidation=Ignore", toy("c", wrong=1))
    assert "Warning" not in ignored.headers


async def test_faults_are_named_in_the_api_servers_words(toys):
    answer = await toys.call("POST", TOYS, toy(size=0, colour="green"))
    assert answer.status == 422
    assert answer.body["message"].startswith('Toy.example.com "a" is invalid: ')
    assert (
        'spec.colour: Unsupported value: "green": supported values: "red", "blue"'
        in answer.body["message"]
    )
    assert {c["field"] for c in answer.body["details"]["causes"]} == {"spec.size", "spec.colour"}


async def test_metadata_of_a_wrong_type_is_refused_not_a_crash(toys):
    bad = toy()
    bad["metadata"]["labels"] = {"a": 1}
    assert (await toys.call("POST", TOYS, bad)).status == 400
    bad["metadata"] = {"name": 5}
    assert (await toys.call("POST", TOYS, bad)).status == 400


async def test_the_generation_counts_changes_of_the_spec_only(toys):
    assert (await toys.make(TOYS, toy()))["metadata"]["generation"] == 1

    async def generation(path: str, patch: dict[str, Any]) -> int:
        return (await toys.patch(path, patch)).body["metadata"]["generation"]

    assert await generation(f"{TOYS}/a", {"metadata": {"labels": {"x": "1"}}}) == 1
    assert await generation(f"{TOYS}/a/status", {"status": {"phase": "Running"}}) == 1
    assert await generation(f"{TOYS}/a", {"spec": {"size": 2}}) == 2
    await toys.patch(f"{TOYS}/a", {"metadata": {"finalizers": ["example.com/x"]}})
    await toys.delete(f"{TOYS}/a")
    assert (await toys.get(f"{TOYS}/a")).body["metadata"]["generation"] == 3


async def test_status_and_spec_change_through_their_own_paths_only(toys):
    body = toy()
    body["status"] = {"phase": "Running"}
    assert "status" not in await toys.make(TOYS, body)
    patch = {"status": {"phase": "Done"}, "spec": {"size": 9}}
    patch["metadata"] = {"labels": {"x": "1"}}
    after = (await toys.patch(f"{TOYS}/a/status", patch)).body
    assert (after["status"], after["spec"]["size"]) == ({"phase": "Done"}, 1)
    assert "labels" not in after["metadata"]
    after = (await toys.patch(f"{TOYS}/a", {"status": {"phase": "x"}})).body
    assert after["status"] == {"phase": "Done"}


async def test_scale_reads_and_writes_the_paths_of_the_crd(toys):
    await toys.make(TOYS, toy(replicas=2))
    await toys.patch(f"{TOYS}/a/status", {"status": {"replicas": 1}})
    scale = (await toys.get(f"{TOYS}/a/scale")).body
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 1})
    await toys.patch(f"{TOYS}/a/scale", {"spec": {"replicas": 5}})
    body = (await toys.get(f"{TOYS}/a")).body
    assert (body["spec"]["replicas"], body["metadata"]["generation"]) == (5, 2)
    scale["spec"]["replicas"] = 3
    assert (await toys.call("PUT", f"{TOYS}/a/scale", scale)).status == 409


async def test_a_replacement_needs_the_resource_version(toys):
    await toys.make(TOYS, toy())
    answer = await toys.call("PUT", f"{TOYS}/a", toy(size=2))
    assert answer.status == 422
    assert "must be specified for an update" in answer.body["message"]


async def test_custom_resources_know_no_strategic_patch(toys):
    await toys.make(TOYS, toy())
    answer = await toys.patch(f"{TOYS}/a", {"spec": {"size": 2}}, "strategic-merge-patch")
    assert answer.status == 415


async def test_a_deleted_crd_takes_its_objects_with_it(toys):
    body = toy()
    body["metadata"]["finalizers"] = ["example.com/x"]
    await toys.make(TOYS, body)
    await toys.delete(f"{CRDS}/toys.example.com")
    assert (await toys.get(f"{CRDS}/toys.example.com")).body["metadata"]["deletionTimestamp"]
    await toys.patch(f"{TOYS}/a", {"metadata": {"finalizers": None}})
    await toys.until_gone(f"{CRDS}/toys.example.com")
    assert (await toys.get(TOYS)).status == 404
    await toys.make(CRDS, crd())
    assert (await toys.get(TOYS)).body["items"] == []
