"""domain: the error of a patch that cannot be applied."""

from __future__ import annotations

_REASONS = {
    400: "BadRequest",
    415: "UnsupportedMediaType",
    422: "Invalid",
    500: "InternalError",
}


class PatchError(Exception):
    """A patch that cannot be applied.

    `status` is the HTTP status, `reason` the Status reason that belongs to it, `message` the
    server's sentence and `cause` (may be empty) what exactly did not fit.
    """

    def __init__(self, status: int, message: str, *, cause: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = _REASONS[status]
        self.message = message
        self.cause = cause


def bad_request(message: str) -> PatchError:
    """A patch whose form is wrong, whatever it is applied to (400)."""
    return PatchError(400, message)
