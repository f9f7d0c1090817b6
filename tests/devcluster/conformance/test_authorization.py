"""RBAC decides on requests: refusals in the server's words, escalation, impersonation."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.accounts import make_account, request_token
from tests.devcluster.conformance.api import connect_as, eventually, unique
from tests.devcluster.conformance.test_access import RBAC, RBAC_GROUP, grant, grant_everywhere

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.devcluster.conformance.api import Answer, Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.servers import Server


@asynccontextmanager
async def robot_of(api: Api, namespace: str, server: Server, *rules: Json) -> AsyncIterator[Api]:
    """The account `robot` of the namespace, with these rights in it, in force."""
    await make_account(api, namespace)
    probe = {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["list"]}
    await grant(api, namespace, [*rules, probe])
    token = (await request_token(api, namespace))["status"]["token"]
    async with connect_as(server.kubeconfig, token) as robot:

        async def is_in_force() -> bool:
            return (
                await robot.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")
            ).status == 200

        await eventually(is_in_force)
        yield robot


def rule(group: str, resource: str, *verbs: str, names: tuple[str, ...] = ()) -> Json:
    found: Json = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    return {**found, "resourceNames": list(names)} if names else found


# method, path below the namespace ({ns}), what the server says the user cannot do
REFUSALS: dict[str, tuple[str, str, str]] = {
    "get": (
        "GET",
        "/api/v1/namespaces/{ns}/pods/p",
        (
            'pods "p" is forbidden: {user} cannot get resource "pods" in API group "" in the '
            'namespace "{ns}"'
        ),
    ),
    "subresource": (
        "GET",
        "/api/v1/namespaces/{ns}/pods/p/log",
        (
            'pods "p" is forbidden: {user} cannot get resource "pods/log" in API group "" in the '
            'namespace "{ns}"'
        ),
    ),
    "watch": (
        "GET",
        "/api/v1/namespaces/{ns}/pods?watch=1",
        (
            'pods is forbidden: {user} cannot watch resource "pods" in API group "" in the '
            'namespace "{ns}"'
        ),
    ),
    "create": (
        "POST",
        "/apis/apps/v1/namespaces/{ns}/deployments",
        (
            'deployments.apps is forbidden: {user} cannot create resource "deployments" in '
            'API group "apps" in the namespace "{ns}"'
        ),
    ),
    "delete": (
        "DELETE",
        "/api/v1/namespaces/{ns}/pods/p",
        (
            'pods "p" is forbidden: {user} cannot delete resource "pods" in API group "" in the '
            'namespace "{ns}"'
        ),
    ),
    "deletecollection": (
        "DELETE",
        "/api/v1/namespaces/{ns}/pods",
        (
            'pods is forbidden: {user} cannot deletecollection resource "pods" in API group "" '
            'in the namespace "{ns}"'
        ),
    ),
    "everywhere": (
        "GET",
        "/api/v1/pods",
        (
            'pods is forbidden: {user} cannot list resource "pods" in API group "" at the cluster '
            "scope"
        ),
    ),
    "cluster-scoped": (
        "GET",
        "/api/v1/nodes/n",
        (
            'nodes "n" is forbidden: {user} cannot get resource "nodes" in API group "" at the '
            "cluster scope"
        ),
    ),
    "namespace": (
        "GET",
        "/api/v1/namespaces/{ns}",
        (
            'namespaces "{ns}" is forbidden: {user} cannot get resource "namespaces" in API '
            'group "" in the namespace "{ns}"'
        ),
    ),
    "unknown-kind": (
        "GET",
        "/apis/nobody.example.com/v1/things",
        (
            'things.nobody.example.com is forbidden: {user} cannot list resource "things" in API '
            'group "nobody.example.com" at the cluster scope'
        ),
    ),
    "path": ("GET", "/metrics", 'forbidden: {user} cannot get path "/metrics"'),
}


@pytest.mark.parametrize("row", REFUSALS)
async def test_a_refusal_says_who_cannot_do_what(
    api: Api, namespace: str, server: Server, row: str
) -> None:
    method, path, words = REFUSALS[row]
    user = f'User "system:serviceaccount:{namespace}:robot"'
    async with robot_of(api, namespace, server) as robot:
        path, _, query = path.format(ns=namespace).partition("?")
        params = {"watch": "1"} if query else {}
        answer = await robot.call(method, path, {} if method == "POST" else None, **params)
    status = answer.refused(403, "Forbidden")
    assert status["message"] == words.format(user=user, ns=namespace)


@pytest.mark.parametrize(
    "path", ["/api", "/apis", "/apis/rbac.authorization.k8s.io/v1", "/version", "/openapi/v3"]
)
async def test_discovery_is_open_to_everybody_known(
    api: Api, namespace: str, server: Server, path: str
) -> None:
    async with robot_of(api, namespace, server) as robot:
        (await robot.get(path)).ok(200)


async def test_a_named_right_covers_a_list_of_that_name(
    api: Api, namespace: str, server: Server
) -> None:
    named = rule("", "configmaps", "get", "list", names=("a",))
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    async with robot_of(api, namespace, server, named) as robot:
        (await robot.get(path, fieldSelector="metadata.name=a")).ok(200)
        (await robot.get(path, fieldSelector="metadata.name=b")).refused(403, "Forbidden")
        (await robot.get(path)).refused(403, "Forbidden")


async def test_a_put_that_creates_needs_the_right_to_create(
    api: Api, namespace: str, server: Server
) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/new"
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "new"},
        "spec": {},
    }
    updates = rule("coordination.k8s.io", "leases", "update")
    async with robot_of(api, namespace, server, updates) as robot:
        status = (await robot.replace(path, body)).refused(403, "Forbidden")
    assert status["message"].startswith('leases.coordination.k8s.io "new" is forbidden: ')


MANAGES_ROLES = rule(RBAC_GROUP, "*", "get", "create", "update", "patch")


async def make_role(user: Api, namespace: str, *rules: Json, name: str = "made") -> Answer:
    role = {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "Role",
        "metadata": {"name": name},
        "rules": list(rules),
    }
    return await user.create(f"{RBAC}/namespaces/{namespace}/roles", role)


async def test_nobody_grants_what_he_has_not(api: Api, namespace: str, server: Server) -> None:
    held = rule("", "pods", "get", "list")
    async with robot_of(api, namespace, server, MANAGES_ROLES, held) as robot:
        (await make_role(robot, namespace, held)).ok(201)
        more = rule("", "pods", "list", "delete", "watch")
        answer = await make_role(
            robot, namespace, more, {**rule("apps", "deployments", "get")}, name="more"
        )
        status = answer.refused(403, "Forbidden")
        path = f"{RBAC}/namespaces/{namespace}/roles/made"
        (await robot.patch(path, {"rules": [more]})).refused(403, "Forbidden")
        (await robot.patch(path, {"metadata": {"finalizers": ["x.example.com/y"]}})).ok(200)
        (await api.patch(path, {"metadata": {"finalizers": None}})).ok(200)
    account = f"system:serviceaccount:{namespace}:robot"
    groups = f'["system:serviceaccounts" "system:serviceaccounts:{namespace}" '
    assert status["message"] == (
        f'roles.{RBAC_GROUP} "more" is forbidden: user "{account}" '
        f'(groups={groups}"system:authenticated"]) is attempting to grant RBAC permissions not '
        'currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["delete" "watch"]}\n'
        '{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}'
    )


async def test_escalate_lets_one_grant_more(api: Api, namespace: str, server: Server) -> None:
    escalates = rule(RBAC_GROUP, "roles", "escalate")
    async with robot_of(api, namespace, server, MANAGES_ROLES, escalates) as robot:
        (await make_role(robot, namespace, rule("*", "*", "*"))).ok(201)


def binding(kind: str, role: str) -> Json:
    return {
        "apiVersion": f"{RBAC_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": unique("b")},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": "x", "apiGroup": RBAC_GROUP}],
    }


async def test_binding_a_role_needs_its_rights_or_bind(
    api: Api, namespace: str, server: Server
) -> None:
    path = f"{RBAC}/namespaces/{namespace}/rolebindings"
    (await make_role(api, namespace, rule("", "secrets", "get"), name="secretive")).ok(201)
    (await make_role(api, namespace, rule("", "secrets", "get"), name="bindable")).ok(201)
    binds = rule(RBAC_GROUP, "roles", "bind", names=("bindable",))
    async with robot_of(api, namespace, server, MANAGES_ROLES, binds) as robot:
        status = (await robot.create(path, binding("Role", "secretive"))).refused(403, "Forbidden")
        (await robot.create(path, binding("Role", "bindable"))).ok(201)
        gone = (await robot.create(path, binding("ClusterRole", "no-such"))).refused(
            404, "NotFound"
        )
        (await robot.create(path, binding("ClusterRole", "cluster-admin"))).refused(
            403, "Forbidden"
        )
    assert '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}' in status["message"]
    assert gone["message"] == f'rolebindings.{RBAC_GROUP} "no-such" not found'
    assert gone["details"] == {"name": "no-such", "group": RBAC_GROUP, "kind": "rolebindings"}


async def test_impersonation_needs_the_right_to(api: Api, namespace: str, server: Server) -> None:
    account = f"system:serviceaccount:{namespace}:robot"
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": namespace}
    rules = [rule("", "users", "impersonate", names=("ann",))]
    made = await grant_everywhere(api, rules, subject)
    path = f"/api/v1/namespaces/{namespace}/pods"
    async with robot_of(api, namespace, server) as robot:

        async def as_(**who: str) -> Any:
            headers = {f"Impersonate-{key}": value for key, value in who.items()}
            return (await robot.call("GET", path, headers=headers)).body["message"]

        async def is_ann() -> bool:
            return 'User "ann" cannot list' in await as_(User="ann")

        await eventually(is_ann)
        assert await as_(User="bob") == (
            f'users "bob" is forbidden: User "{account}" cannot impersonate resource "users" in '
            'API group "" at the cluster scope'
        )
        assert await as_(User="ann", Group="team") == (
            f'groups "team" is forbidden: User "{account}" cannot impersonate resource "groups" in '
            'API group "" at the cluster scope'
        )
        assert f'in API group "" in the namespace "{namespace}"' in await as_(
            User=f"system:serviceaccount:{namespace}:default"
        )
    for one in made:
        await api.delete(one)
