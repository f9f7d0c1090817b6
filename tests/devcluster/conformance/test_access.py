"""Access reviews against stored RBAC, and who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.accounts import make_account, request_token
from tests.devcluster.conformance.api import connect_as, eventually, unique

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl
    from tests.devcluster.conformance.servers import Server

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
RBAC_GROUP = "rbac.authorization.k8s.io"


async def test_a_user_without_rights_is_403(api: Api, namespace: str, server: Server) -> None:
    await make_account(api, namespace)
    token = (await request_token(api, namespace))["status"]["token"]
    async with connect_as(server.kubeconfig, token) as robot:
        answer = await robot.get(f"/api/v1/namespaces/{namespace}/secrets")
    status = answer.refused(403, "Forbidden")
    assert status["message"] == (
        f'secrets is forbidden: User "system:serviceaccount:{namespace}:robot" cannot list '
        f'resource "secrets" in API group "" in the namespace "{namespace}"'
    )


async def test_a_user_with_rights_is_let_in(api: Api, namespace: str, server: Server) -> None:
    await make_account(api, namespace)
    token = (await request_token(api, namespace))["status"]["token"]
    await grant(api, namespace, [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
    async with connect_as(server.kubeconfig, token) as robot:

        async def is_let_in() -> bool:
            return (await robot.get(f"/api/v1/namespaces/{namespace}/pods")).status == 200

        await eventually(is_let_in)


async def grant(api: Api, namespace: str, rules: list[Json]) -> None:
    """Give the account `robot` these rules in its namespace."""
    role = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "Role",
        "metadata": {"name": "own"},
        "rules": rules,
    }
    (await api.create(f"{RBAC}/namespaces/{namespace}/roles", role)).ok(201)
    binding = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "own"},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "own"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": namespace}],
    }
    (await api.create(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)).ok(201)


async def grant_everywhere(api: Api, rules: list[Json], subject: Json) -> list[str]:
    """Make a ClusterRole and its binding; return their paths."""
    name = unique("conf")
    role = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }
    (await api.create(f"{RBAC}/clusterroles", role)).ok(201)
    binding = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [subject],
    }
    (await api.create(f"{RBAC}/clusterrolebindings", binding)).ok(201)
    return [f"{RBAC}/clusterroles/{name}", f"{RBAC}/clusterrolebindings/{name}"]


async def may(api: Api, user: str, *, groups: tuple[str, ...] = (), **attributes: Any) -> bool:
    """Ask a SubjectAccessReview."""
    key = "nonResourceAttributes" if "path" in attributes else "resourceAttributes"
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": list(groups), key: attributes},
    }
    answer = await api.create(f"{AUTHORIZATION}/subjectaccessreviews", body)
    return bool(answer.ok(201)["status"]["allowed"])


RULES: list[Json] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update"], "resourceNames": ["a"]},
    {"apiGroups": ["graphcore.ai"], "resources": ["ipujobs/partitions"], "verbs": ["*"]},
    {"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["patch"]},
    {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["watch"]},
]
# question, answer
QUESTIONS: dict[str, tuple[dict[str, str], bool]] = {
    "granted": ({"verb": "get", "resource": "pods"}, True),
    "other-verb": ({"verb": "delete", "resource": "pods"}, False),
    "other-resource": ({"verb": "get", "resource": "secrets"}, False),
    "other-group": ({"verb": "get", "resource": "pods", "group": "apps"}, False),
    "subresource": ({"verb": "get", "resource": "pods", "subresource": "log"}, True),
    "other-subresource": ({"verb": "get", "resource": "pods", "subresource": "exec"}, False),
    "resource-of-subresource": ({"verb": "update", "resource": "ipujobs"}, False),
    "any-verb": (
        {
            "verb": "update",
            "group": "graphcore.ai",
            "resource": "ipujobs",
            "subresource": "partitions",
        },
        True,
    ),
    "any-resource-one-subresource": (
        {"verb": "patch", "group": "example.com", "resource": "x", "subresource": "scale"},
        True,
    ),
    "any-resource": ({"verb": "watch", "group": "apps", "resource": "deployments"}, True),
    "any-resource-with-subresource": (
        {"verb": "watch", "group": "apps", "resource": "deployments", "subresource": "status"},
        True,
    ),
    "named": ({"verb": "update", "resource": "configmaps", "name": "a"}, True),
    "other-name": ({"verb": "update", "resource": "configmaps", "name": "b"}, False),
    "no-name": ({"verb": "update", "resource": "configmaps"}, False),
}


@pytest.mark.parametrize("row", QUESTIONS)
async def test_an_access_review_answers_from_the_stored_rules(
    api: Api, namespace: str, row: str
) -> None:
    question, answer = QUESTIONS[row]
    await make_account(api, namespace)
    await grant(api, namespace, RULES)
    user = f"system:serviceaccount:{namespace}:robot"

    async def rules_are_known() -> bool:
        return await may(api, user, verb="list", resource="pods", namespace=namespace)

    await eventually(rules_are_known)
    assert await may(api, user, namespace=namespace, **question) is answer
    assert not await may(api, user, namespace="default", **question)
    assert not await may(api, f"{user}x", namespace=namespace, **question)


async def test_non_resource_urls_are_granted_cluster_wide(api: Api) -> None:
    rules = [{"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]}]
    user = unique("someone")
    subject = {"kind": "User", "name": user, "apiGroup": RBAC_GROUP}
    made = await grant_everywhere(api, rules, subject)
    await eventually(lambda: may(api, user, path="/metrics", verb="get"))
    assert await may(api, user, path="/logs/a/b", verb="get")
    assert not await may(api, user, path="/metrics", verb="post")
    assert not await may(api, user, path="/metrics/x", verb="get")
    assert not await may(api, user, verb="get", resource="pods")
    for path in made:
        (await api.delete(path)).ok(200)


async def test_a_group_is_granted_and_the_grant_ends_with_the_binding(api: Api) -> None:
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get"]}]
    group = unique("team")
    subject = {"kind": "Group", "name": group, "apiGroup": RBAC_GROUP}
    role, binding = await grant_everywhere(api, rules, subject)
    question: dict[str, Any] = {"verb": "get", "resource": "nodes", "groups": (group,)}
    await eventually(lambda: may(api, "x", **question))
    assert not await may(api, "x", verb="get", resource="nodes")
    (await api.delete(binding)).ok(200)

    async def is_over() -> bool:
        return not await may(api, "x", **question)

    await eventually(is_over)
    (await api.delete(role)).ok(200)


async def bind_in_namespace(api: Api, namespace: str, role: str, user: str) -> None:
    """Bind a ClusterRole to a user in one namespace."""
    binding = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "one"},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC_GROUP}],
    }
    (await api.create(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)).ok(201)


async def test_a_role_binding_to_a_cluster_role_grants_one_namespace(
    api: Api, namespace: str
) -> None:
    user, nobody = unique("someone"), {"kind": "User", "name": "nobody", "apiGroup": RBAC_GROUP}
    rules = [
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]
    role, binding = await grant_everywhere(api, rules, nobody)
    await bind_in_namespace(api, namespace, role.rpartition("/")[2], user)
    question = {"verb": "list", "resource": "pods"}
    await eventually(lambda: may(api, user, namespace=namespace, **question))
    assert not await may(api, user, namespace="default", **question)
    assert not await may(api, user, **question)
    assert not await may(api, user, verb="list", resource="nodes")
    assert not await may(api, user, verb="get", path="/metrics")
    for path in (role, binding):
        (await api.delete(path)).ok(200)


@pytest.mark.full_cluster
async def test_the_view_role_reads_pods_but_no_secrets(api: Api, namespace: str) -> None:
    user = unique("someone")
    await bind_in_namespace(api, namespace, "view", user)
    await eventually(lambda: may(api, user, namespace=namespace, verb="list", resource="pods"))
    assert not await may(api, user, namespace=namespace, verb="list", resource="secrets")
    assert not await may(api, user, namespace=namespace, verb="delete", resource="pods")


async def test_the_masters_may_everything(api: Api) -> None:
    masters = ("system:masters",)
    assert await may(api, "x", groups=masters, verb="delete", resource="nodes", name="n")
    assert await may(api, "x", groups=masters, verb="get", path="/anything")


async def test_a_review_asks_about_one_thing(api: Api) -> None:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "x"},
    }
    answer = await api.create(f"{AUTHORIZATION}/subjectaccessreviews", body)
    answer.refused(422, "Invalid")


async def test_the_role_of_a_binding_cannot_change(api: Api, namespace: str) -> None:
    await make_account(api, namespace)
    await grant(api, namespace, RULES)
    path = f"{RBAC}/namespaces/{namespace}/rolebindings/own"
    status = (await api.patch(path, {"roleRef": {"name": "other"}})).refused(422, "Invalid")
    role_ref = f'{{"APIGroup":"{RBAC_GROUP}","Kind":"Role","Name":"other"}}'
    assert f"roleRef: Invalid value: {role_ref}: field is immutable" in status["message"]


async def test_a_rule_must_say_verbs_and_resources(api: Api, namespace: str) -> None:
    role = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "Role",
        "metadata": {"name": "bad"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}],
    }
    path = f"{RBAC}/namespaces/{namespace}/roles"
    status = (await api.create(path, role)).refused(422, "Invalid")
    assert "rules[0].verbs: Required value" in status["message"]
    role["rules"] = [{"verbs": ["get"]}]
    (await api.create(path, role)).refused(422, "Invalid")


def test_kubectl_auth_can_i(kubectl: Kubectl, namespace: str) -> None:
    assert kubectl.run("auth", "can-i", "create", "pods", "-n", namespace) == "yes\n"
    account = f"system:serviceaccount:{namespace}:default"
    done = kubectl.call("auth", "can-i", "create", "pods", "-n", namespace, "--as", account)
    assert done.stdout == "no\n"
    assert done.returncode == 1
