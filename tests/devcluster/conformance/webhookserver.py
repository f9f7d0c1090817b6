"""io: the suite's own webhook: TLS on loopback, with responses that each test sets."""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.devcluster.conformance.certificates import write_certificates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

Json = dict[str, Any]


@dataclass
class WebhookServer:
    """Answers AdmissionReviews by path; `requests` are those it got, by path."""

    folder: Path
    answers: dict[str, Callable[[Json], Awaitable[Any]]] = field(default_factory=dict)
    requests: dict[str, list[Json]] = field(default_factory=dict)

    async def start(self) -> None:
        """Listen; the certificate is made for this server alone."""
        self.pki = write_certificates(self.folder / "webhook-pki")
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/{name}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pki / "apiserver.crt", self.pki / "apiserver.key")
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    @property
    def bundle(self) -> str:
        """The caBundle that trusts it."""
        return base64.b64encode((self.pki / "ca.crt").read_bytes()).decode()

    def client(self, name: str, **changes: Any) -> Json:
        """The clientConfig of the webhook at `/name`."""
        url = f"https://127.0.0.1:{self.port}/{name}"
        return {"url": url, "caBundle": self.bundle, **changes}

    def allows(self, name: str, *patch: Json, warnings: tuple[str, ...] = ()) -> None:
        """Let `/name` allow everything, with a patch and warnings."""

        async def answer(request: Json) -> Json:
            response: Json = {"uid": request["uid"], "allowed": True}
            if patch:
                encoded = base64.b64encode(json.dumps(patch).encode()).decode()
                response |= {"patch": encoded, "patchType": "JSONPatch"}
            return response | ({"warnings": list(warnings)} if warnings else {})

        self.answers[name] = answer

    def denies(self, name: str, **status: Any) -> None:
        """Let `/name` deny everything."""

        async def answer(request: Json) -> Json:
            warned = {"warnings": ["looked at"]}
            return {"uid": request["uid"], "allowed": False, "status": status, **warned}

        self.answers[name] = answer

    async def _answer(self, request: web.Request) -> web.Response:
        name, review = request.match_info["name"], await request.json()
        request_body = review["request"] | {"_query": dict(request.query)}
        self.requests.setdefault(name, []).append(request_body)
        answer = await self.answers[name](request_body)
        head = {"apiVersion": review["apiVersion"], "kind": review["kind"]}
        if not isinstance(answer, web.Response):
            answer = web.json_response({**head, "response": answer})
        answer.force_close()  # so that no connection outlives the test
        return answer
