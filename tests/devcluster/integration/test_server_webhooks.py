"""A webhook behind a service is found through its Endpoints and trusted by the service's name."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from devcluster.security.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.devcluster.integration.conftest import Http

HOST = "hook.default.svc"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CORE = "/api/v1/namespaces/default"


@pytest.fixture
async def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "hook")


@pytest.fixture
async def port(authority: Authority) -> AsyncIterator[int]:
    """A webhook that denies everything, with a certificate for the service's name."""

    async def deny(request: web.Request) -> web.Response:
        assert request.path == "/judge"
        review = await request.json()
        response = {"uid": review["request"]["uid"], "allowed": False}
        answer = web.json_response({**review, "request": None, "response": response})
        answer.force_close()
        return answer

    app = web.Application()
    app.router.add_post("/{any:.*}", deny)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=authority.server_context((HOST,))).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


def configuration(authority: Authority, **service: Any) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    client = {
        "service": {"name": "hook", "namespace": "default", "path": "/judge", **service},
        "caBundle": base64.b64encode(authority.ca_pem).decode(),
    }
    webhook = {
        "name": "hook.example.com",
        "clientConfig": client,
        "rules": [{**rule, "resources": ["configmaps"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {"metadata": {"name": "hook"}, "webhooks": [webhook]}


async def test_a_service_is_called_through_its_endpoints(
    http: Http, authority: Authority, port: int
) -> None:
    await http.make(REGISTRATION, configuration(authority))
    config_map = {"metadata": {"name": "a"}}

    async def refusal() -> str:
        answer = await http.call("POST", f"{CORE}/configmaps", config_map)
        assert answer.status in {400, 500}
        return str(answer.body["message"])

    assert 'service "hook" not found' in await refusal()
    await http.make(f"{CORE}/services", {"metadata": {"name": "hook"}, "spec": {}})
    assert 'no endpoints available for service "hook"' in await refusal()
    subset = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": port}]}
    await http.make(f"{CORE}/endpoints", {"metadata": {"name": "hook"}, "subsets": [subset]})
    assert await refusal() == (
        'admission webhook "hook.example.com" denied the request without explanation'
    )


async def test_conditions_that_nobody_would_evaluate_are_refused(
    http: Http, authority: Authority
) -> None:
    body = configuration(authority)
    body["webhooks"][0]["matchConditions"] = [{"name": "x", "expression": "true"}]
    answer = await http.call("POST", REGISTRATION, body)
    assert answer.status == 422
    assert "evaluates no CEL" in answer.body["message"]
