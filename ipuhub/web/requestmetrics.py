"""glue: the HTTP metrics of django-prometheus, with no series that a client can invent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_prometheus.middleware import PrometheusAfterMiddleware

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


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
