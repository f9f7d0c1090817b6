"""domain: errors of a V-IPU controller, each with a message for people."""

# The names are the words of the gRPC statuses; a suffix would repeat the base class.
# ruff: noqa: N818
from __future__ import annotations

_LONGEST_QUOTE = 80


def quoted(name: str) -> str:
    """A name that a caller sent, for a sentence; only the length if the name is too long."""
    return repr(name) if len(name) <= _LONGEST_QUOTE else f"of {len(name):,} characters"


def missing(what: str, name: str, command: str) -> str:
    """Return the sentence for an unknown name sent as `what`_id, with the command that lists the
    known names."""
    return f"{what}_id: there is no {what} {quoted(name)}; see {command}"


class VipuError(Exception):
    """A V-IPU controller refused or failed; `retryable` says whether the same call may work later.

    The base class itself stands for answers that fit none of the subclasses.
    """

    retryable = False


class NotFound(VipuError):
    """There is no such partition."""


class AlreadyExists(VipuError):
    """A partition of this id exists; it may be ours, from an answer that was lost."""


class NoCapacity(VipuError):
    """No aligned block of that size is free now."""

    retryable = True


class InvalidRequest(VipuError):
    """The request can never work unchanged; the sentence says what to write instead."""


class Refused(VipuError):
    """The controller does not let this caller do that."""


class Unauthenticated(Refused):
    """The controller does not know this caller: no access key, or a wrong key."""


class NotReady(VipuError):
    """The partition's state does not allow it yet."""

    retryable = True


class Unavailable(VipuError):
    """The call could not be made or was not finished; it may have taken effect."""

    retryable = True


class NotStored(Unavailable):
    """The controller answered that it cannot do it now, as when it cannot write its state."""


class NoAnswer(Unavailable):
    """The controller did not answer, or not before the deadline; the call may have taken effect."""
