"""glue: `/healthz`, `/readyz` and `/metrics` of the web process, for any host name.

HTTP metrics of django-prometheus, without series that clients can create.
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
