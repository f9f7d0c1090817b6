"""glue: /metrics of the web process, for Prometheus with a token."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from django.conf import settings
from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe
from django_prometheus.exports import ExportToDjangoView

from ipuhub.api.auth import PREFIX, find_token
from ipuhub.api.scopes import READ, read_scopes
from ipuhub.kube.access import Reviewer
from ipuhub.kube.errors import ConfigError
from ipuhub.process.metricspage import (
    Guard,
    Refused,
    refuse_invalid_token,
    refuse_unchecked_token,
    refuse_without_right,
)
from ipuhub.web.readings import PATIENCE_SECONDS, query_briefly
from partitions.connections import sources

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ipuhub.kube.client import KubeClient

# Any caller may show a token; while the API server is silent each token holds a thread of ours.
_MOST_REVIEWS: Final = 4
_REVIEWS: Final = threading.BoundedSemaphore(_MOST_REVIEWS)
# Digests of API tokens that could read metrics, and until when that counts, in monotonic time: long
# enough for alerts about PostgreSQL, which fire after 5 minutes, and no longer, since a token that
# was revoked meanwhile counts, too.
_GOOD: Final[dict[bytes, float]] = {}
_MOST_GOOD: Final = 256
_GOOD_SECONDS: Final = 330.0


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics to who holds the metrics token or an administrator's API token, or may
    get /metrics by Kubernetes' RBAC."""
    try:
        _check(request.headers.get("Authorization", ""))
    except Refused as no:
        plain = "text/plain; charset=utf-8"
        return HttpResponse(f"{no}\n", plain, no.status, headers=no.headers)
    return cast("HttpResponse", ExportToDjangoView(request))


def _check(authorization: str) -> None:
    guard = Guard(settings.METRICS_TOKEN, lambda: _reviewer_by(sources().kube.client))
    given = guard.unjudged(authorization)
    if given.startswith(PREFIX):
        _check_api_token(given)
    elif given:
        _review(guard, given)


def _check_api_token(text: str) -> None:
    """Judge an API token. While PostgreSQL does not answer, a token that could read metrics in the
    last minutes and has not expired still can: that is when metrics are needed."""
    query_briefly(lambda: _judge_api_token(text), lambda: _require_known(text))


def _judge_api_token(text: str) -> None:
    now = timezone.now()
    token = find_token(text, now)
    _GOOD.pop(_digest(text), None)
    if token is None:
        raise refuse_invalid_token()
    if not token.user.is_staff:
        raise refuse_without_right(token.user.get_username())
    if READ not in read_scopes(token.scopes):
        raise refuse_without_right(f"a token without the scope {READ}")
    if len(_GOOD) >= _MOST_GOOD:
        _GOOD.clear()
    lives = (token.expires_at - now).total_seconds() if token.expires_at else _GOOD_SECONDS
    _GOOD[_digest(text)] = time.monotonic() + min(lives, _GOOD_SECONDS)


def _require_known(text: str) -> None:
    if time.monotonic() >= _GOOD.get(_digest(text), float("-inf")):
        sentence = "PostgreSQL does not answer, so this token cannot be checked. Try again later."
        raise Refused(503, sentence, {"Retry-After": "5"})


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _review(guard: Guard, token: str) -> None:
    if not _REVIEWS.acquire(blocking=False):
        raise refuse_unchecked_token(f"it has not answered {_MOST_REVIEWS} earlier reviews yet")
    try:
        sources().kube.run(_in_time, guard, token)
    except ConfigError as error:
        raise refuse_unchecked_token(error) from error
    finally:
        _REVIEWS.release()


async def _in_time(guard: Guard, token: str) -> None:
    try:
        await asyncio.wait_for(guard.review(token), PATIENCE_SECONDS)
    except TimeoutError as error:
        raise refuse_unchecked_token(f"no answer within {PATIENCE_SECONDS:g} s") from error


@lru_cache(maxsize=1)
def _reviewer_by(client: KubeClient) -> Reviewer:
    return Reviewer(client, audience="")
