"""glue: counts of notifications by outcome, on the dashboard's /metrics.

Workers count in PostgreSQL, because they serve no metrics themselves and a count must outlive its
worker.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from django.db.models import F
from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from ipuhub.models import NotificationCount
from ipuhub.process.metrics import Kind, Metric
from ipuhub.web.readings import query_briefly

if TYPE_CHECKING:
    from collections.abc import Iterable


class Count(StrEnum):
    """The counters: attempts by their outcome, and unexpected errors by the step."""

    SENT = "sent"
    RETRIED = "retried"
    DEAD = "dead"
    COLLECT_ERROR = "collect-error"
    SEND_ERROR = "send-error"


ATTEMPTS: Final = Metric(
    "ipuhub_notification_attempts_total",
    Kind.COUNTER,
    "Attempts to send a notification by outcome: sent, retried (failed, to be retried), dead "
    "(failed, given up).",
    "Do notifications arrive?",
    ("outcome",),
)
ERRORS: Final = Metric(
    "ipuhub_notification_errors_total",
    Kind.COUNTER,
    "Unexpected errors of IPUHub itself by step: collect (the events of a subscription could not "
    "be determined), send. The worker's log has the traceback.",
    "Does IPUHub itself fail to send notifications?",
    ("step",),
)
NOTIFICATIONS: Final = (ATTEMPTS, ERRORS)
_SERIES: Final = {
    Count.SENT: (ATTEMPTS, "sent"),
    Count.RETRIED: (ATTEMPTS, "retried"),
    Count.DEAD: (ATTEMPTS, "dead"),
    Count.COLLECT_ERROR: (ERRORS, "collect"),
    Count.SEND_ERROR: (ERRORS, "send"),
}


def count(what: Count, number: int = 1) -> None:
    """Add to the count that all workers share."""
    NotificationCount.objects.get_or_create(name=what, defaults={"total": 0})
    NotificationCount.objects.filter(name=what).update(total=F("total") + number)


class NotificationCollector(Collector):
    """Reads the counts at each scrape; the last counts while PostgreSQL does not answer."""

    def __init__(self) -> None:
        self._totals: dict[str, int] | None = None

    def describe(self) -> Iterable[CounterMetricFamily]:
        """Return the metrics without values, so that registering them asks no database."""
        return [_family(metric) for metric in NOTIFICATIONS]

    def collect(self) -> Iterable[CounterMetricFamily]:
        """Return all series, 0 included; none if they were never read."""
        totals = self._totals = query_briefly(_read_totals, lambda: self._totals)
        if totals is None:
            return []  # the other metrics of the page are still of use
        families = {metric.name: _family(metric) for metric in NOTIFICATIONS}
        for what, (metric, label) in _SERIES.items():
            families[metric.name].add_metric([label], totals.get(what, 0))
        return families.values()


def _read_totals() -> dict[str, int] | None:
    return dict(NotificationCount.objects.values_list("name", "total"))


def _family(metric: Metric) -> CounterMetricFamily:
    return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)


REGISTRY.register(NotificationCollector())
