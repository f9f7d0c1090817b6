"""RBAC evaluation: the decisions and reasons that a 1.20 API server's reviews gave."""

from __future__ import annotations

import pytest

from devcluster.paths import User
from devcluster.security.rbac import Attributes, decide, rules_of


def _role(name, rules, namespace=""):
    metadata = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {"metadata": metadata, "rules": rules}


def _binding(name, role, subject, namespace=""):
    metadata = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    kind, role_name = role
    return {
        "metadata": metadata,
        "roleRef": {"kind": kind, "name": role_name},
        "subjects": [subject],
    }


_SERVICE_ACCOUNT = {"kind": "ServiceAccount", "name": "sa", "namespace": "default"}
_STORED = {
    "roles": [
        _role(
            "r1",
            [{"verbs": ["*"], "apiGroups": ["graphcore.ai"], "resources": ["ipujobs/partitions"]}],
            "default",
        )
    ],
    "rolebindings": [
        _binding("rb", ("ClusterRole", "read"), {"kind": "User", "name": "bob"}, "default"),
        _binding("rb2", ("Role", "r1"), _SERVICE_ACCOUNT, "default"),
        _binding("rb3", ("Role", "r1"), {"kind": "ServiceAccount", "name": "own"}, "default"),
        _binding("dangling", ("Role", "nope"), {"kind": "User", "name": "dan"}, "default"),
    ],
    "clusterroles": [
        _role(
            "read",
            [
                {"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/log"]},
                {"verbs": ["get"], "nonResourceURLs": ["/metrics", "/x/*"]},
            ],
        ),
        _role(
            "scale",
            [
                {"verbs": ["update"], "apiGroups": ["*"], "resources": ["*/scale"]},
                {"verbs": ["list"], "apiGroups": ["g"], "resources": ["*"]},
                {
                    "verbs": ["get", "delete"],
                    "apiGroups": [""],
                    "resources": ["secrets"],
                    "resourceNames": ["s1"],
                },
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ],
        ),
    ],
    "clusterrolebindings": [
        _binding("xb", ("ClusterRole", "read"), {"kind": "User", "name": "ann"}),
        _binding("xs", ("ClusterRole", "scale"), {"kind": "Group", "name": "grp"}),
        _binding("xa", ("ClusterRole", "read"), _SERVICE_ACCOUNT),
    ],
}
_OBJECTS = _STORED.__getitem__
_ANN = User("ann")
_BOB = User("bob")
_MEMBER = User("carl", ("grp",))
_STRANGER = User("charlie")
_SA = User("system:serviceaccount:default:sa")
_PARTITIONS = {"group": "graphcore.ai", "resource": "ipujobs", "subresource": "partitions"}


@pytest.mark.parametrize(
    ("user", "attributes", "want"),
    [
        (_ANN, Attributes("get", resource="pods", namespace="z"), True),
        (_ANN, Attributes("get", resource="pods"), True),
        (_ANN, Attributes("list", resource="pods"), False),
        (_ANN, Attributes("get", group="apps", resource="pods"), False),
        (_ANN, Attributes("get", resource="pods", subresource="log"), True),
        (_ANN, Attributes("get", resource="pods", subresource="exec"), False),
        (_ANN, Attributes("get", path="/metrics"), True),
        (_ANN, Attributes("get", path="/x/y"), True),
        (_ANN, Attributes("get", path="/x"), False),
        (_MEMBER, Attributes("put", path="/anything"), True),
        (_SA, Attributes("get", resource="pods"), True),
        (_BOB, Attributes("get", resource="pods", namespace="default"), True),
        (_BOB, Attributes("get", resource="pods", namespace="z"), False),
        (_BOB, Attributes("get", resource="pods"), False),
        (_MEMBER, Attributes("update", "apps", "deployments", "scale"), True),
        (_MEMBER, Attributes("update", "apps", "deployments"), False),
        (_MEMBER, Attributes("list", "g", "q", "status"), True),
        (_MEMBER, Attributes("get", "", "secrets", "", "n", "s1"), True),
        (_MEMBER, Attributes("get", "", "secrets", "", "n", "s2"), False),
        (_MEMBER, Attributes("get", "", "secrets", "", "n"), False),
        (_SA, Attributes("delete", namespace="default", **_PARTITIONS), True),
        (_SA, Attributes("delete", namespace="other", **_PARTITIONS), False),
        (_SA, Attributes("delete", "graphcore.ai", "ipujobs", namespace="default"), False),
        (
            User("system:serviceaccount:default:own"),
            Attributes("get", namespace="default", **_PARTITIONS),
            True,
        ),
        (User("dan"), Attributes("get", resource="pods", namespace="default"), False),
        (
            User("root", ("system:masters",)),
            Attributes("delete", resource="x"),
            True,
        ),
        (_STRANGER, Attributes("get", resource="pods", namespace="default"), False),
        (_STRANGER, Attributes("get", path="/metrics"), False),
        (User("sa"), Attributes("get", resource="pods"), False),
    ],
)
def test_a_request_is_allowed_only_by_a_binding_that_covers_it(user, attributes, want):
    assert decide(user, attributes, _OBJECTS).allowed is want


@pytest.mark.parametrize(
    ("user", "attributes", "want_reason"),
    [
        (
            _ANN,
            Attributes("get", resource="pods"),
            'RBAC: allowed by ClusterRoleBinding "xb" of ClusterRole "read" to User "ann"',
        ),
        (
            _BOB,
            Attributes("get", resource="pods", namespace="default"),
            'RBAC: allowed by RoleBinding "rb/default" of ClusterRole "read" to User "bob"',
        ),
        (
            _SA,
            Attributes("get", namespace="default", **_PARTITIONS),
            (
                'RBAC: allowed by RoleBinding "rb2/default" of Role "r1" to ServiceAccount '
                '"sa/default"'
            ),
        ),
        (_STRANGER, Attributes("get", resource="pods"), ""),
    ],
)
def test_the_reason_names_the_binding_in_the_servers_words(user, attributes, want_reason):
    assert decide(user, attributes, _OBJECTS).reason == want_reason


def test_the_rules_of_a_user_are_those_of_all_bindings_in_the_namespace():
    assert {"verbs": ["get"], "nonResourceURLs": ["/metrics", "/x/*"]} in rules_of(
        _BOB, "default", _OBJECTS
    )
    assert rules_of(_BOB, "other", _OBJECTS) == []
    assert rules_of(User("r", ("system:masters",)), "x", _OBJECTS)[0]["verbs"] == ["*"]
