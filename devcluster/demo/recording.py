"""glue: the sample history of the demo, written by the prober's recorders, and its prices."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.utils import timezone

from devcluster.demo.history import HistoryWriter, Recorders, clear, longest_ended
from devcluster.demo.samples import CLUSTER, TEAMS, first_of_month_before
from ipuhub.text import AuthorTrust
from jobs.history.recorder import JobRecorder
from partitions.history.recorder import Owner, PartitionRecorder
from usage.models import Rate
from usage.pods.recorder import PodRecorder
from usage.prober import owners_of, recorded_jobs
from usage.rates.pages import set_rate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime

    import psycopg

_GROUPS = {team.namespace: team.group for team in TEAMS}
_SEED = 1  # the same number: the same history
_SET_BY: Final = "sample history"
_PRICES: Final = {
    Rate.Resource.PARTITION_IPU: Decimal("1.25"),
    Rate.Resource.GPU: Decimal("0.60"),
    Rate.Resource.CPU: Decimal("0.02"),
    Rate.Resource.MEMORY: Decimal("0.003"),
}
"""Invented prices per hour, so that the pages show what usage costs."""


def sample_recorders() -> Recorders:
    """The prober's recorders, knowing the sample namespaces' groups."""
    authors = AuthorTrust(is_on=True)

    def owners(cursor: Any, jobs: Sequence[tuple[str, str]]) -> dict[str, Owner]:
        found = {uid: Owner(_GROUPS[namespace], "") for uid, namespace in jobs}
        recorded = owners_of(cursor, found).items()
        return found | {uid: Owner(*whose) for uid, whose in recorded}

    return Recorders(
        pods=PodRecorder(recorded=recorded_jobs),
        jobs=JobRecorder(_GROUPS.__getitem__, authors),
        partitions=PartitionRecorder(settings.NAMESPACE, settings.TRACKER_CONFIGMAP, owners),
    )


def write_samples(connection: psycopg.Connection[Any]) -> str:
    """Write the sample history of last and this month, and return a summary.

    An older month's report would be closed with the samples in it permanently.
    """
    end = longest_ended(timezone.now())
    begin = first_of_month_before(end, 1)
    writer = HistoryWriter(connection, sample_recorders(), begin, end, _SEED)
    writer.write()
    set_sample_rates(begin.date(), end)
    counts = ", ".join(f"{count} {what}" for what, count in sorted(writer.counts.items()))
    return (
        f"sample history from {begin:%Y-%m-%d} to now: {counts}\n"
        f"its namespaces begin with sample-, its rows have the cluster identity {CLUSTER}; "
        "--clear removes it"
    )


def set_sample_rates(first: date, now: datetime) -> None:
    """Set invented prices from the day `first` on, unless a rate already exists."""
    if not Rate.objects.exists():
        for resource, price in _PRICES.items():
            set_rate(Rate(resource=resource, price=price, valid_from=first), _SET_BY, now)


def clear_samples(connection: psycopg.Connection[Any]) -> str:
    """Remove the sample history and its prices; say how much it was."""
    Rate.objects.filter(created_by=_SET_BY).delete()
    return f"removed {clear(connection)} rows of the sample history"
