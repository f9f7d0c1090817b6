"""glue: how many files the web process streams at the same time, so that pages and API go on.

A streamed answer holds a thread, a processor's share and often a database connection for as long
as its reader takes. Without a bound a few dozen slow readers would take every thread, the probes'
included, and Kubernetes would restart a process that only was popular.
"""

from __future__ import annotations

import time
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Final

import structlog
from django.conf import settings

from ipuhub.web.problems import busy
from ipuhub.web.unread import end_unread_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.http import HttpRequest, StreamingHttpResponse
    from django.http.response import HttpResponseBase

log = structlog.get_logger(__name__)
RETRY_SECONDS: Final = 5
_SENTENCE: Final = (
    "As many files as this server streams at once are being downloaded now. "
    f"Try again in {RETRY_SECONDS} seconds."
)


def slots(downloads: int, threads: int) -> int:
    """Return how many of `threads` may stream: one always stays for pages and probes."""
    return max(1, min(downloads, threads - 1))


class DownloadSlots:
    """Middleware: answers a streamed response with 503 and `Retry-After` while all slots are taken.

    A slot is free again when its response is closed, also by a reader who left. One who takes
    nothing for WEB_UNREAD_SECONDS, or is not done after WEB_DOWNLOAD_SECONDS, is cut off.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._count = slots(settings.WEB_DOWNLOADS, settings.WEB_THREADS)
        self._free = BoundedSemaphore(self._count)
        self._is_full = False  # said once each time, not for each of a crowd

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer the request."""
        answer = self._get_response(request)
        if not answer.streaming:
            return answer
        streamed: StreamingHttpResponse = answer  # type: ignore[assignment]  # that is what it says
        if not self._free.acquire(blocking=False):
            streamed.close()
            return self._refuse(request)
        end_unread_after(settings.WEB_UNREAD_SECONDS)
        blocks: Iterator[bytes] = iter(streamed)
        deadline = time.monotonic() + settings.WEB_DOWNLOAD_SECONDS
        streamed.streaming_content = _Held(blocks, self._release, deadline)
        return streamed

    def _refuse(self, request: HttpRequest) -> HttpResponseBase:
        if not self._is_full:
            self._is_full = True
            log.warning("downloads are refused until one ends", downloads=self._count)
        refusal = busy(request, _SENTENCE)
        refusal["Retry-After"] = str(RETRY_SECONDS)
        refusal._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001  # else Django logs an error for each
        return refusal

    def _release(self) -> None:
        self._is_full = False
        self._free.release()


class DownloadTooSlow(Exception):  # noqa: N818  # the reader's doing
    """The reader is not done in time: the server breaks the connection off."""


class _Held:
    """The blocks of a response; closing it gives the slot back, once."""

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
        """Give the slot back."""
        if self._is_held:
            self._is_held = False
            self._release()
