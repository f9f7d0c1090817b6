"""glue: the tables of usage reporting."""

from __future__ import annotations

from usage.models.lifetimes import PodLifetime
from usage.models.monitor import MonitorRound
from usage.models.purges import PurgeState
from usage.models.reports import MonthReport, ReportChunk, ReportRow, ReportRun, ReportState
from usage.models.rollups import (
    PartitionDay,
    PartitionHour,
    RollupDirt,
    RollupState,
    UsageDay,
    UsageHour,
)

__all__ = [
    "MonitorRound",
    "MonthReport",
    "PartitionDay",
    "PartitionHour",
    "PodLifetime",
    "PurgeState",
    "ReportChunk",
    "ReportRow",
    "ReportRun",
    "ReportState",
    "RollupDirt",
    "RollupState",
    "UsageDay",
    "UsageHour",
]
