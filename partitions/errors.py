"""domain: errors about partitions, each with a message for people."""

# The names say what happened; "Error" behind each would add nothing.
# ruff: noqa: N818

from __future__ import annotations


class PartitionsError(Exception):
    """Base of this app's errors; `retryable`: the same call may work later, unchanged."""

    retryable = False


class StaleAttempt(PartitionsError):
    """A call for an attempt after a later attempt has begun."""


class Contradiction(PartitionsError):
    """The call contradicts what the tracker knows about the partition."""


class UnknownPartition(PartitionsError):
    """The tracker knows of no such partition."""


class IllegalTransition(PartitionsError):
    """The phase cannot follow the current phase."""


class UnreadableEntry(PartitionsError):
    """A value of the tracker is not a valid entry; it is left unchanged."""


class EntryTooLarge(PartitionsError):
    """An entry does not fit its place in the tracker, even without its message."""


class InvalidControllers(PartitionsError):
    """The list of V-IPU controllers cannot be used; the sentence names the faulty part."""


class InvalidQuestion(PartitionsError):
    """A request of kube-scheduler is invalid; the message names the field."""


class TrackerUnavailable(PartitionsError):
    """The tracker cannot be read or written now; the change may or may not have happened."""

    retryable = True


class ControllerUnavailable(PartitionsError):
    """A V-IPU controller cannot do now what the call needs of it."""

    retryable = True


class ReplicaEnds(PartitionsError):
    """This replica of the proxy takes no more calls, since it ends; nothing has happened."""

    retryable = True


class NotLeading(PartitionsError):
    """Another replica may lead now, so this replica sends nothing to V-IPU; nothing has
    happened."""

    retryable = True


class ProxyUnavailable(PartitionsError):
    """The V-IPU Proxy cannot answer now: unreachable, waiting for what it needs, or no access."""

    retryable = True


class ProxyRefused(PartitionsError):
    """The V-IPU Proxy refused the request itself; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
