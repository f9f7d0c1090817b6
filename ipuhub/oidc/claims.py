"""domain: claims about a user, from the ID token and, if it lacks some, from the userinfo endpoint.

A claim of the signed ID token always takes precedence. The userinfo answer is not signed, so it
only adds claims that IPUHub looks for and the ID token lacks, and only if it is about the same
subject.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipuhub.oidc.tokens import Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def claim_at(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by its name, or by names of nested objects with dots between them."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def groups_in(claims: Mapping[str, Any], path: str) -> frozenset[str]:
    """Return the groups of a claim that is a list of texts, or one text."""
    found = claim_at(claims, path)
    listed = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    return frozenset(each for each in listed if isinstance(each, str))


def missing_claims(claims: Mapping[str, Any], paths: Collection[str]) -> list[str]:
    """Return the `paths` without a claim; an empty list of groups is a claim."""
    return [path for path in paths if claim_at(claims, path) is None]


def completed(
    claims: Mapping[str, Any], userinfo: Mapping[str, Any], paths: Collection[str]
) -> dict[str, Any]:
    """Return the ID token's claims with those at `paths` from the userinfo answer.

    Raise Refused if that answer is not about the ID token's subject: it could be a stranger's
    (OpenID Connect Core, 5.3.2).
    """
    if userinfo.get("sub") != claims["sub"]:
        sentence = (
            "The provider's user information belongs to another account, so you are not signed in. "
            "Sign out at the provider, then sign in again."
        )
        raise Refused("userinfo", sentence, f"sub is {str(userinfo.get('sub'))[:100]!r}", 403)
    return {**claims, **{path: claim_at(userinfo, path) for path in paths}}
