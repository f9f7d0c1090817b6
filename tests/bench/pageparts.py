"""The pages of the page bench: without a price, with prices, and with one by an accelerator's name.

Every resource and one instance type have prices, which change eight days after the first of last
month. They are deleted afterwards, so that the database can be measured again.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Part:
    """Pages, and what has a price meanwhile: resource and name. `{job}` is a job's UID, `{last}`
    the last month."""

    heading: str
    pages: tuple[str, ...]
    prices: tuple[tuple[str, str], ...] = ()


DASHBOARD = (
    "/",
    "/fleet/",
    "/fleet/table/",
    "/queue/",
    "/jobs/",
    "/partitions/",
    "/search/?q=a",
    "/usage/",
    "/usage/pods/",
    "/usage/gaps/",
    "/usage/reports/",
    "/utilization/",
    "/system/",
    "/audit/",
    "/account/users/",
    "/account/notifications/",
    "/api/v1/fleet",
    "/api/v1/queue",
)
_OF_RESOURCES = (
    ("cpu", ""),
    ("memory", ""),
    ("gpu", ""),
    ("partition-ipu", ""),
    ("instance", "type-1"),
)
PARTS = (
    Part(
        "without a price",
        (
            "/",
            "/queue/",
            "/fleet/",
            "/fleet/table/",
            "/fleet/machines/v1:8090/ag7/",
            "/fleet/machines/v1:8090/ag7/ipus/28/",
            "/api/v1/fleet",
            "/api/v1/queue",
            "/jobs/",
            "/jobs/?namespace=ns-7&status=Failed",
            "/jobs/?user=user-7",
            "/jobs/{job}/",
            "/jobs/{job}/logs/",
            "/jobs/{job}/pods/",
            "/jobs/{job}/events/",
            "/jobs/{job}/usage/",
            "/jobs/{job}/yaml/",
            "/search/?q=user-7",
            "/search/?q=a",
            "/search/?q=work-77",
            "/system/",
            "/audit/",
            "/account/users/",
            "/account/notifications/",
            "/account/tokens/",
            "/partitions/",
            "/partitions/?namespace=ns-7",
            "/usage/reports/",
            "/usage/rates/",
            "/usage/",
            "/usage/?month={last}",
            "/usage/?month={last}&by=user",
            "/usage/?month={last}&by=namespace",
            "/usage/?month={last}&by=instance_type&namespace=ns-7",
            "/usage/chart.json",
            "/usage/chart.json?month={last}",
            "/usage/chart.json?month={last}&by=user",
            "/utilization/",
            "/utilization/?month={last}",
            "/utilization/chart.json?month={last}",
            "/utilization/?window=year",
            "/utilization/chart.json?window=year",
            "/usage/pods/",
            "/usage/faults/",
            "/usage/gaps/",
            "/api/v1/jobs",
            "/api/v1/usage/summary?month={last}&by=group",
            "/api/v1/usage/series?month={last}&by=group",
            "/api/v1/usage/capacity?month={last}&step=hour",
            "/api/v1/usage/series?month={last}&by=group&step=hour",
            "/api/v1/usage/series?month={last}&by=instance_type&step=hour",
            "/api/v1/usage/summary?month={last}&by=job",
            "/api/v1/usage/lifetimes",
        ),
    ),
    Part(
        "with prices, which change in the last month",
        (
            "/jobs/{job}/",
            "/partitions/",
            "/partitions/?namespace=ns-7",
            "/usage/pods/",
            "/usage/pods/?namespace=ns-7",
            "/usage/",
            "/usage/?month={last}",
            "/usage/?month={last}&by=user&measure=cost",
            "/usage/chart.json?month={last}&measure=cost",
            "/api/v1/jobs/{job}/usage",
            "/api/v1/usage/lifetimes?from={last}-01",
            "/api/v1/usage/partitions?month={last}",
            "/api/v1/usage/summary?month={last}&by=group",
            "/api/v1/usage/series?month={last}&by=group",
        ),
        _OF_RESOURCES,
    ),
    Part(
        "with a price of an accelerator by name, too",
        (
            "/jobs/{job}/",
            "/usage/pods/",
            "/usage/?month={last}",
            "/usage/?month={last}&by=user&measure=cost",
            "/usage/chart.json?month={last}&measure=cost",
            "/api/v1/usage/summary?month={last}&by=group",
        ),
        (*_OF_RESOURCES, ("accelerator", "nvidia.com/gpu")),
    ),
)


@contextmanager
def priced(prices: tuple[tuple[str, str], ...]) -> Iterator[None]:
    """Let these have a price until the end, another price from the ninth of last month on."""
    from django.utils import timezone

    from usage.models import Rate
    from usage.rates.pages import set_rate
    from usage.time.months import usage_zone
    from usage.time.windows import Month

    now, zone = timezone.now(), usage_zone()
    change = Month.of(now, zone).previous().first(zone).date() + timedelta(days=8)
    begins = ((change - timedelta(days=365), change, "0.50"), (change, None, "0.75"))
    made = [
        set_rate(
            Rate(resource=kind, name=name, price=price, valid_from=a, valid_until=b), "bench", now
        )
        for kind, name in prices
        for a, b, price in begins
    ]
    try:
        yield
    finally:
        Rate.objects.filter(pk__in=[each.pk for each in made]).delete()
