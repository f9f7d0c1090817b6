"""Invalid request bodies get an error message and never make the server fail (500)."""

from __future__ import annotations

import copy
import random

import pytest

KINDS = {
    "pods": {
        "path": "/api/v1/namespaces/default/pods",
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "labels": {"a": "b"}, "finalizers": ["example.com/hold"]},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "example.com/main:1",
                    "env": [
                        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
                    ],
                    "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                }
            ],
            "volumes": [{"name": "v", "configMap": {"name": "m"}}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "activeDeadlineSeconds": 60,
        },
    },
    "configmaps": {
        "path": "/api/v1/namespaces/default/configmaps",
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "annotations": {"a": "b"}},
        "data": {"a": "b"},
        "binaryData": {"c": "Yg=="},
        "immutable": False,
    },
    "secrets": {
        "path": "/api/v1/namespaces/default/secrets",
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a"},
        "data": {"a": "Yg=="},
        "stringData": {"b": "c"},
    },
    "roles": {
        "path": "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "a", "ownerReferences": []},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    },
    "clusterrolebindings": {
        "path": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "a"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "b"},
        "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "default"}],
    },
    "leases": {
        "path": "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "a"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 1},
    },
    "events": {
        "path": "/api/v1/namespaces/default/events",
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a"},
        "involvedObject": {"kind": "Pod", "name": "a", "namespace": "default"},
        "source": {"component": "c"},
        "count": 1,
    },
    "nodes": {
        "path": "/api/v1/nodes",
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "a"},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
    },
    "persistentvolumeclaims": {
        "path": "/api/v1/namespaces/default/persistentvolumeclaims",
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "a"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    },
    "namespaces": {
        "path": "/api/v1/namespaces",
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "a"},
        "spec": {"finalizers": ["kubernetes"]},
    },
    "customresourcedefinitions": {
        "path": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "toys.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "toys", "kind": "Toy", "shortNames": ["ty"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {
                                    "type": "object",
                                    "required": ["n"],
                                    "properties": {
                                        "n": {"type": "integer", "minimum": 1, "default": 2},
                                        "l": {
                                            "type": "array",
                                            "items": {"type": "string", "enum": ["a"]},
                                        },
                                    },
                                }
                            },
                        }
                    },
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.n",
                            "statusReplicasPath": ".status.n",
                        },
                    },
                    "additionalPrinterColumns": [
                        {"name": "N", "type": "integer", "jsonPath": ".spec.n"}
                    ],
                }
            ],
        },
    },
}
PATCHES = ("merge-patch", "strategic-merge-patch", "json-patch")
REVIEWS = {
    "/api/v1/namespaces/default/serviceaccounts/default/token": {
        "spec": {
            "audiences": ["a"],
            "expirationSeconds": 600,
            "boundObjectRef": {"kind": "Pod", "name": "p"},
        }
    },
    "/apis/authentication.k8s.io/v1/tokenreviews": {"spec": {"token": "x", "audiences": ["a"]}},
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": {
        "spec": {
            "user": "u",
            "groups": ["g"],
            "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"},
        }
    },
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {
        "spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}
    },
    "/api/v1/namespaces/default/pods/none/binding": {
        "metadata": {"name": "none"},
        "target": {"name": "n"},
    },
}


def assert_judged(answer, *sent):
    """Some strategic patches get a 500 with a reason from a real server, too."""
    assert answer.status < 500 or answer.body["message"] != "Internal error occurred", sent


def odd_value(dice):
    return dice.choice(
        [
            None,
            True,
            0,
            -1,
            1.5,
            2**63,
            "",
            "text",
            "\N{WINKING FACE}/..%",
            [],
            [None],
            ["a", 1],
            [[]],
            {},
            {"": None},
            {"a": {"b": []}},
            {"$patch": "delete"},
            {"$patch": 1},
        ]
    )


def spoil(dice, body):
    """The body with one to three of its values, at any depth, replaced, removed or added."""
    body = copy.deepcopy(body)
    for _ in range(dice.randint(1, 3)):
        place = body
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = dice.choice(keys)
            if isinstance(place[key], dict | list) and place[key] and dice.random() < 0.8:
                place = place[key]
                continue
            if dice.random() < 0.2:
                del place[key]
            else:
                place[key] = odd_value(dice)
            break
    return body


def odd_patch(dice, body, kind):
    if kind != "json-patch":
        return dice.choice([spoil(dice, body), spoil(dice, body), odd_value(dice)])
    path = dice.choice(
        [*(f"/{key}" for key in body), "/spec/containers/0/image", "/metadata/labels", "/x/y", ""]
    )
    operation = {
        "op": dice.choice(["add", "replace", "remove", "test", "copy", "move", 3]),
        "path": dice.choice([path, path, path, 7]),
        "from": path,
        "value": odd_value(dice),
    }
    return dice.choice([[operation], [operation, operation], odd_value(dice)])


@pytest.mark.parametrize("kind", KINDS)
async def test_no_odd_object_or_patch_makes_the_server_fail(http, kind):
    dice = random.Random(kind)
    body = dict(KINDS[kind])
    path = body.pop("path")
    one = f"{path}/{body['metadata']['name']}"
    await http.call("POST", path, body)
    for _ in range(50):
        odd = spoil(dice, body)
        answer = await http.call("POST", f"{path}?dryRun=All", odd)
        assert_judged(answer, odd)
        answer = await http.call("PUT", f"{one}?dryRun=All", odd)
        assert_judged(answer, odd)
        patch_kind = dice.choice(PATCHES)
        patch = odd_patch(dice, body, patch_kind)
        answer = await http.patch(f"{one}?dryRun=All", patch, patch_kind)
        assert_judged(answer, patch_kind, patch)


async def test_no_odd_object_of_a_custom_kind_makes_the_server_fail(http):
    dice = random.Random("toys")
    crd = dict(KINDS["customresourcedefinitions"])
    await http.make(crd.pop("path"), crd)
    path = "/apis/example.com/v1/namespaces/default/toys"
    body = {
        "apiVersion": "example.com/v1",
        "kind": "Toy",
        "metadata": {"name": "a", "labels": {"a": "b"}},
        "spec": {"n": 1, "l": ["a"]},
    }
    await http.make(path, body)
    for _ in range(50):
        odd, patch_kind = spoil(dice, body), dice.choice(PATCHES)
        patch = odd_patch(dice, body, patch_kind)
        scale = spoil(dice, {"spec": {"replicas": 2}, "metadata": {"name": "a"}})
        for answer in (
            await http.call("POST", f"{path}?dryRun=All", odd),
            await http.call("PUT", f"{path}/a/status?dryRun=All", odd),
            await http.patch(f"{path}/a?dryRun=All", patch, patch_kind),
            await http.call("PUT", f"{path}/a/scale?dryRun=All", scale),
        ):
            assert_judged(answer, odd, patch, scale)


@pytest.mark.parametrize("path", REVIEWS)
async def test_no_odd_review_or_deletion_makes_the_server_fail(http, path):
    dice = random.Random(path)
    for _ in range(40):
        odd = spoil(dice, REVIEWS[path])
        answer = await http.call("POST", path, odd)
        assert_judged(answer, odd)
        options = {"preconditions": {"uid": "u"}, "gracePeriodSeconds": 1, "dryRun": ["All"]}
        odd = spoil(dice, {**options, "propagationPolicy": "Orphan"})
        answer = await http.call("DELETE", "/api/v1/namespaces/default/configmaps/none", odd)
        assert_judged(answer, odd)


@pytest.mark.parametrize(
    ("text", "content_type"),
    [
        (b'{"a":' * 900 + b"1" + b"}" * 900, "application/json"),
        (b"{a: " * 200 + b"1" + b"}" * 200, "application/yaml"),
        (b"1: {2: 3}", "application/yaml"),
        (b"n: 99999999999999999999999", "application/yaml"),
        (b"a: &a [*a]", "application/yaml"),
        (b"\xff\xfe", "application/json"),
        (b'"\\ud83d"', "application/json"),
    ],
    ids=[
        "deep",
        "deep-yaml",
        "keys-that-are-numbers",
        "large",
        "endless",
        "bytes",
        "half-a-character",
    ],
)
async def test_what_json_cannot_hold_is_refused(http, text, content_type):
    answer = await http.call("POST", "/api/v1/namespaces/default/configmaps", text, content_type)
    assert 400 <= answer.status < 500, answer.body
    await http.make(
        "/api/v1/namespaces/default/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
    )
    path = "/api/v1/namespaces/default/configmaps/a"
    answer = await http.call("PATCH", path, text, "application/merge-patch+json")
    assert answer.status < 500, answer.body


async def test_a_date_in_yaml_is_a_text(http):
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {day: 2026-01-02}\n"
    path = "/api/v1/namespaces/default/configmaps"
    answer = await http.call("POST", path, text, "application/yaml")
    assert answer.body["data"] == {"day": "2026-01-02"}
