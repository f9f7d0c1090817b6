"""The demo's processes under their own accounts: the API refuses requests beyond their rights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from devcluster.demo.processes import ACCOUNTS

if TYPE_CHECKING:
    from tests.e2e.running_demo import RunningDemo

MAKE_ADMIN = (
    "create",
    "clusterrolebinding",
    "mine",
    "--clusterrole=cluster-admin",
    "--user=ada",
)
_JOBS = "/apis/graphcore.ai/v1alpha1/namespaces/default/ipujobs"
NOBODY = [
    ("get", "secrets", "-A"),
    ("get", "mutatingwebhookconfigurations"),
    ("delete", "namespace", "default"),
    MAKE_ADMIN,
    ("get", "ipujobs", "--as", "kubernetes-admin"),
]
NOT_THIS_ONE = [
    ("ipuhub-operator", ("create", "token", "ipuhub-proxy", "-n", "ipuhub-system")),
    ("ipuhub-operator", ("get", "node", "any")),
    ("ipuhub-operator", ("delete", "node", "any")),
    ("ipuhub-operator", ("create", "role", "x", "--verb=get", "--resource=secrets")),
    ("ipuhub-proxy", ("get", "ipujobs", "-A")),
    ("ipuhub-proxy", ("get", "configmaps", "-n", "default")),
    ("ipuhub-prober", ("delete", "--raw", "/api/v1/namespaces/default/pods/any")),
    ("ipuhub-web", ("get", "pods", "-A")),
    ("ipuhub-web", ("delete", "--raw", f"{_JOBS}/any")),
    ("ipuhub-kubelet", ("get", "configmaps", "-A")),
    ("ipuhub-kubelet", ("get", "ipujobs", "-A")),
    ("ipuhub-webhooks", ("get", "ipujobs", "-A")),
]
CASES = [(account, command) for account in ACCOUNTS for command in NOBODY] + NOT_THIS_ONE


@pytest.mark.parametrize(("account", "command"), CASES)
def test_an_account_is_refused_what_its_process_does_not_need(
    demo: RunningDemo, account: str, command: tuple[str, ...]
) -> None:
    config = demo.directory / "accounts" / f"{account}.kubeconfig"
    done = demo.try_kubectl("--kubeconfig", str(config), *command)
    assert done.returncode != 0
    assert "(Forbidden)" in done.stderr or "is forbidden" in done.stderr, done.stderr
    assert f"system:serviceaccount:ipuhub-system:{account}" in done.stderr


def test_the_processes_run_with_these_accounts(demo: RunningDemo) -> None:
    kubeconfigs = {path.stem for path in (demo.directory / "accounts").glob("*.kubeconfig")}
    assert kubeconfigs == set(ACCOUNTS)
    admin = demo.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert admin == "kubernetes-admin"
