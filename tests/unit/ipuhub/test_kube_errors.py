"""Answers of the API server become errors that callers can tell apart."""

from __future__ import annotations

import pytest

from ipuhub.kube import errors
from ipuhub.kube.errors import ApiError, from_answer


@pytest.mark.parametrize(
    ("status", "reason", "want_class", "want_retryable"),
    [
        (404, "NotFound", errors.NotFound, False),
        (409, "AlreadyExists", errors.AlreadyExists, False),
        (409, "Conflict", errors.Conflict, True),
        (410, "Expired", errors.Gone, True),
        (410, "Gone", errors.Gone, True),
        (401, "Unauthorized", errors.Unauthorized, True),
        (403, "Forbidden", errors.Forbidden, False),
        (422, "Invalid", errors.Invalid, False),
        (400, "BadRequest", errors.Invalid, False),
        (429, "TooManyRequests", errors.TooManyRequests, True),
        (500, "InternalError", errors.ServerError, True),
        (503, "ServiceUnavailable", errors.ServerError, True),
        (405, "MethodNotAllowed", ApiError, False),
        (302, "", ApiError, False),
    ],
)
def test_each_status_has_its_class(
    status: int, reason: str, want_class: type[ApiError], want_retryable: bool
) -> None:
    error = from_answer(status, {"kind": "Status", "reason": reason, "message": "m"})
    assert type(error) is want_class
    assert error.retryable is want_retryable
    assert (error.status, error.reason, str(error)) == (status, reason, "m")


def test_details_say_when_to_retry_unless_the_header_does() -> None:
    body = {"reason": "TooManyRequests", "details": {"retryAfterSeconds": 7, "kind": "pods"}}
    assert from_answer(429, body).retry_after == 7
    assert from_answer(429, body, retry_after=2.0).retry_after == 2
    assert from_answer(429, body).details["kind"] == "pods"


@pytest.mark.parametrize("body", [None, [], "text", {}, {"details": None, "message": None}])
def test_an_answer_that_is_no_status_still_gives_a_sentence(body: object) -> None:
    assert str(from_answer(502, body, text="<html>Bad gateway</html>\n")) == (
        "<html>Bad gateway</html>"
    )
    assert str(from_answer(502, body)) == "HTTP status 502"
    assert len(str(from_answer(502, body, text="x" * 10_000))) <= 300


def test_unreachable_is_worth_another_try() -> None:
    error = errors.Unreachable("no route")
    assert (error.status, error.retryable, str(error)) == (0, True, "no route")
