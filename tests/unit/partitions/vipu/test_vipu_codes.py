"""gRPC statuses and our errors stand for each other."""

from __future__ import annotations

import pytest
from grpc import StatusCode

from partitions.vipu.codes import code_of, error_of
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

EVERY = (
    AlreadyExists,
    InvalidRequest,
    NoAnswer,
    NoCapacity,
    NotFound,
    NotReady,
    NotStored,
    Refused,
    Unauthenticated,
    VipuError,
)


@pytest.mark.parametrize("kind", EVERY)
def test_an_error_arrives_as_what_it_was(kind: type[VipuError]) -> None:
    got = error_of(code_of(kind("words")), "words")
    assert type(got) is kind
    assert str(got) == "words"


@pytest.mark.parametrize(
    ("code", "message", "want"),
    [
        (StatusCode.DEADLINE_EXCEEDED, "", NoAnswer),
        (StatusCode.UNAVAILABLE, "", NoAnswer),
        (StatusCode.CANCELLED, "", Unavailable),
        (StatusCode.UNAUTHENTICATED, "", Unauthenticated),
        (StatusCode.OUT_OF_RANGE, "", InvalidRequest),
        (StatusCode.UNKNOWN, "Failed to acquire 8 IPU(s)", NoCapacity),
        (StatusCode.UNKNOWN, "something else", VipuError),
        (StatusCode.DATA_LOSS, "", VipuError),
        (StatusCode.UNIMPLEMENTED, "", VipuError),
    ],
)
def test_other_statuses_have_their_error_too(
    code: StatusCode, message: str, want: type[VipuError]
) -> None:
    assert type(error_of(code, message)) is want


def test_only_what_may_work_later_is_retryable() -> None:
    passing = {NoAnswer, NoCapacity, NotReady, NotStored}
    assert {kind for kind in EVERY if kind.retryable} == passing


@pytest.mark.parametrize(
    ("message", "want"),
    [
        ("h:1: Method not found!", " The server is older, or this is the port of its other API"),
        ("h:1: unknown service ipuhub.vipu.admin.v1.AdminService", "Service. The server is older"),
        ("h:1: this machine is real: it has no faults on command", ""),
    ],
)
def test_a_method_that_a_server_lacks_is_explained(message: str, want: str) -> None:
    text = str(error_of(StatusCode.UNIMPLEMENTED, message))
    assert text.startswith(message)
    assert want in text
    assert want or text == message
