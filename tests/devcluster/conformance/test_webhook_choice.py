"""Admission webhooks: the matching webhooks of a request, and their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.api import eventually, unique
from tests.devcluster.conformance.test_webhooks import (
    CONFIG_MAPS,
    add,
    config_map,
    hooks,
    registrar,
)

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.test_webhooks import Registrar
    from tests.devcluster.conformance.webhookserver import WebhookServer

__all__ = ["hooks", "registrar"]

# the rule's changes, whether a create of a ConfigMap concerns it
RULES: dict[str, tuple[Json, bool]] = {
    "same": ({}, True),
    "any": ({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}, True),
    "any-resource": ({"resources": ["*"]}, True),
    "any-resource-and-subresource": ({"resources": ["*/*"]}, True),
    "its-subresources": ({"resources": ["configmaps/*"]}, True),
    "other-resource": ({"resources": ["secrets", "configmaps/status"]}, False),
    "other-group": ({"apiGroups": ["apps"]}, False),
    "other-version": ({"apiVersions": ["v2"]}, False),
    "other-operation": ({"operations": ["UPDATE"]}, False),
    "namespaced": ({"scope": "Namespaced"}, True),
    "cluster": ({"scope": "Cluster"}, False),
}


@pytest.mark.parametrize("row", RULES)
async def test_rules_choose(hooks: WebhookServer, registrar: Registrar, row: str) -> None:
    changes, is_called = RULES[row]
    hooks.allows("r")
    rule = {**CONFIG_MAPS, **changes}
    await registrar.register("Validating", registrar.webhook("r", rules=[rule]))
    await registrar.in_effect()
    (await registrar.make("a")).ok(201)
    assert bool(hooks.requests.get("r")) is is_called


SELECTORS: dict[str, tuple[Json, bool]] = {
    "has": ({"matchLabels": {"team": "a"}}, True),
    "has-other": ({"matchLabels": {"team": "b"}}, False),
    "in": ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}, True),
    "absent": ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False),
    "not-in": (
        {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["a"]}]},
        True,
    ),
}


@pytest.mark.parametrize("row", SELECTORS)
async def test_labels_of_the_object_choose(
    api: Api, hooks: WebhookServer, registrar: Registrar, row: str
) -> None:
    selector, is_called = SELECTORS[row]
    hooks.allows("s")
    await registrar.register("Validating", registrar.webhook("s", objectSelector=selector))
    await registrar.in_effect()
    body = config_map("a", labels={"team": "a"})
    (await api.create(registrar.path(), body)).ok(201)
    assert bool(hooks.requests.get("s")) is is_called


async def test_the_old_labels_count_too(
    api: Api, hooks: WebhookServer, registrar: Registrar
) -> None:
    hooks.allows("s")
    wanted = {"objectSelector": {"matchLabels": {"team": "a"}}}
    await registrar.register("Validating", registrar.webhook("s", **wanted))
    await registrar.in_effect()
    (await api.create(registrar.path(), config_map("a", labels={"team": "a"}))).ok(201)
    await registrar.edit("a", {"metadata": {"labels": {"team": None}}})
    await registrar.edit("a", {"data": {"x": "1"}})
    assert [one["operation"] for one in hooks.requests["s"]] == ["CREATE", "UPDATE"]


async def test_labels_of_the_namespace_choose(
    api: Api, hooks: WebhookServer, registrar: Registrar
) -> None:
    hooks.allows("n")
    other = {"namespaceSelector": {"matchLabels": {"hooked": "somebody-else"}}}
    await registrar.register("Validating", registrar.webhook("n", **other))
    await registrar.in_effect()
    (await registrar.make("a")).ok(201)
    assert "n" not in hooks.requests


async def test_configurations_go_by_name_and_each_sees_the_one_before(
    hooks: WebhookServer, registrar: Registrar
) -> None:
    hooks.allows("late", add("/data/late", "1"))
    hooks.allows("early", add("/data/early", "1"))
    await registrar.register("Mutating", registrar.webhook("late"), name="b")
    await registrar.register("Mutating", registrar.webhook("early"), name="a")
    await registrar.in_effect()
    made = (await registrar.make("x")).ok(201)
    assert made["data"] == {"given": "1", "early": "1", "late": "1"}
    assert hooks.requests["late"][-1]["object"]["data"] == {"given": "1", "early": "1"}
    assert hooks.requests["early"][-1]["object"]["data"] == {"given": "1"}


async def test_a_dry_run_is_asked_and_says_so(hooks: WebhookServer, registrar: Registrar) -> None:
    hooks.allows("m", add("/data/by", "hook"))
    webhook = registrar.webhook("m", sideEffects="NoneOnDryRun")
    await registrar.register("Mutating", webhook)
    await registrar.in_effect()
    made = (await registrar.make("a", dryRun="All")).ok(201)
    assert made["data"] == {"given": "1", "by": "hook"}
    assert hooks.requests["m"][-1]["dryRun"] is True
    assert hooks.requests["m"][-1]["options"]["dryRun"] == ["All"]


async def test_scale_is_shown_as_a_scale(
    api: Api, hooks: WebhookServer, registrar: Registrar, widgets: str
) -> None:
    hooks.allows("s")
    rule = {
        "apiGroups": [widgets],
        "apiVersions": ["*"],
        "operations": ["*"],
        "resources": ["widgets/scale"],
    }
    await registrar.register("Validating", registrar.webhook("s", rules=[rule]))
    await registrar.in_effect()
    base = f"/apis/{widgets}/v1/namespaces/{registrar.namespace}/widgets"
    body = {"apiVersion": f"{widgets}/v1", "kind": "Widget", "metadata": {"name": "w"}}
    (await api.create(base, {**body, "spec": {"replicas": 2}})).ok(201)
    assert "s" not in hooks.requests
    (await api.patch(f"{base}/w/scale", {"spec": {"replicas": 3}})).ok(200)
    request = hooks.requests["s"][-1]
    assert request["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert (request["subResource"], request["operation"]) == ("scale", "UPDATE")
    assert request["resource"]["resource"] == "widgets"
    assert request["object"]["spec"]["replicas"] == 3
    assert request["oldObject"]["spec"]["replicas"] == 2


async def test_a_custom_object_is_pruned_and_defaulted_after_the_patch(
    api: Api, hooks: WebhookServer, registrar: Registrar, widgets: str
) -> None:
    hooks.allows("c", add("/spec/nobody-knows", 1), add("/spec/count", 7))
    rule = {**CONFIG_MAPS, "apiGroups": [widgets], "resources": ["widgets"]}
    await registrar.register("Mutating", registrar.webhook("c", rules=[rule]))
    await registrar.in_effect()
    base = f"/apis/{widgets}/v1/namespaces/{registrar.namespace}/widgets"
    body = {"apiVersion": f"{widgets}/v1", "kind": "Widget", "metadata": {"name": "w"}}
    (await api.create(base, {**body, "spec": {}})).ok(201)
    spec = (await api.get(f"{base}/w")).ok()["spec"]
    assert spec["count"] == 7
    assert "nobody-knows" not in spec


async def test_configurations_themselves_are_never_asked_about(
    api: Api, hooks: WebhookServer, registrar: Registrar
) -> None:
    hooks.denies("all", message="no")
    mine = {"operator": "In", "key": "name", "values": [registrar.namespace]}
    rule = {**CONFIG_MAPS, "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    webhook = registrar.webhook("all", rules=[rule], objectSelector={"matchExpressions": [mine]})
    path = await registrar.register("Validating", webhook)
    label = {"metadata": {"labels": {"name": registrar.namespace}}}
    (await api.patch(path, label)).ok(200)

    async def is_denied() -> bool:
        body = config_map(unique("a"), labels={"name": registrar.namespace})
        return (await api.create(registrar.path(), body, dryRun="All")).status == 400

    await eventually(is_denied)
    (await api.patch(path, {"metadata": {"annotations": {"x": "1"}}})).ok(200)
    (await api.delete(path)).ok(200)


async def test_a_write_meanwhile_is_not_lost(
    api: Api, hooks: WebhookServer, registrar: Registrar
) -> None:
    """While the webhook thinks about a patch another patch is written; both stay."""
    requests: list[Any] = []

    async def answer(request: Json) -> Json:
        requests.append(request)
        if len(requests) == 1:
            (await api.patch(registrar.path("a"), {"metadata": {"labels": {"l": "2"}}})).ok(200)
        return {"uid": request["uid"], "allowed": True}

    hooks.answers["t"] = answer
    only = {"rules": [{**CONFIG_MAPS, "operations": ["UPDATE"]}], "timeoutSeconds": 20}
    (await registrar.make("a", {"x": "0"})).ok(201)
    await registrar.register("Validating", registrar.webhook("t", **only))
    await registrar.in_effect()
    (await api.patch(registrar.path("a"), {"data": {"x": "1"}})).ok(200)
    stored = (await api.get(registrar.path("a"))).ok()
    assert (stored["data"], stored["metadata"]["labels"]) == ({"x": "1"}, {"l": "2"})
    assert [one["object"]["data"]["x"] for one in requests] == ["1", "0", "1"]


async def test_defaults_are_filled_in(api: Api, registrar: Registrar) -> None:
    webhook = registrar.webhook("w")
    del webhook["timeoutSeconds"]
    path = await registrar.register("Mutating", webhook)
    stored = (await api.get(path)).ok()["webhooks"][0]
    wanted = {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": 10,
        "objectSelector": {},
    }
    assert {key: stored[key] for key in wanted} == wanted
    assert stored["rules"][0]["scope"] == "*"
