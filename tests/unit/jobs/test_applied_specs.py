"""The applied spec of a job, read from its manifest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.history.specs import applied_of, in_effect
from jobs.ipujob.names import LABEL_JOB_NAME, LAST_APPLIED
from tests.builders.ipujobs import ipujob


def job(**metadata: Any) -> dict[str, Any]:
    made = ipujob().build()
    made["metadata"] |= metadata
    return made


def test_kubectl_apply_leaves_what_it_applied() -> None:
    given = {"kind": "IPUJob", "spec": {"ipusPerJobInstance": "2"}}
    found = applied_of(job(annotations={LAST_APPLIED: json.dumps(given)}))
    assert (found.manifest, found.by) == (given, "kubectl apply")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"spec": 1}',
        "[" * 100_000,
        '{"spec": {"a": ' + "[" * 150 + "]" * 150 + "}}",
        '{"spec": {"a": NaN}}',
        '{"spec": {"a": -Infinity}}',
        '{"spec": {"a": 1e999}}',
        '{"spec": {"a": ' + "9" * 5000 + "}}",
    ],
    ids=lambda text: text[:24],
)
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


def test_fields_without_end_and_items_without_keys_are_none() -> None:
    endless: dict[str, Any] = {}
    for _ in range(5000):
        endless = {"f:spec": endless}
    entry = {"operation": "Apply", "fieldsV1": endless}
    assert applied_of(job(managedFields=[entry])).by == ""
    fields = {"f:spec": {"f:list": {"k:5": {}, "k:[": {}, f"v:{'[' * 100_000}": {}}}}
    made = job(managedFields=[{"operation": "Apply", "fieldsV1": fields}])
    made["spec"] = {"list": [{"name": "x"}]}
    assert applied_of(made).manifest["spec"] == {"list": []}


def test_text_that_postgresql_refuses_is_replaced() -> None:
    text = '{"spec": {"a\\u0000b": ["\\ud800", "\\ud83d\\ude00"]}}'
    found = applied_of(job(annotations={LAST_APPLIED: text}))
    assert found.manifest == {"spec": {"a\ufffdb": ["\ufffd", "😀"]}}


def test_a_job_without_that_annotation_keeps_its_labels_and_not_those_of_its_pods() -> None:
    own = {"kueue.x-k8s.io/queue-name": "research", "team": "vision"}
    assert applied_of(job(labels=own | {LABEL_JOB_NAME: "a"})).manifest["metadata"] == {
        "name": "sample",
        "namespace": "default",
        "labels": own,
    }
    fields = {"f:metadata": {"f:labels": {"f:team": {}}}, "f:spec": {"f:jobInstances": {}}}
    entries = [{"manager": "argocd", "operation": "Apply", "fieldsV1": fields}]
    found = applied_of(job(labels=own, managedFields=entries)).manifest
    assert found["metadata"]["labels"] == {"team": "vision"}


@pytest.mark.parametrize("state", ["Running", "Restarting"])
def test_an_invalid_edit_of_a_running_job_changes_only_the_valid_policies(state: str) -> None:
    made = job(generation=2)
    made["spec"] |= {"workersPerJobInstance": -1, "activeDeadlineSeconds": 60}
    made["spec"] |= {"restartPolicy": {"type": "Sometimes"}}
    status = {"launcherStatus": state, "observedGeneration": 2}
    found = in_effect(made, status, "InvalidSpec")
    assert not found.is_whole
    assert found.policies["activeDeadlineSeconds"] == 60
    assert "restartPolicy" not in found.policies
    assert in_effect(made, status | {"launcherStatus": "Pending"}, "InvalidSpec").is_whole
