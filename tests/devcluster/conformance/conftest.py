"""glue: runs every conformance test on the embedded server and on the real server, if any.

A test that takes `server` (or anything built on it) runs as [embedded] and [real]. Behaviour that
is known to differ stands in differences.toml: such a test must fail on the embedded server.
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.devcluster.conformance import servers
from tests.devcluster.conformance.api import connect, eventually, unique
from tests.devcluster.conformance.kinds import WIDGET_CRD, crd_of
from tests.devcluster.conformance.kubectl import Kubectl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.devcluster.conformance.api import Api

HERE = Path(__file__).parent
DIFFERENCES = HERE / "differences.toml"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", 'needs_release("1.25"): on a real server only from that release on'
    )
    config.addinivalue_line(
        "markers", "expires_history: on a real server only where etcd can be compacted"
    )


@functools.cache
def _real_version() -> tuple[int, int]:
    return servers.real_version()


def _runs_on_real(metafunc: pytest.Metafunc) -> bool:
    if not servers.real_is_wanted() or list(metafunc.definition.iter_markers("embedded_only")):
        return False
    if list(metafunc.definition.iter_markers("full_cluster")):
        return servers.real_has_controllers()
    if list(metafunc.definition.iter_markers("expires_history")):
        return servers.real_can_expire_history()
    for mark in metafunc.definition.iter_markers("needs_release"):
        major, minor = mark.args[0].split(".")
        if _real_version() < (int(major), int(minor)):
            return False
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        names = ["embedded", "real"] if _runs_on_real(metafunc) else ["embedded"]
        metafunc.parametrize("server", names, indirect=True, scope="session")


@functools.cache
def listed_differences() -> dict[str, str]:
    """Test id without folder and server, `test_x.py::test_y[row]` -> the reason."""
    entries = tomllib.loads(DIFFERENCES.read_text())["difference"]
    return {test: entry["reason"] for entry in entries for test in entry["tests"]}


def plain_id(item: pytest.Item) -> str:
    """The id of a test as differences.toml writes it."""
    name = item.name
    for server in ("embedded", "real"):
        name = name.replace(f"[{server}]", "").replace(f"[{server}-", "[")
        name = name.replace(f"-{server}]", "]")
    return f"{item.path.name}::{name}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    listed = listed_differences()
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or callspec.params.get("server") != "embedded":
            continue
        reason = listed.get(plain_id(item)) if item.path.parent == HERE else None
        if reason:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True, raises=AssertionError))


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """The API server of this run of the test."""
    with servers.start(request.param) as running:
        yield running


@pytest.fixture
async def api(server: servers.Server) -> AsyncIterator[Api]:
    """Plain HTTPS as the administrator."""
    async with connect(server.kubeconfig) as connected:
        yield connected


@pytest.fixture(scope="session")
def kubectl(server: servers.Server, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """The real kubectl as the administrator."""
    return Kubectl(server.kubeconfig, tmp_path_factory.mktemp("kubectl"))


@pytest.fixture(scope="session")
def widgets(kubectl: Kubectl) -> Iterator[str]:
    """A rich custom resource, made once for all tests: its group."""
    group = f"{unique('c')}.example.com"
    kubectl.run("apply", "-f", "-", stdin=crd_of(WIDGET_CRD, group))
    name = f"widgets.{group}"
    kubectl.wait_established(name)
    yield group
    kubectl.run("delete", "crd", name, "--wait=false")


@pytest.fixture
async def namespace(api: Api) -> AsyncIterator[str]:
    """A namespace of the test's own."""
    name = unique("conf")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    (await api.create("/api/v1/namespaces", body)).ok(201)
    yield name
    await api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
async def pod_namespace(api: Api, namespace: str, server: servers.Server) -> str:
    """A namespace in which pods can be made: admission knows its default service account."""
    if not server.is_embedded and not servers.real_has_controllers():
        return namespace
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {"containers": [{"name": "main", "image": "probe:1"}]},
    }

    async def takes_pods() -> bool:
        # The account, before 1.24 with its token, is there a while before admission has seen it.
        made = await api.create(f"/api/v1/namespaces/{namespace}/pods", pod, dryRun="All")
        return made.status == 201

    await eventually(takes_pods)
    return namespace
