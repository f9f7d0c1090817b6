"""domain: the scopes of API tokens, which cut down the rights of the token's user.

A token stores them as words of one text, like the `scope` of OAuth 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

READ, WRITE, REPORTS, ACCESS = "read", "write", "reports", "access"
SCOPES: Final = {
    READ: "read jobs, partitions, the fleet and usage",
    WRITE: "change jobs and your subscriptions",
    REPORTS: "read and generate month reports, close months, read and set rates",
    ACCESS: "make and revoke API tokens, grant and revoke roles",
}
DEFAULT: Final = f"{READ} {REPORTS}"
"""The rights of tokens from before there were scopes."""


def read_scopes(text: str) -> frozenset[str]:
    """Return the known scopes of a stored text."""
    return frozenset(text.split()) & SCOPES.keys()


def write_scopes(names: Collection[str]) -> str:
    """Return the text that is stored, in the order of the table."""
    return " ".join(name for name in SCOPES if name in names)


def parse_scopes(text: str) -> str:
    """Return the text that is stored for what a person wrote, with spaces or commas between.

    Raise ValueError with a sentence if a word is no scope, or if there is none.
    """
    names = set(text.replace(",", " ").split())
    if not names or names - SCOPES.keys():
        raise ValueError(f"must be one or more of {', '.join(SCOPES)}, not {text!r}")
    return write_scopes(names)
