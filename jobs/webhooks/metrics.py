"""io: the webhooks' metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ipuhub.process.boundedmetrics import OTHER
from jobs.ipujob.specfields import known_field
from jobs.operator import metrictable as table
from jobs.webhooks.review import INTERNAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipuhub.process.metrics import Meters
    from jobs.webhooks.server import Certificate

_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


class WebhookMeasures:
    """Counts answers; `meters` has the webhooks' table, `template_schema` the fields of a pod
    template."""

    def __init__(self, meters: Meters, template_schema: Mapping[str, Any]) -> None:
        self._template_schema = template_schema
        self._reviews = meters.counter(table.REVIEWS)
        self._denials = meters.counter(table.DENIALS)
        self._seconds = meters.histogram(table.REVIEW_SECONDS)

    def answered(
        self, webhook: str, operation: str, answer: Mapping[str, Any], seconds: float
    ) -> None:
        """A review has been answered; whoever sends nonsense makes no new labels."""
        known = operation if operation in _OPERATIONS else OTHER
        response = answer["response"]
        self._reviews.labels(webhook, known, outcome_of(response)).inc()
        self._seconds.labels(webhook).observe(seconds)
        for field in denied_fields(response):
            self._denials.labels(known_field(field, self._template_schema) or OTHER).inc()


def outcome_of(response: Mapping[str, Any]) -> str:
    """What a response comes to."""
    if not response["allowed"]:
        if response["status"]["code"] == INTERNAL:
            return "crashed"
        return "denied" if "causes" in response["status"].get("details", {}) else "unreadable"
    if "patch" in response:
        return "patched"
    return "warned" if response.get("warnings") else "allowed"


def denied_fields(response: Mapping[str, Any]) -> list[str]:
    """The fields that a refusal names."""
    causes = response.get("status", {}).get("details", {}).get("causes", ())
    return [cause["field"] for cause in causes]


def tell_certificate(meters: Meters, certificate: Certificate) -> None:
    """Fill when the certificate ends."""
    end = meters.gauge(table.CERTIFICATE_END)
    meters.at_scrape(lambda: end.set(certificate.ends_at().timestamp()))
