"""matchConditions of webhooks: which are refused, and which requests they let through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.devcluster.conformance.api import unique
from tests.devcluster.conformance.test_webhooks import (
    CONFIG_MAPS,
    REGISTRATION,
    add,
    config_map,
    hooks,
    registrar,
)

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Answer, Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.test_webhooks import Registrar
    from tests.devcluster.conformance.webhookserver import WebhookServer

__all__ = ["hooks", "registrar"]
pytestmark = pytest.mark.needs_release("1.30")  # 1.28 has them as beta, with other messages


def on(*expressions: str) -> list[Json]:
    return [{"name": f"c{n}", "expression": text} for n, text in enumerate(expressions)]


async def register(api: Api, registrar: Registrar, conditions: Any) -> Answer:
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": unique("conditions")},
        "webhooks": [registrar.webhook("w", matchConditions=conditions)],
    }
    plural = "validatingwebhookconfigurations"
    return await api.create(f"{REGISTRATION}/{plural}", body, dryRun="All")


# the expression, what the refusal says of it
REFUSED: dict[str, tuple[str, str]] = {
    "empty": (" ", "Required value"),
    "syntax": ("1 +", "compilation failed: ERROR: <input>:1:4: Syntax error: mismatched input"),
    "unknown-variable": ("nobody.knows == 1", "undeclared reference to 'nobody"),
    "no-parameters": ("params.x == 1", "undeclared reference to 'params"),
    "unknown-function": ("object.x.shrink() == 'a'", "undeclared reference to 'shrink'"),
    "field-of-request": ("request.nope == 'a'", "<input>:1:8: undefined field 'nope'"),
    "no-objects-in-request": ("request.object.a == 'a'", "undefined field 'object'"),
    "no-uid-in-request": ("has(request.uid)", "undefined field 'uid'"),
    "field-of-the-user": ("request.userInfo.nope == ''", "undefined field 'nope'"),
    "types-in-comparison": ("1 == 1.0", "no matching overload for '_==_' applied to '(int, double"),
    "type-of-a-field": ("request.name == 1", "no matching overload for '_==_'"),
    "text": ("'a'", "must evaluate to bool but got string"),
    "of-any-type": ("object.metadata", "must evaluate to bool but got dyn"),
    "null": ("null", "must evaluate to bool but got null_type"),
    "struct": ("request", "must evaluate to bool but got kubernetes.AdmissionRequest"),
    "in-a-macro": ("object.all(x, request.nope == x)", "<input>:1:22: undefined field 'nope'"),
}


@pytest.mark.parametrize("row", REFUSED)
async def test_expressions_that_do_not_compile(api: Api, registrar: Registrar, row: str) -> None:
    expression, problem = REFUSED[row]
    answer = await register(api, registrar, on(expression))
    cause = answer.refused(422, "Invalid")["details"]["causes"][0]
    assert cause["field"] == "webhooks[0].matchConditions[0].expression"
    assert problem in cause["message"]


# the conditions, the field that is at fault, what the refusal says of it
NAMES: dict[str, tuple[list[Json], str, str]] = {
    "missing": ([{"expression": "true"}], "[0].name", "Required value"),
    "twice": (
        [{"name": "a", "expression": "true"}, {"name": "a", "expression": "false"}],
        "[1].name",
        'Duplicate value: "a"',
    ),
    "not-qualified": (
        [{"name": "a b", "expression": "true"}],
        "[0].name",
        "name part must consist",
    ),
    "bad-prefix": ([{"name": "A_/b", "expression": "true"}], "[0].name", "prefix part a lowercase"),
    "no-expression": ([{"name": "a"}], "[0].expression", "Required value"),
    "too-many": (on(*["true"] * 65), "", "Too many: 65: must have at most 64 items"),
}


@pytest.mark.parametrize("row", NAMES)
async def test_names_and_number(api: Api, registrar: Registrar, row: str) -> None:
    conditions, field, problem = NAMES[row]
    answer = await register(api, registrar, conditions)
    cause = answer.refused(422, "Invalid")["details"]["causes"][0]
    assert cause["field"] == f"webhooks[0].matchConditions{field}"
    assert problem in cause["message"]


async def test_as_many_as_may_be(api: Api, registrar: Registrar) -> None:
    (await register(api, registrar, on(*["true"] * 64))).ok(201)


async def test_an_update_is_checked_too(api: Api, registrar: Registrar) -> None:
    path = await registrar.register("Validating", registrar.webhook("w"))
    stored = (await api.get(path)).ok()
    stored["webhooks"][0]["matchConditions"] = on("nobody.knows")
    answer = await api.replace(path, stored)
    assert "undeclared reference" in answer.refused(422, "Invalid")["message"]


# the expressions, whether the create of ConfigMap a with data.given "1" is sent to the webhook
MET: dict[str, tuple[list[str], bool]] = {
    "true": (["true"], True),
    "false": (["false"], False),
    "all-are-needed": (["true", "false"], False),
    "object": (["object.data.given == '1'"], True),
    "other-object": (["object.data.given == '2'"], False),
    "type-of-the-object": (["object.kind == 'ConfigMap' && object.apiVersion == 'v1'"], True),
    "other-type-is-unequal": (["object.data.given == 1"], False),
    "no-old-object": (["oldObject == null"], True),
    "no-namespace-object": (["namespaceObject == null"], True),
    "being-deleted": (["object == null || !has(object.metadata.deletionTimestamp)"], True),
    "operation": (["request.operation == 'CREATE'"], True),
    "name": (["request.name == 'a' && object.metadata.name == request.name"], True),
    "namespace": (["request.namespace == object.metadata.namespace"], True),
    "kind": (["request.kind.kind == 'ConfigMap' && request.kind.group == ''"], True),
    "resource": (["request.requestResource.resource == 'configmaps'"], True),
    "user": (["request.userInfo.username != 'nobody'"], True),
    "groups": (["'system:authenticated' in request.userInfo.groups"], True),
    "absent-subresource": (["!has(request.subResource)"], True),
    "not-dry": (["!request.dryRun"], True),
    "options": (["request.options.kind == 'CreateOptions'"], True),
    "macros": (["object.data.exists(key, key == 'given')"], True),
    "optional": (["object.metadata.?labels.?team.orValue('none') == 'none'"], True),
    "strings": (["object.kind.lowerAscii().startsWith('config')"], True),
    "matches": (["object.metadata.name.matches('^[a-c]$')"], True),
    "false-outdoes-errors": (["object.nope == 'a'", "false"], False),
}


@pytest.mark.parametrize("row", MET)
async def test_conditions_choose(hooks: WebhookServer, registrar: Registrar, row: str) -> None:
    expressions, is_called = MET[row]
    hooks.allows("w")
    await registrar.register("Validating", registrar.webhook("w", matchConditions=on(*expressions)))
    await registrar.in_effect()
    (await registrar.make("a")).ok(201)
    assert bool(hooks.requests.get("w")) is is_called


async def test_updates_and_deletions_have_the_old_object(
    api: Api, hooks: WebhookServer, registrar: Registrar
) -> None:
    hooks.allows("changed")
    hooks.allows("deleted")
    changed = on("oldObject != null && object != null && object.data.x != oldObject.data.x")
    deleted = on("object == null && oldObject.data.x == '2'")
    await registrar.register(
        "Validating",
        registrar.webhook("changed", matchConditions=changed),
        registrar.webhook("deleted", matchConditions=deleted),
    )
    await registrar.in_effect()
    (await registrar.make("a", {"x": "1"})).ok(201)
    await registrar.edit("a", {"metadata": {"labels": {"x": "1"}}})
    await registrar.edit("a", {"data": {"x": "2"}})
    (await api.delete(registrar.path("a"))).ok(200)
    operations = {name: [one["operation"] for one in all_] for name, all_ in hooks.requests.items()}
    assert operations == {"changed": ["UPDATE"], "deleted": ["DELETE"]}


async def test_a_condition_sees_what_earlier_webhooks_changed(
    hooks: WebhookServer, registrar: Registrar
) -> None:
    hooks.allows("first", add("/data/by", "first"))
    hooks.allows("second", add("/data/and", "second"))
    await registrar.register(
        "Mutating",
        registrar.webhook("first"),
        registrar.webhook("second", matchConditions=on("object.data.by == 'first'")),
    )
    await registrar.in_effect()
    made = (await registrar.make("a")).ok(201)
    assert made["data"] == {"given": "1", "by": "first", "and": "second"}


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_an_error_refuses_the_request(
    api: Api, hooks: WebhookServer, registrar: Registrar, kind: str
) -> None:
    """Before anything was sent to the webhook, and whatever it would have said."""
    hooks.allows("w")
    only = [{**CONFIG_MAPS, "operations": ["UPDATE"]}]
    (await registrar.make("a")).ok(201)
    conditions = on("object.nope == 'a'", "object.data.none == 'b'", "true")
    await registrar.register(kind, registrar.webhook("w", rules=only, matchConditions=conditions))
    await registrar.in_effect()
    body = {"data": {"x": "1"}}
    refused = (await api.patch(registrar.path("a"), body)).refused(403, "Forbidden")
    assert refused["message"] == (
        'configmaps "a" is forbidden: '
        "[expression 'object.nope == 'a'' resulted in error: no such key: nope, "
        "expression 'object.data.none == 'b'' resulted in error: no such key: none]"
    )
    assert "w" not in hooks.requests


async def test_an_error_may_be_ignored(hooks: WebhookServer, registrar: Registrar) -> None:
    hooks.denies("w", message="no")
    webhook = registrar.webhook(
        "w", matchConditions=on("object.nope == 'a'"), failurePolicy="Ignore"
    )
    await registrar.register("Validating", webhook)
    await registrar.in_effect()
    (await registrar.make("a")).ok(201)
    assert "w" not in hooks.requests


@pytest.mark.embedded_only
@pytest.mark.parametrize(
    "expression",
    [
        "authorizer.group('').resource('pods').check('get').allowed()",
        "object.data.x.find('a') == 'a'",
        "url('https://a').getHost() == 'a'",
    ],
)
async def test_what_the_embedded_api_cannot_evaluate_is_refused_in_words(
    api: Api, registrar: Registrar, expression: str
) -> None:
    answer = await register(api, registrar, on(expression))
    message = answer.refused(422, "Invalid")["message"]
    assert "no authorizer and none of the libraries of Kubernetes" in message


async def test_generated_names_are_seen(
    hooks: WebhookServer, api: Api, registrar: Registrar
) -> None:
    hooks.allows("w")
    webhook = registrar.webhook("w", matchConditions=on("request.name.startsWith('given-')"))
    await registrar.register("Validating", webhook)
    await registrar.in_effect()
    body = config_map("x", generateName="given-")
    del body["metadata"]["name"]
    (await api.create(registrar.path(), body)).ok(201)
    assert len(hooks.requests["w"]) == 1
