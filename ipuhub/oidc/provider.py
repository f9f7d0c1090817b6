"""io: the OIDC provider over HTTP: discovery document, keys, code for tokens, userinfo.

Discovery document and keys are cached for an hour. A key ID that is not among the keys loads them
again, because a provider that rotates its keys signs with the new key at once. Tokens with invented
key IDs cause at most one such request in 5 s. While the provider does not answer, few threads wait
for it.
"""

from __future__ import annotations

import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import aiohttp

from ipuhub.oidc.exchange import Question, Unreachable, ask
from ipuhub.oidc.tokens import LONGEST_TOKEN, Refused, key_for, keys_of
from ipuhub.oidc.trust import Trust, TrustError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import jwt

_KEPT_SECONDS: Final = 3600.0
_AGAIN_SECONDS: Final = 5.0
_MOST_WAITING: Final = 4
_JSON: Final = {"Accept": "application/json"}
_HEADER_TEXT: Final = re.compile(f"[!-~]{{1,{LONGEST_TOKEN}}}")
_NO_USERINFO: Final = (
    "The provider did not give the user information that IPUHub needs, so you are not signed in. "
    "Sign in again. If that does not help, tell an administrator."
)


@dataclass(frozen=True, slots=True)
class Client:
    """The dashboard as the provider knows it."""

    issuer: str
    client_id: str
    secret: str
    ca_path: str


class Provider:
    """One OIDC provider."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._trust = Trust(client.ca_path)
        self._places = threading.BoundedSemaphore(_MOST_WAITING)
        self._lock = threading.Lock()
        self._metadata: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, list[jwt.PyJWK]] | None = None

    def load_trust(self) -> None:
        """Load the CA certificates. Raise TrustError if they cannot be used."""
        self._trust.context()

    def metadata(self) -> dict[str, Any]:
        """Return the discovery document. Raise Unreachable if it cannot be had."""
        known = self._metadata
        if known is None or time.monotonic() - known[0] > _KEPT_SECONDS:
            known = (time.monotonic(), self._discovered())
            self._metadata = known
        return known[1]

    def endpoint(self, name: str) -> str:
        """Return an endpoint's address, or an empty text if the provider has none."""
        address = self.metadata().get(name)
        if not isinstance(address, str) or not address:
            return ""
        parts = urlsplit(address)
        allowed = {"https", urlsplit(self.client.issuer).scheme}
        if not parts.hostname or parts.scheme not in allowed:
            raise Unreachable(f"{name} of the discovery document is {address[:100]!r}")
        return address

    def names_itself(self) -> bool:
        """Return whether each of its answers to a browser has to name the issuer (RFC 9207)."""
        return self.metadata().get("authorization_response_iss_parameter_supported") is True

    def find_key(self, key_id: str | None) -> jwt.PyJWK | None:
        """Return a key that signs tokens; ask the provider if the key is not known."""
        known = self._keys
        age = time.monotonic() - known[0] if known else _KEPT_SECONDS
        if known and age < _KEPT_SECONDS:
            found = key_for(known[1], key_id)
            if found is not None or age < _AGAIN_SECONDS:
                return found
        with self._lock:  # a waiting request has one deadline, and sends nothing after it
            if self._keys is known:  # else another thread has just asked
                self._keys = (time.monotonic(), self._read_keys())
            fresh = self._keys
        return key_for(fresh[1], key_id) if fresh else None

    def exchange(self, code: str, verifier: str, redirect_uri: str) -> dict[str, Any]:
        """Return the tokens for an authorization code. Raise Refused if the provider denies it."""
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers = {**_JSON, "Content-Type": "application/x-www-form-urlencoded"}
        methods = self.metadata().get("token_endpoint_auth_methods_supported")
        if not self.client.secret:
            fields["client_id"] = self.client.client_id
        elif methods is None or "client_secret_basic" in methods:
            name, secret = quote(self.client.client_id, safe=""), quote(self.client.secret, safe="")
            headers["Authorization"] = aiohttp.encode_basic_auth(name, secret)
        else:
            fields |= {"client_id": self.client.client_id, "client_secret": self.client.secret}
        status, answer = self._ask("POST", self._needed("token_endpoint"), headers, fields)
        if status != 200:
            problem = f"{status} {str(answer.get('error', ''))[:60]}"
            if status in {400, 401, 403}:
                sentence = "The provider did not confirm this sign-in. Sign in again."
                raise Refused("code", sentence, f"token endpoint: {problem}")
            raise Unreachable(f"token endpoint: {problem}")
        return answer

    def userinfo(self, access_token: object) -> dict[str, Any]:
        """Return the user's claims. Raise Refused if the provider does not accept the token."""
        if not isinstance(access_token, str) or not _HEADER_TEXT.fullmatch(access_token):
            raise Refused("userinfo", _NO_USERINFO, "token endpoint: no usable access token")
        headers = {**_JSON, "Authorization": f"Bearer {access_token}"}
        status, answer = self._ask("GET", self._needed("userinfo_endpoint"), headers)
        if status in {400, 401, 403}:
            raise Refused("userinfo", _NO_USERINFO, f"userinfo endpoint: {status}")
        if status != 200:
            raise Unreachable(f"userinfo endpoint: {status}")
        return answer

    def _needed(self, name: str) -> str:
        address = self.endpoint(name)
        if not address:
            raise Unreachable(f"the discovery document has no {name}")
        return address

    def _discovered(self) -> dict[str, Any]:
        address = f"{self.client.issuer.rstrip('/')}/.well-known/openid-configuration"
        status, document = self._ask("GET", address, _JSON)
        if status != 200:
            raise Unreachable(f"discovery document: {status}")
        if document.get("issuer") != self.client.issuer:
            issuer = str(document.get("issuer"))[:200]
            raise Unreachable(f"the discovery document names the issuer {issuer!r}")
        return document

    def _read_keys(self) -> list[jwt.PyJWK]:
        status, document = self._ask("GET", self._needed("jwks_uri"), _JSON)
        if status != 200:
            raise Unreachable(f"keys: {status}")
        return keys_of(document)

    def _ask(
        self, method: str, address: str, headers: Mapping[str, str], fields: Any = None
    ) -> tuple[int, dict[str, Any]]:
        try:
            trust = self._trust.context()
        except TrustError as error:
            raise Unreachable.by_certificate(str(error)) from error
        with self._place():
            return ask(Question(method, address, headers, fields or {}), trust)

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._places.acquire(timeout=1):
            raise Unreachable(f"it has not answered {_MOST_WAITING} earlier requests yet")
        try:
            yield
        finally:
            self._places.release()
