"""OpenAPI documents, as far as kubectl and other clients read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.api import eventually
from tests.devcluster.conformance.kinds import config_map, pod, widget

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kubectl import Kubectl


@pytest.mark.needs_release("1.27")
async def test_the_v3_index_points_to_a_document_per_group(api: Api, widgets: str) -> None:
    async def has_group() -> Any:
        paths = (await api.get("/openapi/v3")).ok(200)["paths"]
        return paths if f"apis/{widgets}/v1" in paths else None

    paths = await eventually(has_group)
    found = (await api.get(paths["api/v1"]["serverRelativeURL"].split("?")[0])).ok(200)
    assert found["openapi"].startswith("3.")
    assert "/api/v1/namespaces/{namespace}/pods/{name}" in found["paths"]
    own = (await api.get(f"/openapi/v3/apis/{widgets}/v1")).ok(200)
    path = own["paths"][f"/apis/{widgets}/v1/namespaces/{{namespace}}/widgets/{{name}}"]
    names = {parameter["name"] for parameter in path["patch"]["parameters"]}
    assert "fieldValidation" in names


def test_kubectl_dry_runs_an_apply_on_the_server(kubectl: Kubectl, namespace: str) -> None:
    output = kubectl.run(
        "apply", "-n", namespace, "--dry-run=server", "-f", "-", stdin=config_map("a")
    )
    assert output == "configmap/a created (server dry run)\n"
    assert "NotFound" in kubectl.fails("get", "-n", namespace, "cm", "a")


def test_kubectl_validates_custom_objects_on_the_server(
    kubectl: Kubectl, namespace: str, widgets: str
) -> None:
    body = widget(widgets, "a", count=99)
    output = kubectl.fails("apply", "-n", namespace, "--dry-run=server", "-f", "-", stdin=body)
    assert "spec.count in body should be less than or equal to 10" in output


async def test_kubectl_explains_a_custom_kind(kubectl: Kubectl, widgets: str) -> None:
    async def explained() -> Any:
        done = kubectl.call("explain", f"widgets.{widgets}")
        return done.stdout if done.returncode == 0 and "to try an API" in done.stdout else None

    output = await eventually(explained)
    assert "Widget is a thing to try an API server with." in output
    lines = [line.split() for line in output.splitlines()]
    assert ["KIND:", "Widget"] in lines
    field = kubectl.run("explain", f"widgets.{widgets}", "--recursive").split()
    assert "color" in field
    deep = kubectl.run("explain", f"{_short(widgets)}.spec.count")
    assert "How many there are." in deep
    assert "<integer>" in deep


def _short(group: str) -> str:
    """The short name that `crd_of` gives a Widget of this group."""
    return "w" + group.split(".", maxsplit=1)[0].replace("-", "")


def test_kubectl_refuses_a_wrong_type(kubectl: Kubectl, pod_namespace: str) -> None:
    body = pod("a", hostNetwork="maybe")
    output = kubectl.fails("apply", "-n", pod_namespace, "-f", "-", stdin=body)
    assert "hostNetwork" in output


def test_kubectl_refuses_an_unknown_field_of_a_pod(kubectl: Kubectl, pod_namespace: str) -> None:
    body = pod("a", hostNetwrk=True)
    output = kubectl.fails("apply", "-n", pod_namespace, "-f", "-", stdin=body)
    assert "hostNetwrk" in output
