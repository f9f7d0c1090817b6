"""domain: errors of an API server, or of the connection to it."""

# The names are the API's own reasons, which carry no "Error".
# ruff: noqa: N818

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping


class ConfigError(Exception):
    """No usable cluster configuration or credentials; the message says what to do."""


class ApiError(Exception):
    """A request that failed; `str()` is the server's own sentence.

    `status` is the HTTP status (0: no answer), `reason` the machine-readable word of the server's
    Status object, `details` its details, `retry_after` the seconds the server asks to wait.
    """

    retryable: ClassVar[bool] = False
    """Whether the same intent may succeed later without anybody changing it."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details: dict[str, Any] = dict(details or {})
        self.retry_after = retry_after

    @property
    def may_have_happened(self) -> bool:
        """Return whether a write that got this answer may have been carried out."""
        return False


class NotFound(ApiError):
    """404: no such object, or no such resource type."""


class AlreadyExists(ApiError):
    """409 on create: the name is taken."""


class Conflict(ApiError):
    """409: the object changed since it was read, or a precondition failed. Read again."""

    retryable = True


class Gone(ApiError):
    """410: the version or paging token is older than the server's history. List again."""

    retryable = True


class Unauthorized(ApiError):
    """401: the credentials are missing, expired or unknown; they may rotate."""

    retryable = True


class NoCredentials(Unauthorized):
    """Nothing was sent: a token file, certificate or exec plug-in yields no credentials."""

    def __init__(self, message: str) -> None:
        super().__init__(401, "NoCredentials", message)


class Forbidden(ApiError):
    """403: known, but not allowed; also quotas and terminating namespaces."""


class Invalid(ApiError):
    """422 or 400: the object or request is wrong in itself."""


class TooManyRequests(ApiError):
    """429: the server limits its load; `retry_after` says for how long, if known."""

    retryable = True


class ServerError(ApiError):
    """5xx: the server or something behind it (etcd, an admission webhook) failed.

    A write may have happened, as etcd continues when the server stops waiting for it. It did not
    where an admission webhook failed: admission comes before etcd.
    """

    retryable = True

    @property
    def may_have_happened(self) -> bool:
        """Return whether a write that got this answer may have been carried out."""
        return _WEBHOOK_FAILED not in self.message


class Unreachable(ApiError):
    """No answer: connection, TLS or timeout. A write may or may not have happened."""

    retryable = True

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)

    @property
    def may_have_happened(self) -> bool:
        """Return whether a write that got no answer may have been carried out: always."""
        return True


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_LONGEST_TEXT = 300
_WEBHOOK_FAILED = "failed calling webhook"


def from_answer(
    status: int, body: object, *, text: str = "", retry_after: float | None = None
) -> ApiError:
    """Build the error of an HTTP answer or a watch's ERROR event.

    `body` is the decoded JSON (a Status object as a rule), `text` the raw answer where it was no
    JSON, `retry_after` the header in seconds; Status details take its place where it is missing.
    """
    answer = body if isinstance(body, dict) else {}
    details = answer.get("details") or {}
    reason = str(answer.get("reason") or "")
    message = str(answer.get("message") or text.strip()[:_LONGEST_TEXT])
    if retry_after is None and details.get("retryAfterSeconds"):
        retry_after = float(details["retryAfterSeconds"])
    kind = _BY_STATUS.get(status) or (ServerError if status >= 500 else ApiError)
    if status == 409 and reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(status, reason, message or f"HTTP status {status}", details, retry_after)
