"""The floor of `make bench ARGS=webhooks`: the same TLS and HTTP, the JSON read, no rule at all."""

from __future__ import annotations

import json
import os
import ssl

from aiohttp import web


async def answer(request: web.Request) -> web.Response:
    """Allow every request."""
    review = json.loads(await request.read())
    response = {"uid": review["request"]["uid"], "allowed": True}
    return web.json_response({"kind": "AdmissionReview", "response": response})


def main() -> None:
    """Serve until SIGTERM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    folder = "IPUHUB_WEBHOOK_CERTIFICATE_PATH", "IPUHUB_WEBHOOK_KEY_PATH"
    context.load_cert_chain(*(os.environ[name] for name in folder))
    app = web.Application(client_max_size=8 * 2**20)
    app.add_routes([web.post("/{path}", answer)])
    port = int(os.environ["IPUHUB_WEBHOOK_PORT"])
    web.run_app(app, host="127.0.0.1", port=port, ssl_context=context, access_log=None, print=None)


if __name__ == "__main__":
    main()
