"""An API server with RBAC, and a dashboard whose account may impersonate three users and a group.

The embedded server, or the real server of IPUHUB_TEST_KUBECONFIG.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devcluster.demo.cluster import CRD_FILE, apply_file, apply_manifest, write_account_kubeconfig
from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ApiError, NotFound
from ipuhub.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES
from jobs.ipujob.names import IPUJOBS
from tests.builders import jobhistory
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from jobs.models import JobRecord
    from tests.fakes.background import Background

RBAC = "rbac.authorization.k8s.io"
SPEC = {"jobInstances": 1, "ipusPerJobInstance": 1, "workersPerJobInstance": 1}
SPEC |= {"workers": {"template": {"spec": {"containers": [{"name": "worker", "image": "x"}]}}}}
ACCOUNT, ACTING, GROUP = "dashboard", "actions-test-acting", "lab:trainers"


class ActionsLab:
    """`ann` may change jobs of team-a, and so may `gina` in the group `lab:trainers`; `bob` may
    only read; `eve` is not to be impersonated."""

    def __init__(self, background: Background, directory: Path, given: str) -> None:
        self._background = background
        self._server: DevCluster | None = None
        self._admin = given
        if not self._admin:
            self._server = DevCluster(directory, authorization="rbac")
            background.run(self._server.start())
            self._admin = str(self._server.kubeconfig)
        self.kubeconfig = str(background.run(self._prepare(directory)))

    def close(self) -> None:
        """Remove what would stay."""
        if self._server is not None:
            self._background.run(self._server.stop())
            return
        for namespace in ("team-a", "team-b"):
            self.run("delete", NAMESPACES, namespace)
        self.run("delete", CLUSTER_ROLES, ACTING)
        self.run("delete", CLUSTER_ROLE_BINDINGS, ACTING)
        self._background.run(self._until_gone())

    def run(self, verb: str, *arguments: Any, **options: Any) -> Any:
        """Do something as the cluster's administrator."""
        return self._background.run(self._run(verb, arguments, options))

    def add(self, name: str = "train", namespace: str = "team-a", **spec: Any) -> JobRecord:
        """Create a job in the cluster, and its record."""
        made = self.create(name, namespace, **spec)
        return jobhistory.job(name, namespace, uid=made["metadata"]["uid"], spec=made["spec"])

    def create(self, name: str = "train", namespace: str = "team-a", **spec: Any) -> dict[str, Any]:
        """Create a job in the cluster."""
        body: dict[str, Any] = {"apiVersion": IPUJOBS.api_version, "kind": IPUJOBS.kind}
        body |= {"metadata": {"name": name, "namespace": namespace}, "spec": SPEC | spec}
        made: dict[str, Any] = self.run("create", IPUJOBS, body)
        return made

    def spec_of(self, job: JobRecord) -> dict[str, Any] | None:
        """The job's spec in the cluster now; None if it is gone."""
        try:
            found: dict[str, Any] = self.run("get", IPUJOBS, job.name, job.namespace)["spec"]
        except NotFound:
            return None
        return found

    async def _run(self, verb: str, arguments: Any, options: Any) -> Any:
        async with KubeClient(load_config(self._admin)) as client:
            return await getattr(client, verb)(*arguments, **options)

    async def _until_gone(self) -> None:
        """Another module uses the same names."""
        async with KubeClient(load_config(self._admin)) as client:

            async def is_gone() -> bool:
                found = (await client.list(NAMESPACES)).items
                return not {one["metadata"]["name"] for one in found} & {"team-a", "team-b"}

            await eventually(is_gone)

    async def _prepare(self, directory: Path) -> Path:
        async with KubeClient(load_config(self._admin)) as client:
            await apply_file(client, CRD_FILE)
            for manifest in _manifests():
                await apply_manifest(client, manifest)
            path = await write_account_kubeconfig(
                client, Path(self._admin), directory / "accounts", f"team-a/{ACCOUNT}"
            )
        await self._until_granted(path)
        return path

    async def _until_granted(self, path: Path) -> None:
        """A real server learns of new kinds and roles within a second."""
        config = load_config(str(path))
        async with (
            KubeClient(config.acting_as("ann@lab")) as ann,
            KubeClient(config.acting_as("bob@lab")) as bob,
        ):

            async def may() -> bool:
                try:
                    await asyncio.gather(
                        bob.list(IPUJOBS, "team-a"),
                        ann.request("DELETE", IPUJOBS.path("team-a"), params={"dryRun": "All"}),
                    )
                except ApiError:
                    return False
                return True

            await eventually(may)


def _manifests() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in ("team-a", "team-b")
    ]
    account = {"name": ACCOUNT, "namespace": "team-a"}
    found.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    acting = [
        {"apiGroups": [""], "resources": [kind], "resourceNames": names, "verbs": ["impersonate"]}
        for kind, names in (("users", ["ann@lab", "bob@lab", "gina@lab"]), ("groups", [GROUP]))
    ]
    found += _granted("Cluster", ACTING, acting, {"kind": "ServiceAccount", **account})
    verbs = {"change": ["create", "patch", "delete", "deletecollection"], "look": ["get", "list"]}
    for name, user in (("change", "ann@lab"), ("look", "bob@lab")):
        rule = {"apiGroups": ["graphcore.ai"], "resources": ["ipujobs"], "verbs": verbs[name]}
        found += _granted("", name, [rule], {"kind": "User", "name": user, "apiGroup": RBAC})
    trainers = {"kind": "Group", "name": GROUP, "apiGroup": RBAC}
    return [*found, _bound("", "change", "trainers", trainers)]


def _granted(
    scope: str, name: str, rules: list[dict[str, Any]], subject: dict[str, str]
) -> list[dict[str, Any]]:
    role = _head(scope, name) | {"kind": f"{scope}Role", "rules": rules}
    return [role, _bound(scope, name, name, subject)]


def _bound(scope: str, role: str, name: str, subject: dict[str, str]) -> dict[str, Any]:
    reference = {"apiGroup": RBAC, "kind": f"{scope}Role", "name": role}
    binding = {"kind": f"{scope}RoleBinding", "roleRef": reference, "subjects": [subject]}
    return _head(scope, name) | binding


def _head(scope: str, name: str) -> dict[str, Any]:
    metadata = {"name": name} | ({} if scope else {"namespace": "team-a"})
    return {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
