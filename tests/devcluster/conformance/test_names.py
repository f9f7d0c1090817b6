"""Names and metadata: generated, refused, allowed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.kinds import config_map, maps

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api


async def test_a_generated_name_begins_with_its_prefix(api: Api, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}}
    names = {
        (await api.create(maps(namespace), body)).ok(201)["metadata"]["name"] for _ in range(5)
    }
    assert len(names) == 5
    assert all(re.fullmatch(r"gen-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


async def test_a_long_generate_name_is_cut_to_fit(api: Api, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x" * 100}}
    made = (await api.create(maps(namespace), body)).ok(201)
    assert len(made["metadata"]["name"]) == 63


async def test_an_object_without_a_name_is_refused(api: Api, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}
    status = (await api.create(maps(namespace), body)).refused(422, "Invalid")
    assert "metadata.name: Required value: name or generateName is required" in status["message"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Upper", "a lowercase RFC 1123 subdomain must consist of"),
        ("under_score", "a lowercase RFC 1123 subdomain must consist of"),
        ("-front", "a lowercase RFC 1123 subdomain must consist of"),
        ("x" * 254, "must be no more than 253 "),
    ],
    ids=["upper", "underscore", "dash", "long"],
)
async def test_a_bad_name_is_422(api: Api, namespace: str, name: str, message: str) -> None:
    status = (await api.create(maps(namespace), config_map(name))).refused(422, "Invalid")
    cause = status["details"]["causes"][0]
    assert cause["reason"] == "FieldValueInvalid"
    assert cause["field"] == "metadata.name"
    assert message in cause["message"]
    assert status["details"]["name"] == name
    assert status["details"]["kind"] == "ConfigMap"
    assert status["message"].startswith(f'ConfigMap "{name}" is invalid: metadata.name: Invalid')


async def test_names_with_dots_and_253_characters_are_allowed(api: Api, namespace: str) -> None:
    name = "a." + "x" * 251
    (await api.create(maps(namespace), config_map(name))).ok(201)


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"labels": {"a b": "c"}}, "metadata.labels"),
        ({"labels": {"a": "c d"}}, "metadata.labels"),
        ({"labels": {"a": "x" * 64}}, "metadata.labels"),
        ({"annotations": {"a b": "c"}}, "metadata.annotations"),
        ({"annotations": {"a": "x" * 262145}}, "metadata.annotations"),
        ({"finalizers": ["nodomain"]}, "metadata.finalizers"),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]},
            "metadata.ownerReferences",
        ),
    ],
    ids=["key", "value", "long-value", "annotation", "big-annotation", "finalizer", "owner"],
)
async def test_bad_metadata_is_422(
    api: Api, namespace: str, metadata: dict[str, Any], field: str
) -> None:
    status = (await api.create(maps(namespace), config_map("a", **metadata))).refused(
        422, "Invalid"
    )
    assert status["details"]["causes"][0]["field"].startswith(field)
