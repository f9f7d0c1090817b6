"""Custom objects: generation, status, scale, and strict field validation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.devcluster.conformance.kinds import widget, widgets_path

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kubectl import Kubectl


async def test_generation_counts_changes_of_the_spec_only(
    api: Api, namespace: str, widgets: str
) -> None:
    path = widgets_path(widgets, namespace, "a")
    made = (await api.create(widgets_path(widgets, namespace), widget(widgets, "a"))).ok(201)
    assert made["metadata"]["generation"] == 1
    labelled = (await api.patch(path, {"metadata": {"labels": {"a": "b"}}})).ok(200)
    assert labelled["metadata"]["generation"] == 1
    changed = (await api.patch(path, {"spec": {"count": 2}})).ok(200)
    assert changed["metadata"]["generation"] == 2
    status = (await api.patch(f"{path}/status", {"status": {"phase": "x"}})).ok(200)
    assert status["metadata"]["generation"] == 2
    forged = (await api.patch(path, {"metadata": {"generation": 77}})).ok(200)
    assert forged["metadata"]["generation"] == 2


async def test_status_is_dropped_at_creation_and_written_only_by_its_path(
    api: Api, namespace: str, widgets: str
) -> None:
    body = {**widget(widgets, "a", count=1), "status": {"phase": "made"}}
    made = (await api.create(widgets_path(widgets, namespace), body)).ok(201)
    assert "status" not in made
    path = widgets_path(widgets, namespace, "a")
    main = (await api.patch(path, {"status": {"phase": "main"}})).ok(200)
    assert "status" not in main
    change = {"spec": {"count": 9}, "status": {"phase": "sub", "bogus": 1}}
    sub = (await api.patch(f"{path}/status", change)).ok(200)
    assert sub["status"] == {"phase": "sub"}
    assert sub["spec"]["count"] == 1


async def test_the_status_path_changes_no_labels_of_a_custom_object(
    api: Api, namespace: str, widgets: str
) -> None:
    (await api.create(widgets_path(widgets, namespace), widget(widgets, "a"))).ok(201)
    path = widgets_path(widgets, namespace, "a", "status")
    change = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "x"}}
    made = (await api.patch(path, change)).ok(200)
    assert "labels" not in made["metadata"]


async def test_a_bad_status_is_422(api: Api, namespace: str, widgets: str) -> None:
    (await api.create(widgets_path(widgets, namespace), widget(widgets, "a"))).ok(201)
    path = widgets_path(widgets, namespace, "a", "status")
    status = (await api.patch(path, {"status": {"replicas": "x"}})).refused(422, "Invalid")
    words = 'status.replicas: Invalid value: "string": replicas in body must be of type integer'
    assert words in status["message"]


async def test_scale_reads_and_writes_the_replicas(api: Api, namespace: str, widgets: str) -> None:
    (await api.create(widgets_path(widgets, namespace), widget(widgets, "a", replicas=1))).ok(201)
    (
        await api.patch(
            widgets_path(widgets, namespace, "a", "status"),
            {"status": {"replicas": 1, "selector": "a=b"}},
        )
    ).ok(200)
    path = widgets_path(widgets, namespace, "a", "scale")
    scale = (await api.get(path)).ok(200)
    assert scale["kind"] == "Scale"
    assert scale["apiVersion"] == "autoscaling/v1"
    assert scale["spec"] == {"replicas": 1}
    assert scale["status"] == {"replicas": 1, "selector": "a=b"}
    scale["spec"]["replicas"] = 4
    assert (await api.replace(path, scale)).ok(200)["spec"] == {"replicas": 4}
    changed = (await api.get(widgets_path(widgets, namespace, "a"))).ok(200)
    assert changed["spec"]["replicas"] == 4
    assert changed["metadata"]["generation"] == 2


async def test_a_stale_or_negative_scale_is_refused(api: Api, namespace: str, widgets: str) -> None:
    (await api.create(widgets_path(widgets, namespace), widget(widgets, "a", replicas=1))).ok(201)
    path = widgets_path(widgets, namespace, "a", "scale")
    scale = (await api.get(path)).ok(200)
    (await api.patch(path, {"spec": {"replicas": 2}})).ok(200)
    (await api.replace(path, scale)).refused(409, "Conflict")
    (await api.patch(path, {"spec": {"replicas": -1}})).refused(422, "Invalid")


async def test_there_is_no_scale_to_read_without_replicas(
    api: Api, namespace: str, widgets: str
) -> None:
    (await api.create(widgets_path(widgets, namespace), widget(widgets, "a"))).ok(201)
    answer = await api.get(widgets_path(widgets, namespace, "a", "scale"))
    status = answer.refused(500, "InternalError")
    assert 'the spec replicas field ".spec.replicas" does not exist' in status["message"]


def test_kubectl_scales_a_custom_object(kubectl: Kubectl, namespace: str, widgets: str) -> None:
    kubectl.run("apply", "-n", namespace, "-f", "-", stdin=widget(widgets, "a", replicas=1))
    kind = f"widgets.{widgets}"
    output = kubectl.run("scale", "-n", namespace, kind, "a", "--replicas=3")
    assert output == f"widget.{widgets}/a scaled\n"
    assert kubectl.json("get", "-n", namespace, kind, "a")["spec"]["replicas"] == 3
    refused = kubectl.fails(
        "scale", "-n", namespace, kind, "a", "--replicas=5", "--current-replicas=1"
    )
    assert "Expected replicas to be 1, was 3" in refused


@pytest.mark.needs_release("1.25")
async def test_strict_field_validation_refuses_unknown_fields(
    api: Api, namespace: str, widgets: str
) -> None:
    body = widget(widgets, "a", colour="red")
    path = widgets_path(widgets, namespace)
    status = (await api.create(path, body, fieldValidation="Strict")).refused(400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.colour"' in status["message"]


@pytest.mark.needs_release("1.25")
async def test_unknown_fields_are_a_warning_for_clients_that_ask_nothing(
    api: Api, namespace: str, widgets: str
) -> None:
    body = widget(widgets, "a", colour="red")
    answer = await api.create(widgets_path(widgets, namespace), body)
    answer.ok(201)
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.colour\\""'


@pytest.mark.needs_release("1.25")
async def test_ignored_field_validation_says_nothing(
    api: Api, namespace: str, widgets: str
) -> None:
    body = widget(widgets, "a", colour="red")
    answer = await api.create(widgets_path(widgets, namespace), body, fieldValidation="Ignore")
    answer.ok(201)
    assert "Warning" not in answer.headers


@pytest.mark.needs_release("1.25")
def test_kubectl_apply_refuses_unknown_fields(
    kubectl: Kubectl, namespace: str, widgets: str
) -> None:
    body = widget(widgets, "a", colour="red", nested={"inner": "x", "outer": 1})
    output = kubectl.fails("apply", "-n", namespace, "-f", "-", stdin=body)
    assert 'unknown field "spec.colour"' in output
    assert 'unknown field "spec.nested.outer"' in output


@pytest.mark.needs_release("1.29")
async def test_a_finalizer_without_a_path_is_a_warning_when_it_is_added(
    api: Api, namespace: str, widgets: str
) -> None:
    body = widget(widgets, "a")
    body["metadata"]["finalizers"] = ["example.com/good", "z.example.com", "a.example.com"]
    made = await api.create(widgets_path(widgets, namespace), body)
    made.ok(201)
    warnings = [
        f'299 - "metadata.finalizers: \\"{name}\\": prefer a domain-qualified finalizer name '
        'including a path (/) to avoid accidental conflicts with other finalizer writers"'
        for name in ("a.example.com", "z.example.com")
    ]
    assert made.headers.getall("Warning") == warnings
    path = widgets_path(widgets, namespace, "a")
    labelled = await api.patch(path, {"metadata": {"labels": {"a": "b"}}})
    labelled.ok(200)
    assert "Warning" not in labelled.headers
    (await api.patch(path, {"metadata": {"finalizers": []}})).ok(200)
    again = await api.patch(path, {"metadata": {"finalizers": ["a.example.com"]}})
    again.ok(200)
    assert again.headers.getall("Warning") == warnings[:1]
    (await api.patch(path, {"metadata": {"finalizers": []}})).ok(200)
