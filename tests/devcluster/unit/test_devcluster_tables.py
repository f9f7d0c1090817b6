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
            "events.k8s.io/v1",
            "Event",
            {
                "type": "Warning",
                "reason": "Failed",
                "note": "no",
                "regarding": {"kind": "Pod", "name": "p"},
                "reportingController": "kubelet",
                "eventTime": "2026-11-21T08:59:50.000000Z",
            },
            ["10s", "Warning", "Failed", "pod/p", "", "kubelet", "no", "10s", 1, "n"],
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
            "v1",
            "Service",
            {
                "spec": {
                    "type": "NodePort",
                    "clusterIP": "10.96.0.1",
                    "ports": [{"port": 80, "nodePort": 30080}, {"port": 81, "protocol": "UDP"}],
                    "selector": {"b": "2", "a": "1"},
                }
            },
            ["n", "NodePort", "10.96.0.1", "<none>", "80:30080/TCP,81/UDP", "12s", "a=1,b=2"],
        ),
        (
            "v1",
            "Service",
            {"spec": {"type": "ExternalName", "externalName": "x.y"}},
            ["n", "ExternalName", "<none>", "x.y", "<none>", "12s", "<none>"],
        ),
        (
            "v1",
            "Service",
            {"spec": {"type": "LoadBalancer", "clusterIP": "None"}},
            ["n", "LoadBalancer", "None", "<pending>", "<none>", "12s", "<none>"],
        ),
        ("v1", "Endpoints", {}, ["n", "<none>", "12s"]),
        (
            "v1",
            "Endpoints",
            {"subsets": [{"addresses": [{"ip": "1"}] * 5, "ports": [{"port": 80}]}]},
            ["n", "1:80,1:80,1:80 + 2 more...", "12s"],
        ),
        (
            "v1",
            "ResourceQuota",
            {"status": {"hard": {"pods": "10", "limits.cpu": "5"}, "used": {"pods": "1"}}},
            ["n", "12s", "pods: 1/10", "limits.cpu: 0/5"],
        ),
        ("v1", "LimitRange", {}, ["n", MADE]),
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
        (
            "apps/v1",
            "Deployment",
            {
                "spec": {
                    "replicas": 2,
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {
                        "spec": {
                            "containers": [
                                {"name": "one", "image": "i1"},
                                {"name": "two", "image": "i2"},
                            ]
                        }
                    },
                }
            },
            ["n", "0/2", 0, 0, "12s", "one,two", "i1,i2", "a=b"],
        ),
        (
            "scheduling.k8s.io/v1",
            "PriorityClass",
            {"value": 2000000000},
            ["n", 2000000000, False, "12s"],
        ),
        (
            "storage.k8s.io/v1",
            "StorageClass",
            {
                "metadata": {
                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}
                },
                "provisioner": "x/y",
            },
            ["n (default)", "x/y", "Delete", "Immediate", False, "12s"],
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            {"spec": {"minAvailable": "50%"}},
            ["n", "50%", "N/A", 0, "12s"],
        ),
    ],
)
def test_the_cells_of_a_built_in_kind_are_the_servers(api_version, kind, obj, want):
    assert cells(api_version, kind, obj) == want


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.is_stored], ids=lambda k: k.kind)
def test_every_stored_kind_has_columns_and_prints_an_empty_object(kind):
    assert kind.resource_name in COLUMNS
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
