"""Admission webhooks: calls, requests and the effect of responses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from tests.devcluster.conformance import servers
from tests.devcluster.conformance.api import eventually, unique
from tests.devcluster.conformance.webhookserver import WebhookServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.devcluster.conformance.api import Answer, Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS: Json = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE", "DELETE"],
    "resources": ["configmaps"],
}


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[WebhookServer]:
    server = WebhookServer(tmp_path)
    await server.start()
    yield server
    await server.stop()


class Registrar:
    """Makes configurations for the test's namespace and waits until they are in force."""

    def __init__(self, api: Api, hooks: WebhookServer, namespace: str) -> None:
        self._api, self._hooks, self.namespace = api, hooks, namespace
        self.made: list[str] = []

    def webhook(self, name: str, **changes: Any) -> Json:
        """One webhook at `/name` for the ConfigMaps of the namespace."""
        mine = {"matchLabels": {"hooked": self.namespace}}
        return {
            "name": f"{name}.example.com",
            "clientConfig": self._hooks.client(name),
            "rules": [CONFIG_MAPS],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": mine,
            "timeoutSeconds": 5,
            **changes,
        }

    async def register(self, kind: str, *webhooks: Json, name: str = "") -> str:
        """Store a `Mutating` or `Validating` configuration; return its path."""
        plural = f"{kind.lower()}webhookconfigurations"
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": unique(name or "conf")},
            "webhooks": list(webhooks),
        }
        (await self._api.create(f"{REGISTRATION}/{plural}", body)).ok(201)
        self.made.append(f"{REGISTRATION}/{plural}/{body['metadata']['name']}")
        return self.made[-1]

    async def in_effect(self) -> None:
        """Return when the server calls the registered webhooks: probes of its own show it.

        It calls a mutating webhook first, and a validating webhook beside the others.
        """
        self._hooks.allows("probe")
        for kind in ("Mutating", "Validating"):
            if any(kind.lower() in path for path in self.made):
                path = await self.register(kind, self.webhook("probe"), name="a-probe")
                await eventually(lambda: self._is_probed(on=True))
                await self._api.delete(path)
                await eventually(lambda: self._is_probed(on=False))
        self._hooks.requests.clear()

    async def _is_probed(self, *, on: bool) -> bool:
        self._hooks.requests.pop("probe", None)
        await self.make(unique("probe"), dryRun="All")
        return ("probe" in self._hooks.requests) is on

    async def make(self, name: str, data: Json | None = None, **params: Any) -> Answer:
        """Create a ConfigMap."""
        return await self._api.create(self.path(), config_map(name, data), **params)

    async def edit(self, name: str, body: Json) -> Answer:
        """Patch a ConfigMap, and return when the server's own cache has it.

        The real server shows the webhooks of the next write the object of its watch cache,
        stale for some milliseconds, and asks them again with the stored object when that write
        fails.
        """
        answer = await self._api.patch(self.path(name), body)
        revision = answer.ok(200)["metadata"]["resourceVersion"]
        (await self._api.get(self.path(name), resourceVersion=revision)).ok(200)
        return answer

    def path(self, name: str = "") -> str:
        base = f"/api/v1/namespaces/{self.namespace}/configmaps"
        return f"{base}/{name}" if name else base


@pytest.fixture
async def registrar(
    api: Api, hooks: WebhookServer, namespace: str, server: servers.Server
) -> AsyncIterator[Registrar]:
    if not server.is_embedded and servers.real_has_controllers():
        # A controller's ConfigMap that comes late would be one more request.
        root = f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt"
        await eventually(lambda: _is_there(api, root))
    label = {"metadata": {"labels": {"hooked": namespace}}}
    (await api.patch(f"/api/v1/namespaces/{namespace}", label)).ok()
    registrar = Registrar(api, hooks, namespace)
    yield registrar
    for path in registrar.made:
        await api.delete(path)


async def _is_there(api: Api, path: str) -> bool:
    return (await api.get(path)).status == 200


def config_map(name: str, data: Json | None = None, **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": data or {"given": "1"},
    }


def add(path: str, value: Any) -> Json:
    return {"op": "add", "path": path, "value": value}


async def test_a_patch_is_stored_and_the_request_is_described(
    api: Api, hooks: WebhookServer, registrar: Registrar
) -> None:
    hooks.allows("m", add("/data/by", "hook"), add("/metadata/labels", {"seen": "yes"}))
    await registrar.register("Mutating", registrar.webhook("m"))
    await registrar.in_effect()
    made = (await registrar.make("a", {"x": "1"}, fieldManager="me")).ok(201)
    assert made["data"] == {"x": "1", "by": "hook"}
    assert made["metadata"]["labels"] == {"seen": "yes"}
    request = hooks.requests["m"][-1]
    assert request["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert request["requestKind"] == request["kind"]
    assert request["requestResource"] == request["resource"]
    assert (request["operation"], request["name"]) == ("CREATE", "a")
    assert request["namespace"] == registrar.namespace
    assert request["object"]["data"] == {"x": "1"}
    assert request["oldObject"] is None
    assert request["dryRun"] is False
    assert request["options"]["kind"] == "CreateOptions"
    assert request["options"]["fieldManager"] == "me"
    assert "system:authenticated" in request["userInfo"]["groups"]
    assert request["_query"] == {"timeout": "5s"}


async def test_updates_and_deletions_show_the_old_object(
    api: Api, hooks: WebhookServer, registrar: Registrar
) -> None:
    for name, kind in (("m", "Mutating"), ("v", "Validating")):
        hooks.allows(name)
        await registrar.register(kind, registrar.webhook(name))
    await registrar.in_effect()
    (await registrar.make("a", {"x": "1"})).ok(201)
    await registrar.edit("a", {"data": {"x": "2"}})
    (await api.delete(registrar.path("a"))).ok(200)
    for name in ("m", "v"):
        create, update, delete = hooks.requests[name]
        assert create["oldObject"] is None
        assert update["operation"] == "UPDATE"
        assert (update["oldObject"]["data"], update["object"]["data"]) == ({"x": "1"}, {"x": "2"})
        assert update["options"]["kind"] == "UpdateOptions"
        assert (delete["operation"], delete["object"]) == ("DELETE", None)
        assert delete["oldObject"]["data"] == {"x": "2"}
        assert delete["options"]["kind"] == "DeleteOptions"


DENIALS: dict[str, tuple[Json, int, str, str]] = {
    "message": ({"message": "no way"}, 400, "", ": no way"),
    "code-and-reason": (
        {"code": 403, "reason": "Forbidden", "message": "not you"},
        403,
        "Forbidden",
        ": not you",
    ),
    "reason-only": ({"reason": "BecauseOf"}, 400, "BecauseOf", ": BecauseOf"),
    "nothing": ({}, 400, "", " without explanation"),
    "code-of-a-success": ({"code": 200, "message": "odd"}, 400, "", ": odd"),
}


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
@pytest.mark.parametrize("row", DENIALS)
async def test_a_denial_is_told_in_the_servers_words(
    api: Api, hooks: WebhookServer, registrar: Registrar, kind: str, row: str
) -> None:
    status, code, reason, words = DENIALS[row]
    hooks.denies("d", **status)
    await registrar.register(kind, registrar.webhook("d"))
    await registrar.in_effect()
    answer = await registrar.make("a")
    assert answer.status == code, answer.body
    assert answer.body["message"] == (
        f'admission webhook "d.example.com" denied the request{words}'
    )
    assert answer.body.get("reason", "") == reason
    assert '299 - "looked at"' in answer.headers.get("Warning", "")
    assert (await api.get(registrar.path("a"))).status == 404


async def test_a_denied_deletion_leaves_the_object(
    api: Api, hooks: WebhookServer, registrar: Registrar
) -> None:
    hooks.denies("d", message="keep it")
    rule = {**CONFIG_MAPS, "operations": ["DELETE"]}
    await registrar.register("Validating", registrar.webhook("d", rules=[rule]))
    await registrar.in_effect()
    (await registrar.make("a")).ok(201)
    assert "keep it" in (await api.delete(registrar.path("a"))).body["message"]
    assert "keep it" in (await api.delete(registrar.path())).body["message"]
    (await api.get(registrar.path("a"))).ok(200)


async def test_warnings_reach_the_client(
    hooks: WebhookServer, registrar: Registrar, kubectl: Kubectl
) -> None:
    hooks.allows("w", warnings=("think twice", 'about "it"'))
    await registrar.register("Validating", registrar.webhook("w"))
    await registrar.in_effect()
    command = ("create", "configmap", "a", "-n", registrar.namespace)
    done = await asyncio.to_thread(kubectl.call, *command)
    assert done.returncode == 0, done.stderr
    assert 'Warning: think twice\nWarning: about "it"' in done.stderr


FAILURES: dict[str, str] = {
    # Each server says these in the words of its own HTTP client.
    **dict.fromkeys(("refused", "untrusted", "slow", "absent", "error"), ""),
    "no-response": "webhook response was absent",
    "other-uid": 'expected response.uid="',
    "other-kind": "admission.k8s.io/v1",
    "patch-without-type": "webhook returned response.patch but not response.patchType",
}


def set_failure(hooks: WebhookServer, row: str) -> Json:
    """Let `/f` fail in some way; return the changes of its webhook."""

    async def answer(request: Json) -> Any:
        allowed = {"uid": request["uid"], "allowed": True}
        if row == "slow":
            await asyncio.sleep(5)
        replies = {
            "absent": web.Response(status=404),
            "error": web.Response(status=500, text="broken"),
            "no-response": None,
            "other-uid": {**allowed, "uid": "x"},
            "other-kind": web.json_response({"kind": "X", "response": allowed}),
            "patch-without-type": {**allowed, "patch": "W10="},
        }
        return replies.get(row, allowed)

    hooks.answers["f"] = answer
    if row == "refused":
        return {"clientConfig": hooks.client("f", url="https://127.0.0.1:1/f")}
    if row == "untrusted":
        client = hooks.client("f")
        del client["caBundle"]
        return {"clientConfig": client}
    return {"timeoutSeconds": 1} if row == "slow" else {}


@pytest.mark.parametrize("row", FAILURES)
async def test_a_webhook_that_fails_stops_the_request(
    api: Api, hooks: WebhookServer, registrar: Registrar, row: str
) -> None:
    await registrar.register("Mutating", registrar.webhook("f", **set_failure(hooks, row)))
    await eventually(lambda: fails(registrar))
    status = (await registrar.make("a")).refused(500, "InternalError")
    start = 'Internal error occurred: failed calling webhook "f.example.com": '
    assert status["message"].startswith(start), status["message"]
    assert FAILURES[row] in status["message"], status["message"]
    assert status["details"]["causes"][0]["message"].startswith("failed calling webhook")
    assert (await api.get(registrar.path("a"))).status == 404


async def fails(registrar: Registrar) -> bool:
    return (await registrar.make(unique("try"), dryRun="All")).status == 500


@pytest.mark.parametrize("row", FAILURES)
async def test_a_failing_webhook_that_may_be_ignored_is(
    hooks: WebhookServer, registrar: Registrar, row: str
) -> None:
    changes = {**set_failure(hooks, row), "failurePolicy": "Ignore"}
    await registrar.register("Mutating", registrar.webhook("f", **changes))
    await registrar.in_effect()
    (await registrar.make("a")).ok(201)


async def test_a_denial_is_no_failure_to_ignore(hooks: WebhookServer, registrar: Registrar) -> None:
    hooks.denies("d", message="no")
    await registrar.register("Validating", registrar.webhook("d", failurePolicy="Ignore"))
    await registrar.in_effect()
    assert (await registrar.make("a")).status == 400


async def test_a_patch_that_does_not_apply_is_500_even_when_failures_are_ignored(
    hooks: WebhookServer, registrar: Registrar
) -> None:
    hooks.allows("m", {"op": "remove", "path": "/data/absent"})
    await registrar.register("Mutating", registrar.webhook("m", failurePolicy="Ignore"))
    await eventually(lambda: fails(registrar))
    (await registrar.make("a")).refused(500, "InternalError")


async def test_what_a_webhook_breaks_is_refused_as_invalid(
    hooks: WebhookServer, registrar: Registrar
) -> None:
    hooks.allows("m", add("/data/not a key", "x"))
    await registrar.register("Mutating", registrar.webhook("m"))
    await registrar.in_effect()
    (await registrar.make("a")).refused(422, "Invalid")
