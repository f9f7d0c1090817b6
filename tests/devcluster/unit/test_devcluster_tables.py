"""Tables: columns and cells as a 1.20 API server gave them for the same objects."""

from __future__ import annotations

import pytest

from devcluster.printing.columns import COLUMNS
from devcluster.printing.tables import as_table
from devcluster.schemas.kinds import BY_KIND, KINDS
from tests.builders.tables import MADE, NOW, READY, cells

_NODE_INFO = {"kubeletVersion": "v1.32.0", "osImage": "Debian", "kernelVersion": "6.1"}


@pytest.mark.parametrize(
    ("api_version", "kind", "obj", "want"),
    [
        (
            "v1",
            "Node",
            {
                "metadata": {"labels": {"node-role.kubernetes.io/worker": ""}},
                "status": {
                    "conditions": READY,
                    "nodeInfo": _NODE_INFO,
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                },
            },
            [
                *("n", "Ready", "worker", "12s", "v1.32.0"),
                *("10.0.0.1", "<none>", "Debian", "6.1", "<unknown>"),
            ],
        ),
        (
            "v1",
            "Node",
            {"spec": {"unschedulable": True}},
            [
                *("n", "Unknown,SchedulingDisabled", "<none>", "12s", ""),
                *("<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"),
            ],
        ),
        ("v1", "Namespace", {"status": {"phase": "Active"}}, ["n", "Active", "12s"]),
        ("v1", "ConfigMap", {"data": {"a": "b"}, "binaryData": {"c": ""}}, ["n", 2, "12s"]),
        ("v1", "ConfigMap", {}, ["n", 0, "12s"]),
        ("v1", "Secret", {"type": "Opaque", "data": {"a": ""}}, ["n", "Opaque", 1, "12s"]),
        ("v1", "ServiceAccount", {}, ["n", 0, "12s"]),
        (
            "v1",
            "Event",
            {
                "type": "Normal",
                "reason": "Created",
                "message": "made it",
                "count": 2,
                "involvedObject": {"kind": "IPUJob", "name": "j", "fieldPath": "spec.x"},
                "source": {"component": "operator", "host": "h"},
                "firstTimestamp": "2026-11-21T08:00:00Z",
                "lastTimestamp": "2026-11-21T08:59:00Z",
            },
            [
                *("60s", "Normal", "Created", "ipujob/j", "spec.x"),
                *("operator, h", "made it", "60m", 2, "n"),
            ],
        ),
        (
            "v1",
            "PersistentVolume",
            {
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadOnlyMany", "ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "claimRef": {"namespace": "default", "name": "c9"},
                    "storageClassName": "sc9",
                    "volumeMode": "Filesystem",
                },
                "status": {"phase": "Available"},
            },
            [
                *("n", "1Gi", "RWO,ROX", "Retain", "Available", "default/c9", "sc9", ""),
                *("12s", "Filesystem"),
            ],
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            {"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}},
            ["n", "Pending", "", "", "", "", "12s", "Filesystem"],
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            {"metadata": {"deletionTimestamp": MADE}, "status": {"phase": "Bound"}},
            ["n", "Terminating", "", "", "", "", "12s", "<unset>"],
        ),
        (
            "coordination.k8s.io/v1",
            "Lease",
            {"spec": {"holderIdentity": "me"}},
            ["n", "me", "12s"],
        ),
        ("rbac.authorization.k8s.io/v1", "Role", {}, ["n", MADE]),
        (
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            {
                "roleRef": {"kind": "Role", "name": "r1"},
                "subjects": [
                    {"kind": "ServiceAccount", "name": "sa", "namespace": "default"},
                    {"kind": "User", "name": "ann"},
                    {"kind": "User", "name": "bob"},
                ],
            },
            ["n", "Role/r1", "12s", "ann, bob", "", "default/sa"],
        ),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            {"webhooks": [{}]},
            ["n", 1, "12s"],
        ),
    ],
)
def test_the_cells_of_a_built_in_kind_are_the_servers(api_version, kind, obj, want):
    assert cells(api_version, kind, obj) == want


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.is_stored], ids=lambda k: k.kind)
def test_every_stored_kind_has_columns_and_prints_an_empty_object(kind):
    assert kind.resource_name in COLUMNS or kind.plural == "services"
    table = as_table(kind, [{"metadata": {"name": "n"}}], None, NOW)
    assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])
    assert "n" in table["rows"][0]["cells"]
    formats = [column["format"] for column in table["columnDefinitions"]]
    assert formats.count("name") == 1


def test_column_definitions_carry_type_priority_and_description():
    columns = as_table(BY_KIND["v1", "Pod"], [], None, NOW)["columnDefinitions"]
    assert [(c["name"], c["type"], c["format"], c["priority"]) for c in columns] == [
        ("Name", "string", "name", 0),
        ("Ready", "string", "", 0),
        ("Status", "string", "", 0),
        ("Restarts", "integer", "", 0),
        ("Age", "string", "", 0),
        ("IP", "string", "", 1),
        ("Node", "string", "", 1),
        ("Nominated Node", "string", "", 1),
        ("Readiness Gates", "string", "", 1),
    ]
    assert columns[0]["description"].startswith("Name must be unique")
