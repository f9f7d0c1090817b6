"""An OpenID Connect provider on a real socket, with real keys, which can be made to misbehave.

It follows OpenID Connect Core (authorization code, PKCE S256, client_secret_basic), Discovery,
RP-Initiated Logout and Back-Channel Logout as far as one client needs; it holds no certificate of
conformance.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@functools.cache
def rsa_key(owner: str) -> Key:
    """The key of the provider, or of another signer; to make one takes 0.1 s of CPU."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class OidcProvider:
    """A provider: what it publishes, whom it signs in, and what it wrote down."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.client_id, self.secret = "ipuhub-dashboard", "between us & nobody"
        self.key_id, self.algorithm = "first", "RS256"
        self.key: Key = rsa_key("provider")
        self.published = {"first": self.key}
        self.person: dict[str, Any] = {
            "sub": "0001",
            "preferred_username": "ann",
            "groups": ["users"],
        }
        self.sid = "session-1"
        self.changes: dict[str, Any] = {}  # to the claims of the next ID tokens; None: left out
        self.metadata: dict[str, Any] = {}  # changes to the discovery document
        self.codes: dict[str, dict[str, str]] = {}
        self.token: str | None = None  # instead of a token that it signs
        self.userinfo: dict[str, Any] | None = None  # None: it has no such endpoint
        self.userinfo_answer: tuple[int, Any] | None = None  # instead of the right answer
        self.access_token: object = secrets.token_urlsafe(16)
        self.requested: list[str] = []
        self.asks_person = False
        self.scopes = {"openid", "profile", "email", "groups"}  # others are refused
        self.dribbles: dict[str, str] = {}  # path: "headers" or "body", sent byte by byte for 10 s
        self.hung_up = threading.Event()  # a client left such an answer
        self.ends = threading.Event()
        self.before_answer: Callable[[], None] = lambda: None
        self.scope_of: dict[str, str] = {}  # claims that are given for a scope only

    def document(self) -> dict[str, Any]:
        ends = ["authorization", "token", "end_session"]
        ends += [] if self.userinfo is None else ["userinfo"]
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/jwks",
            **{f"{name}_endpoint": f"{self.issuer}/{name}" for name in ends},
            "code_challenge_methods_supported": ["S256"],
            "id_token_signing_alg_values_supported": ["RS256", "none", "HS256"],
            **self.metadata,
        }

    def rotate(self, key: Key, key_id: str, algorithm: str = "RS256") -> None:
        """Sign with a new key from now on, and publish that alone."""
        self.key, self.key_id, self.algorithm = key, key_id, algorithm
        self.published = {key_id: key}

    def jwks(self) -> dict[str, Any]:
        kinds = {True: RSAAlgorithm, False: ECAlgorithm}
        return {
            "keys": [
                {
                    **kinds[isinstance(key, rsa.RSAPrivateKey)].to_jwk(
                        key.public_key(),  # type: ignore[arg-type]
                        as_dict=True,
                    ),
                    "kid": key_id,
                    "use": "sig",
                }
                for key_id, key in self.published.items()
            ]
        }

    def sign(self, claims: dict[str, Any]) -> str:
        kept = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(kept, self.key, self.algorithm, headers={"kid": self.key_id})

    def claims(self, **more: Any) -> dict[str, Any]:
        now = int(time.time())
        common = {"iss": self.issuer, "aud": self.client_id, "iat": now, "exp": now + 300}
        return {**common, "sub": self.person["sub"], "sid": self.sid, **more}

    def person_claims(self, scopes: list[str]) -> dict[str, Any]:
        """The claims about the person that these scopes give."""
        return {
            name: value
            for name, value in self.person.items()
            if self.scope_of.get(name, "openid") in scopes
        }

    def logout_token(self, **changes: Any) -> str:
        events: dict[str, Any] = {LOGOUT_EVENT: {}}
        claims = self.claims(jti=secrets.token_hex(8), events=events)
        return self.sign({**claims, **changes})

    def authorize(self, query: dict[str, str]) -> str:
        """Return where the browser goes after the person has signed in."""
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert query["client_id"] == self.client_id
        if not self.scopes.issuperset(query["scope"].split()):
            answer = {"error": "invalid_scope", "state": query["state"], "iss": self.issuer}
            return f"{query['redirect_uri']}?{urlencode(answer)}"
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        answer = {"code": code, "state": query["state"], "iss": self.issuer}
        return f"{query['redirect_uri']}?{urlencode(answer)}"

    def exchange(self, fields: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        pair = f"{quote(self.client_id, safe='')}:{quote(self.secret, safe='')}"
        if authorization != f"Basic {base64.b64encode(pair.encode()).decode()}":
            return 401, {"error": "invalid_client"}
        grant = self.codes.pop(fields["code"], None)  # once
        digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            grant is None
            or grant["code_challenge"] != challenge
            or grant["redirect_uri"] != fields["redirect_uri"]
        ):
            return 400, {"error": "invalid_grant"}
        claims = self.claims(nonce=grant["nonce"], **self.person_claims(grant["scope"].split()))
        token = self.token or self.sign({**claims, **self.changes})
        access = {"access_token": self.access_token, "token_type": "Bearer"}
        return 200, {**access, "id_token": token}

    def tell(self, authorization: str) -> tuple[int, Any]:
        """Return the answer of the userinfo endpoint."""
        if authorization != f"Bearer {self.access_token}":
            return 401, {"error": "invalid_token"}
        return self.userinfo_answer or (200, {"sub": self.person["sub"], **(self.userinfo or {})})

    def end(self, query: dict[str, str]) -> str:
        """Return where the browser goes after its session here has ended."""
        claims = jwt.decode(query["id_token_hint"], options={"verify_signature": False})
        assert claims["sid"] == self.sid
        return query["post_logout_redirect_uri"]

    def signed_in(self, address: str) -> str:
        """Do what a browser does at the provider: return the address it is sent back to."""
        return self.authorize(dict(parse_qsl(urlsplit(address).query)))

    def dribble(self, handler: BaseHTTPRequestHandler, part: str, first: bytes) -> None:
        """Send one byte after the other while the client listens, if told to for this path."""
        if self.dribbles.get(urlsplit(handler.path).path) != part:
            return
        handler.flush_headers()
        try:
            handler.wfile.write(first)
            for _ in range(500):
                self.ends.wait(0.02)
                handler.wfile.write(b" ")
        except OSError:
            self.hung_up.set()
            raise

    def post_logout(self, address: str, token: str) -> int:
        """Send a logout token as a provider does; return the status."""
        body = urlencode({"logout_token": token}).encode()
        try:
            with urllib.request.urlopen(address, body, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code


def _handler(provider: OidcProvider) -> type[BaseHTTPRequestHandler]:
    sent_on = {"/authorization": provider.authorize, "/end_session": provider.end}
    documents = {"/.well-known/openid-configuration": provider.document, "/jwks": provider.jwks}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            provider.requested.append(parts.path)
            query = dict(parse_qsl(parts.query))
            if parts.path == "/authorization" and provider.asks_person:
                provider.asks_person = False
                self._page(f'<a href="{escape(self.path)}">Let me in</a>')
            elif parts.path in sent_on:
                self._send_on(sent_on[parts.path](query))
            elif parts.path in documents:
                self._json(200, documents[parts.path]())
            elif parts.path == "/userinfo" and provider.userinfo is not None:
                self._json(*provider.tell(self.headers.get("Authorization", "")))
            else:
                self._json(404, {})

        def do_POST(self) -> None:
            provider.requested.append(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            fields = {name: each[0] for name, each in parse_qs(body).items()}
            self._json(*provider.exchange(fields, self.headers.get("Authorization", "")))

        def _json(self, status: int, document: Any) -> None:
            self._answer(status, json.dumps(document), "application/json")

        def _page(self, text: str) -> None:
            self._answer(
                200,
                f"<!doctype html><title>Provider</title><link rel=icon href=data:,>{text}",
                "text/html",
            )

        def _answer(self, status: int, text: str, kind: str) -> None:
            provider.before_answer()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            provider.dribble(self, "headers", b"X-More: ")
            self.end_headers()
            provider.dribble(self, "body", b"{")
            self.wfile.write(text.encode())

        def _send_on(self, address: str) -> None:
            self.send_response(302)
            self.send_header("Location", address)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


class _Server(ThreadingHTTPServer):
    """Passes over clients that hang up, as those that do not trust its certificate do."""

    def handle_error(self, *_: object) -> None:
        pass


@contextmanager
def oidc_provider(tls: ssl.SSLContext | None = None) -> Iterator[OidcProvider]:
    """Yield a provider that listens on a port of its own, with HTTPS if `tls` is given."""
    server = _Server(("127.0.0.1", 0), BaseHTTPRequestHandler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "https" if tls else "http"
    provider = OidcProvider(f"{scheme}://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = _handler(provider)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield provider
    finally:
        provider.ends.set()
        server.shutdown()
        server.server_close()
        thread.join()
