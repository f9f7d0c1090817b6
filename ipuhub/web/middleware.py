"""glue: the middleware of every request, in the order of MIDDLEWARE in the settings, and the probes
`/healthz` and `/readyz`, which are answered before most of it.

Download slots limit how many files the web process streams at the same time. A streamed response
occupies a thread, CPU time and often a database connection while it is generated; the server
buffers the part that its reader has not taken yet. Without a limit, a few dozen large files would
occupy every thread, and one user could occupy all slots.
"""

from __future__ import annotations

import time
from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote_to_bytes

import structlog
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpResponse
from django.middleware.gzip import GZipMiddleware
from django.middleware.http import ConditionalGetMiddleware
from django.urls import resolve
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe
from django_prometheus.middleware import PrometheusAfterMiddleware

from ipuhub.api.kinds import RETRY_SECONDS
from ipuhub.web.hashing import TooManyHashes
from ipuhub.web.pollcache import BASIS, keep_tag
from ipuhub.web.problems import bad_request, busy
from ipuhub.web.refusals import answer_recorded
from ipuhub.web.requests import ADDED_HEADERS, client_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.http import HttpRequest, StreamingHttpResponse
    from django.http.response import HttpResponseBase

log = structlog.get_logger(__name__)
_FULL: Final = f"The server is busy with other downloads. Try again in {RETRY_SECONDS} seconds."
_YOURS: Final = (
    f"You have reached the limit of simultaneous downloads. Wait for a download to finish, or try "
    f"again in {RETRY_SECONDS} seconds."
)
_SIGN_INS: Final = f"Too many users are signing in. Try again in {RETRY_SECONDS} seconds."
_COMPRESSED: Final = ("text/html", "application/json", "application/problem+json")
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
PATHS: Final = ("/healthz", "/readyz", "/metrics")


class CompressAnswers(GZipMiddleware):
    """Middleware: compress pages and JSON, which shrink to a tenth; files that stream stay as they
    are."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> Any:
        """Return the answer, compressed if the client can read that."""
        kind = response.get("Content-Type", "").partition(";")[0]
        if response.streaming or kind not in _COMPRESSED:
            return response
        return super().process_response(request, response)


class ConditionalReads(ConditionalGetMiddleware):
    """Middleware: ETags and 304 for HEAD as for GET, which Django alone has them for; keeps those
    whose answers say what they are made of."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> Any:
        """Return the answer, or a 304 if the caller has it."""
        answer = self._conditional(request, response)
        if hasattr(request, BASIS):
            keep_tag(request, answer)
        return answer

    def _conditional(self, request: HttpRequest, response: HttpResponseBase) -> Any:
        if request.method != "HEAD":
            return super().process_response(request, response)
        request.method = "GET"  # the body is there until the server leaves it out
        try:
            return super().process_response(request, response)
        finally:
            request.method = "HEAD"


class RecordRefusals:
    """Middleware: record the refusal of a change that has no entry in the audit yet."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.method in _SAFE:
            return self._get_response(request)
        return answer_recorded(request, self._get_response)


class AnswerProbes:
    """Middleware: answer probes before the host name is checked.

    Kubelet and Prometheus use the pod's IP address, which is not an allowed host name.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path not in PATHS:
            return self._get_response(request)
        view, arguments, options = resolve(request.path)
        answer = cast("HttpResponseBase", view(request, *arguments, **options))
        answer["Cache-Control"] = "no-store"
        return answer


@require_safe
def healthz(_request: HttpRequest) -> HttpResponse:
    """Answer ok while the process serves requests."""
    return HttpResponse("ok", content_type="text/plain")


@require_safe
def readyz(_request: HttpRequest) -> HttpResponse:
    """Answer ok while PostgreSQL answers; without the API server pages show the last data."""
    return database_answer("ok", 503)


def database_answer(word: str, status: int) -> HttpResponse:
    """Return `word` while PostgreSQL answers, else an error line with `status`."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        word = "postgres: does not answer\n"
        return HttpResponse(word, status=status, content_type="text/plain")
    return HttpResponse(word, content_type="text/plain")


class KeepPrivate:
    """Middleware: responses without cache headers are private and revalidated each time.

    Pages depend on the user: without these headers a cache in front could serve one user's page to
    another user.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        answer = self._get_response(request)
        answer.headers.setdefault("Cache-Control", "private, no-cache")
        for name, value in getattr(request, ADDED_HEADERS, {}).items():
            answer.headers[name] = value
        patch_vary_headers(answer, ("Cookie", "Authorization", "HX-Request"))
        return answer


def slots(downloads: int, threads: int) -> int:
    """Return how many of `threads` may stream; one thread always stays free for pages and
    probes."""
    return max(1, min(downloads, threads - 1))


class Slots:
    """`count` slots; if there are several, one owner gets at most all but one of them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._each = max(1, count - 1)
        self._taken: Counter[str] = Counter()
        self._lock = Lock()

    def take(self, owner: str) -> str:
        """Take a slot; return the reason if there is none."""
        with self._lock:
            if self._taken.total() >= self.count:
                return _FULL
            if self._taken[owner] >= self._each:
                return _YOURS
            self._taken[owner] += 1
            return ""

    def give(self, owner: str) -> None:
        with self._lock:
            self._taken[owner] -= 1
            self._taken += Counter()  # drops users without slots


class DownloadSlots:
    """Middleware: reject a streamed response with 503 and `Retry-After` while all slots are taken,
    or the user has all but one.

    A slot is released when its response is finished or closed, including by a client that
    disconnects. A response that is not finished after WEB_DOWNLOAD_SECONDS is aborted.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._slots = Slots(slots(settings.WEB_DOWNLOADS, settings.WEB_THREADS))
        self._is_full = False  # said once each time, not for each of a crowd

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        answer = self._get_response(request)
        if not answer.streaming:
            return answer
        streamed: StreamingHttpResponse = answer  # type: ignore[assignment]  # `streaming` says so
        owner = _owner(request)
        if refusal := self._slots.take(owner):
            streamed.close()
            return self._refuse(request, refusal)
        blocks: Iterator[bytes] = iter(streamed)
        deadline = time.monotonic() + settings.WEB_DOWNLOAD_SECONDS
        streamed.streaming_content = _Held(blocks, lambda: self._release(owner), deadline)
        return streamed

    def _refuse(self, request: HttpRequest, reason: str) -> HttpResponseBase:
        if reason == _FULL and not self._is_full:
            self._is_full = True
            log.warning("downloads are rejected until a slot is free", downloads=self._slots.count)
        refusal = busy(request, reason)
        refusal["Retry-After"] = str(RETRY_SECONDS)
        refusal._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001  # else Django logs an error for each
        return refusal

    def _release(self, owner: str) -> None:
        self._is_full = False
        self._slots.give(owner)


def _owner(request: HttpRequest) -> str:
    """Return the owner of the download: the user, or else the address."""
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        return f"user {user.pk}"
    return f"address {client_address(request, settings.TRUSTED_PROXIES)}"


class DownloadTooSlow(Exception):  # noqa: N818  # the reader's doing
    """The reader is too slow, and the server aborts the connection."""


class _Held:
    """The blocks of a response; closing it releases the slot, once."""

    def __init__(
        self, blocks: Iterator[bytes], release: Callable[[], None], deadline: float
    ) -> None:
        self._blocks, self._release, self._deadline = blocks, release, deadline
        self._is_held = True

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks:
            if time.monotonic() > self._deadline:
                raise DownloadTooSlow("a download took longer than IPUHUB_WEB_DOWNLOAD_SECONDS")
            yield block

    def close(self) -> None:
        if self._is_held:
            self._is_held = False
            self._release()


class RefuseUndecodableQueries:
    """Middleware: reject a query string that is not UTF-8 (400).

    Django would insert replacement characters, and a filter would silently match something else.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        query = request.META.get("QUERY_STRING", "")
        if "%" in query or not query.isascii():
            try:
                unquote_to_bytes(query.encode("latin-1", "surrogateescape")).decode()
            except UnicodeError:
                return bad_request(request, "The query string is not valid UTF-8.")
        return self._get_response(request)


class RefuseTooManyHashes:
    """Middleware: answer 503 with `Retry-After` when too many passwords are being hashed."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self._get_response(request)

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponseBase | None:
        """Return 503 with `Retry-After` for TooManyHashes."""
        if not isinstance(exception, TooManyHashes):
            return None
        refusal = busy(request, _SIGN_INS, "Too many sign-ins now")
        refusal["Retry-After"] = str(RETRY_SECONDS)
        return refusal


class CountRequests(PrometheusAfterMiddleware):  # type: ignore[misc]  # the library has no types
    """Counts requests by view, status and known method.

    The library's latencies are labelled with the method as sent, so clients could fill memory and
    page with invented methods.
    """

    def label_metric(
        self, metric: Any, request: HttpRequest, response: HttpResponse | None = None, **labels: str
    ) -> Any:
        """Return the series of `labels`; unknown methods share one label."""
        if "method" in labels:
            labels["method"] = self._method(request)
        return super().label_metric(metric, request, response, **labels)
