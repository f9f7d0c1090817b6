"""The demo's processes under their own accounts: the API refuses requests beyond their rights."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from devcluster.demo.processes import ACCOUNTS

if TYPE_CHECKING:
    from tests.e2e.running_demo import RunningDemo

_CLUSTER, _JOBS = "/api/v1", "/apis/graphcore.ai/v1alpha1"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_IN_DEFAULT, _IN_SYSTEM = "namespaces/default", "namespaces/ipuhub-system"
MAKE_ADMIN = {
    "metadata": {"name": "mine"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "cluster-admin",
    },
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ada"}],
}
READ_SECRETS = {
    "metadata": {"name": "x"},
    "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
}
Request: TypeAlias = tuple[str, str, dict[str, Any] | None]
NOBODY: list[Request] = [
    ("GET", f"{_CLUSTER}/secrets", None),
    ("GET", _WEBHOOKS, None),
    ("DELETE", f"{_CLUSTER}/{_IN_DEFAULT}", None),
    ("POST", f"{_RBAC}/clusterrolebindings", MAKE_ADMIN),
]
NOT_THIS_ONE: list[tuple[str, Request]] = [
    (
        "ipuhub-operator",
        ("POST", f"{_CLUSTER}/{_IN_SYSTEM}/serviceaccounts/ipuhub-proxy/token", {"spec": {}}),
    ),
    ("ipuhub-operator", ("GET", f"{_CLUSTER}/nodes/any", None)),
    ("ipuhub-operator", ("DELETE", f"{_CLUSTER}/nodes/any", None)),
    ("ipuhub-operator", ("POST", f"{_RBAC}/{_IN_DEFAULT}/roles", READ_SECRETS)),
    ("ipuhub-proxy", ("GET", f"{_JOBS}/ipujobs", None)),
    ("ipuhub-proxy", ("GET", f"{_CLUSTER}/{_IN_DEFAULT}/configmaps", None)),
    ("ipuhub-prober", ("DELETE", f"{_CLUSTER}/{_IN_DEFAULT}/pods/any", None)),
    ("ipuhub-web", ("GET", f"{_CLUSTER}/pods", None)),
    ("ipuhub-web", ("DELETE", f"{_JOBS}/{_IN_DEFAULT}/ipujobs/any", None)),
    ("ipuhub-kubelet", ("GET", f"{_CLUSTER}/configmaps", None)),
    ("ipuhub-kubelet", ("GET", f"{_JOBS}/ipujobs", None)),
    ("ipuhub-webhooks", ("GET", f"{_JOBS}/ipujobs", None)),
]


@pytest.mark.parametrize("account", ACCOUNTS)
def test_an_account_is_refused_what_its_process_does_not_need(
    demo: RunningDemo, account: str
) -> None:
    own = [request for name, request in NOT_THIS_ONE if name == account]
    for method, path, body in [*NOBODY, *own]:
        is_refused(demo.ask(method, path, body, account), account)
    as_another = demo.ask("GET", f"{_JOBS}/ipujobs", account=account, user="kubernetes-admin")
    is_refused(as_another, account)


def is_refused(answer: tuple[int, dict[str, Any]], account: str) -> None:
    code, status = answer
    assert (code, status["reason"]) == (HTTPStatus.FORBIDDEN, "Forbidden"), status
    assert f"system:serviceaccount:ipuhub-system:{account}" in status["message"]


def test_the_processes_run_with_these_accounts(demo: RunningDemo) -> None:
    kubeconfigs = {path.stem for path in (demo.directory / "accounts").glob("*.kubeconfig")}
    assert kubeconfigs == set(ACCOUNTS)
    admin = demo.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert admin == "kubernetes-admin"
