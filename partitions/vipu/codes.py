"""io: maps our errors to gRPC status codes and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc import StatusCode

from partitions.vipu.errors import (
    AlreadyExists,
    InvalidRequest,
    NoAnswer,
    NoCapacity,
    NotFound,
    NotReady,
    NotStored,
    Refused,
    Unauthenticated,
    Unavailable,
    VipuError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_CODES: Mapping[type[VipuError], StatusCode] = {
    NotFound: StatusCode.NOT_FOUND,
    AlreadyExists: StatusCode.ALREADY_EXISTS,
    NoCapacity: StatusCode.RESOURCE_EXHAUSTED,
    InvalidRequest: StatusCode.INVALID_ARGUMENT,
    Refused: StatusCode.PERMISSION_DENIED,
    Unauthenticated: StatusCode.UNAUTHENTICATED,
    NotReady: StatusCode.FAILED_PRECONDITION,
    # It answers, so not UNAVAILABLE, which a client takes for silence.
    Unavailable: StatusCode.ABORTED,
    NotStored: StatusCode.ABORTED,
    NoAnswer: StatusCode.UNAVAILABLE,
    VipuError: StatusCode.INTERNAL,
}
_ERRORS: Mapping[StatusCode, type[VipuError]] = {
    **{code: error for error, code in _CODES.items()},
    StatusCode.OUT_OF_RANGE: InvalidRequest,
    StatusCode.DEADLINE_EXCEEDED: NoAnswer,
    StatusCode.CANCELLED: Unavailable,
}
# The words of other V-IPU controllers when no block is free; they need not come with a code.
_CAPACITY_WORDS = "failed to acquire"
# How gRPC itself says so, in Python and in Go.
_UNKNOWN_METHOD = ("Method not found", "unknown service", "unknown method")
# gRPC sends a sentence as a header, 8 kB for all of them, up to 12 bytes for one character. What is
# longer it replaces by a status of its own.
_LONGEST = 500
_END = 160
_GAP = " ... "


def code_of(error: VipuError) -> StatusCode:
    """The gRPC status of this error."""
    return _CODES[type(error)]


def details_of(error: VipuError) -> str:
    """The message of this error for clients, without the middle if it is too long."""
    text = str(error)
    if len(text) <= _LONGEST:
        return text
    # The beginning names the field, the end says what to write instead.
    return text[: _LONGEST - _END - len(_GAP)] + _GAP + text[-_END:]


def error_of(code: StatusCode, message: str) -> VipuError:
    """The error behind a gRPC status; the message is the server's sentence."""
    if code in (StatusCode.UNKNOWN, StatusCode.INTERNAL) and _CAPACITY_WORDS in message.lower():
        return NoCapacity(message)
    if code is StatusCode.UNIMPLEMENTED and any(word in message for word in _UNKNOWN_METHOD):
        stop = "" if message.endswith(("!", ".")) else "."
        hint = "The server is older, or this is the port of its other API"
        return VipuError(f"{message}{stop} {hint}")
    return _ERRORS.get(code, VipuError)(message)


def number_of(code: StatusCode) -> int:
    """The number of a gRPC status, as messages have it."""
    return int(code.value[0])


def error_from_number(number: int, message: str) -> VipuError:
    """The error behind the number of a gRPC status."""
    code = next((code for code in StatusCode if number_of(code) == number), StatusCode.UNKNOWN)
    return error_of(code, message)
