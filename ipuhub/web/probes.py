"""glue: `/healthz`, `/readyz` and `/metrics` of the web process, under any name and address.

The HTTP metrics of django-prometheus, with no series that a client can invent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from django.db import DatabaseError, connection
from django.http import HttpResponse
from django.urls import resolve
from django.views.decorators.http import require_safe
from django_prometheus.middleware import PrometheusAfterMiddleware

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

PATHS: Final = ("/healthz", "/readyz", "/metrics")


class AnswerProbes:
    """Middleware: answers probes before anything that judges the host name.

    A kubelet and Prometheus ask a pod by its address, which is no name that browsers may use.
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
    """Return `word` while PostgreSQL answers, else a line that says so with `status`."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        word = "postgres: does not answer\n"
        return HttpResponse(word, status=status, content_type="text/plain")
    return HttpResponse(word, content_type="text/plain")


class CountRequests(PrometheusAfterMiddleware):  # type: ignore[misc]  # the library has no types
    """Counts requests by view, status and known method.

    The library's own latencies carry the method as it was sent: anybody could fill the memory and
    the page with invented ones.
    """

    def label_metric(
        self, metric: Any, request: HttpRequest, response: HttpResponse | None = None, **labels: str
    ) -> Any:
        """The series of `labels`; an unknown method is told as such."""
        if "method" in labels:
            labels["method"] = self._method(request)
        return super().label_metric(metric, request, response, **labels)
