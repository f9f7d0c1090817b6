"""What was applied of a job, out of what its manifest says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.history.specs import LAST_APPLIED, applied_of
from tests.builders.ipujobs import ipujob


def job(**metadata: Any) -> dict[str, Any]:
    made = ipujob().build()
    made["metadata"] |= metadata
    return made


def test_kubectl_apply_leaves_what_it_applied() -> None:
    given = {"kind": "IPUJob", "spec": {"ipusPerJobInstance": "2"}}
    found = applied_of(job(annotations={LAST_APPLIED: json.dumps(given)}))
    assert (found.manifest, found.by) == (given, "kubectl apply")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"spec": 1}', "[" * 100_000])
def test_an_annotation_that_says_nothing_is_none(text: str) -> None:
    made = job(annotations={LAST_APPLIED: text})
    found = applied_of(made)
    assert (found.manifest["spec"], found.by) == (made["spec"], "")


def test_server_side_apply_owns_fields_and_items_of_lists() -> None:
    item = 'k:{"name":"main"}'
    fields = {
        "f:ipusPerJobInstance": {},
        "f:workers": {
            "f:template": {
                "f:spec": {"f:containers": {item: {".": {}, "f:image": {}, "f:name": {}}}}
            }
        },
    }
    entries = [
        {"manager": "argocd", "operation": "Apply", "fieldsV1": {"f:spec": fields}},
        {"manager": "ada", "operation": "Apply", "fieldsV1": {"f:spec": {"f:jobInstances": {}}}},
        {"manager": "hook", "operation": "Update", "fieldsV1": {"f:spec": {"f:launcher": {}}}},
        {
            "manager": "operator",
            "operation": "Apply",
            "subresource": "status",
            "fieldsV1": {"f:spec": {"f:launcher": {}}},
        },
    ]
    made = job(managedFields=entries)
    container = {"name": "main", "image": "app:1"}
    other = {"name": "sidecar", "image": "side:1"}
    pods = {"spec": {"containers": [container | {"tty": True}, other], "hostNetwork": False}}
    made["spec"] = {
        "ipusPerJobInstance": "4",
        "jobInstances": 2,
        "launcher": {"command": ["x"]},
        "workers": {"template": pods},
    }
    found = applied_of(made)
    assert found.by == "server-side apply of ada, argocd"
    assert found.manifest["spec"] == {
        "ipusPerJobInstance": "4",
        "jobInstances": 2,
        "workers": {"template": {"spec": {"containers": [container]}}},
    }


@pytest.mark.parametrize("broken", [None, {}, [1], [{"operation": "Apply", "fieldsV1": 3}]])
def test_managed_fields_of_no_use_are_none(broken: Any) -> None:
    assert applied_of(job(managedFields=broken)).by == ""
