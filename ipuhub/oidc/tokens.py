"""domain: checks of the provider's signed tokens with PyJWT: ID tokens and logout tokens.

Only asymmetric algorithms are accepted. `none` is unsigned, and an HMAC key would be the public key
or the client secret, which others know, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import jwt

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512"),
    *("PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512"),
    "EdDSA",
)
LEEWAY_SECONDS: Final = 60
LONGEST_TOKEN: Final = 64 * 1024
LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
_KEY_TYPES: Final = {"RSA", "EC", "OKP"}


class Refused(Exception):  # noqa: N818  # an answer, not an error
    """A sign-in or logout that is refused: `reason` for metric and log, `sentence` for people."""

    def __init__(self, reason: str, sentence: str, detail: str = "", status: int = 400) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence
        self.detail = detail
        self.status = status


@dataclass(frozen=True, slots=True)
class Expected:
    """Claims that every token of the provider must have."""

    issuer: str
    client_id: str


def keys_of(jwks: Mapping[str, Any]) -> list[jwt.PyJWK]:
    """Return the keys of a JWKS that verify signatures; others are passed over."""
    found = []
    rows = jwks.get("keys")
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and row.get("kty") in _KEY_TYPES and row.get("use") != "enc":
            try:
                found.append(jwt.PyJWK(row))
            except (jwt.PyJWTError, ValueError, TypeError):
                continue  # a kind of key that no allowed algorithm uses
    return found


def header_of(token: str) -> tuple[str, str | None]:
    """Return algorithm and key ID of a token. Raise Refused if its algorithm is not allowed."""
    try:
        if len(token) > LONGEST_TOKEN:
            raise jwt.DecodeError("too long")
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise _bad("token", error) from error
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise _bad("algorithm", f"algorithm {str(algorithm)[:20]!r} is not allowed")
    key_id = header.get("kid")
    return algorithm, key_id if isinstance(key_id, str) else None


def key_for(keys: Sequence[jwt.PyJWK], key_id: str | None) -> jwt.PyJWK | None:
    """Return the key of that ID; without an ID the provider's only key."""
    if key_id is None:
        return keys[0] if len(keys) == 1 else None
    return next((key for key in keys if key.key_id == key_id), None)


def check_id_token(
    token: str,
    find_key: Callable[[str | None], jwt.PyJWK | None],
    expected: Expected,
    nonce: str,
    now: dt.datetime,
) -> dict[str, Any]:
    """Return the claims of an ID token. Raise Refused unless it is genuine, ours and fresh."""
    claims = _verified(token, find_key, expected, ("exp", "iat", "sub"))
    _check_times(claims, now)
    authorized = claims.get("azp")
    audience = claims["aud"]
    if authorized not in (None, expected.client_id) or (
        isinstance(audience, list) and len(audience) > 1 and authorized is None
    ):
        raise _bad("audience", "azp names another client")
    if not nonce or claims.get("nonce") != nonce:
        raise _bad("nonce", "nonce of another sign-in")
    if not isinstance(claims["sub"], str) or not 0 < len(claims["sub"]) <= 255:
        raise _bad("claims", "sub is not a text of 1 to 255 characters")
    return claims


def check_logout_token(
    token: str,
    find_key: Callable[[str | None], jwt.PyJWK | None],
    expected: Expected,
    now: dt.datetime,
) -> dict[str, Any]:
    """Return the claims of a logout token. Raise Refused unless it is genuine, ours and fresh."""
    claims = _verified(token, find_key, expected, ("iat", "jti", "exp"))
    _check_times(claims, now)
    events = claims.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(LOGOUT_EVENT), dict):
        raise _bad("claims", "no logout event")
    if "nonce" in claims:
        raise _bad("claims", "an ID token is no logout token")
    given = [claims[name] for name in ("sid", "sub") if name in claims]
    if not given or not all(isinstance(each, str) and each for each in given):
        raise _bad("claims", "neither sid nor sub")
    return claims


def _verified(
    token: str,
    find_key: Callable[[str | None], jwt.PyJWK | None],
    expected: Expected,
    required: Sequence[str],
) -> dict[str, Any]:
    algorithm, key_id = header_of(token)
    key = find_key(key_id)
    if key is None:
        raise _bad("key", f"the provider publishes no key {str(key_id)[:100]!r}")
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            # Not the PyJWK: without `alg` in the JWKS PyJWT takes an RSA key for RS256 only.
            key.key,
            algorithms=[algorithm],
            audience=expected.client_id,
            issuer=expected.issuer,
            # The times are checked below, against one clock.
            options={
                "require": ["iss", "aud", *required],
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
            },
        )
    except jwt.InvalidAudienceError as error:
        raise _bad("audience", error) from error
    except jwt.InvalidIssuerError as error:
        raise _bad("issuer", error) from error
    except jwt.MissingRequiredClaimError as error:
        raise _bad("claims", error) from error
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise _bad("signature", error) from error
    return claims


def _check_times(claims: Mapping[str, Any], now: dt.datetime) -> None:
    instant = now.timestamp()
    times = {name: claims[name] for name in ("exp", "iat", "nbf") if name in claims}
    if not all(type(each) in (int, float) for each in times.values()):
        raise _bad("claims", "a time is not a number")
    if times["exp"] <= instant - LEEWAY_SECONDS:
        raise _bad("expired", "the token has expired")
    if max(times["iat"], times.get("nbf", 0)) > instant + LEEWAY_SECONDS:
        raise _bad("expired", "the token is from the future; check both clocks")


def _bad(reason: str, detail: object) -> Refused:
    sentence = "The provider's answer is not valid, so you are not signed in. Try again."
    return Refused(reason, sentence, str(detail)[:200])
