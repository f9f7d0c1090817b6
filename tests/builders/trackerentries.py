"""Entries of the tracker."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ipuhub.partition import Phase
from partitions.proxy.lifecycle import TrackerEntry

NOW = datetime(2026, 11, 21, 8, 0, 0, 123_000, tzinfo=UTC)


def entry(number: int = 0, **given: Any) -> TrackerEntry:
    """Partition `number`, active, of a holder of its own."""
    made = TrackerEntry(
        uid=f"uid-{number}",
        instance=0,
        namespace="default",
        name="job",
        attempt=0,
        id=f"p-job-default-{number}",
        size=4,
        phase=Phase.ACTIVE,
        controller="v1",
        label="vipu-ctrl=v1",
        reserved_at=NOW,
    )
    return replace(made, **given)
