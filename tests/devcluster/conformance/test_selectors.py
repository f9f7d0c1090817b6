"""Label and field selectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.devcluster.conformance.api import unique
from tests.devcluster.conformance.kinds import config_map, maps, pod, pods, widget, widgets_path

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api

LABELS = {
    "a": {"color": "red", "size": "1"},
    "b": {"color": "blue", "size": "2"},
    "c": {"color": "green"},
    "d": {},
}
LABEL_SELECTORS: dict[str, tuple[str, str]] = {
    "equals": ("color=red", "a"),
    "double-equals": ("color==red", "a"),
    "differs": ("color!=red", "bcd"),
    "in": ("color in (red,blue)", "ab"),
    "not-in": ("color notin (red, blue)", "cd"),
    "exists": ("size", "ab"),
    "does-not-exist": ("!size", "cd"),
    "both": ("color in (red,blue),size=2", "b"),
    "nothing": ("color=pink", ""),
    "empty-value": ("color=", ""),
    "greater": ("size>1", "b"),
    "less": ("size<2", "a"),
    "everything": ("", "abcd"),
    "spaces": (" color = red ", "a"),
}


@pytest.mark.parametrize("row", LABEL_SELECTORS)
async def test_a_label_selector_finds_these(api: Api, namespace: str, row: str) -> None:
    selector, want = LABEL_SELECTORS[row]
    for name, labels in LABELS.items():
        body = config_map(name, labels={**labels, "mine": "yes"})
        (await api.create(maps(namespace), body)).ok(201)
    selector = f"mine=yes,{selector}" if selector else "mine=yes"
    found = (await api.get(maps(namespace), labelSelector=selector)).ok(200)
    assert "".join(item["metadata"]["name"] for item in found["items"]) == want


BAD_LABEL_SELECTORS = {
    "a b": "found 'b', expected: in, notin, =, ==, !=, gt, lt",
    "color=red blue": "found 'blue', expected: ',' or 'end of string'",
    "color in red": "found 'red' expected: '('",
    "color in (": "found '', expected: ',', ')' or identifier",
    "=red": "found '=', expected: !, identifier, or 'end of string'",
    "color>x": "for 'Gt', 'Lt' operators, the value must be an integer",
    "!": "found '', expected: identifier",
    "a=?": '"?"',
}


@pytest.mark.parametrize("selector", BAD_LABEL_SELECTORS)
async def test_a_bad_label_selector_is_400(api: Api, namespace: str, selector: str) -> None:
    answer = await api.get(maps(namespace), labelSelector=selector)
    status = answer.refused(400, "BadRequest")
    assert BAD_LABEL_SELECTORS[selector] in status["message"]


POD_FIELDS: dict[str, tuple[str, str]] = {
    "name": ("metadata.name=a", "a"),
    "not-name": ("metadata.name!=a", "b"),
    "node": ("spec.nodeName=nowhere", "a"),
    "no-node": ("spec.nodeName=", "b"),
    "phase": ("status.phase=Pending", "ab"),
    "other-phase": ("status.phase!=Pending", ""),
    "restart-policy": ("spec.restartPolicy=Never", "b"),
    "scheduler": ("spec.schedulerName=nobody", "ab"),
    "both": ("metadata.name=a,status.phase=Pending", "a"),
    "double-equals": ("metadata.name==b", "b"),
    "service-account": ("spec.serviceAccountName=default", "ab"),
}


@pytest.mark.parametrize("row", POD_FIELDS)
async def test_a_field_selector_finds_these_pods(api: Api, pod_namespace: str, row: str) -> None:
    selector, want = POD_FIELDS[row]
    account = {"serviceAccountName": "default"}
    first = pod("a", nodeName="nowhere", schedulerName="nobody", **account)
    second = pod("b", restartPolicy="Never", schedulerName="nobody", **account)
    for body in (first, second):
        (await api.create(pods(pod_namespace), body)).ok(201)
    found = (await api.get(pods(pod_namespace), fieldSelector=selector)).ok(200)
    assert "".join(item["metadata"]["name"] for item in found["items"]) == want


async def test_the_namespace_is_a_field_of_every_kind(
    api: Api, namespace: str, widgets: str
) -> None:
    (await api.create(widgets_path(widgets, namespace), widget(widgets, "a"))).ok(201)
    everywhere = f"/apis/{widgets}/v1/widgets"
    selector = f"metadata.namespace={namespace},metadata.name=a"
    found = (await api.get(everywhere, fieldSelector=selector)).ok(200)
    assert [item["metadata"]["name"] for item in found["items"]] == ["a"]
    other = f"metadata.namespace={unique('other')}"
    assert (await api.get(everywhere, fieldSelector=other)).ok(200)["items"] == []


@pytest.mark.parametrize("kind", ["pods", "configmaps", "widgets"])
async def test_an_unknown_field_of_a_field_selector_is_400(
    api: Api, namespace: str, widgets: str, kind: str
) -> None:
    paths = {
        "pods": pods(namespace),
        "configmaps": maps(namespace),
        "widgets": widgets_path(widgets, namespace),
    }
    answer = await api.get(paths[kind], fieldSelector="spec.nonsense=1")
    status = answer.refused(400, "BadRequest")
    assert "spec.nonsense" in status["message"]


async def test_a_field_selector_without_operator_is_400(api: Api, namespace: str) -> None:
    answer = await api.get(pods(namespace), fieldSelector="metadata.name")
    status = answer.refused(400, "BadRequest")
    assert "invalid selector" in status["message"]


async def test_secrets_are_found_by_type(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    for name, kind in (("a", "Opaque"), ("b", "example.com/own")):
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind}
        (await api.create(path, body)).ok(201)
    found = (await api.get(path, fieldSelector="type=example.com/own")).ok(200)
    assert [item["metadata"]["name"] for item in found["items"]] == ["b"]
