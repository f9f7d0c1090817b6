"""glue: the tables of usage reporting."""

from __future__ import annotations

from usage.models.lifetimes import PodLifetime
from usage.models.monitor import MonitorRound
from usage.models.purges import PurgeState
from usage.models.rates import Rate
from usage.models.reports import (
    MonthReport,
    ReportChunk,
    ReportRow,
    ReportRun,
    ReportState,
    RunChunk,
)
from usage.models.rollups import (
    KindDay,
    KindHour,
    PartitionDay,
    PartitionHour,
    RollupDirt,
    RollupState,
    UsageDay,
    UsageHour,
    UserDay,
    UserHour,
)
from usage.models.utilization import UtilizationDirt, UtilizationQuarter, UtilizationState

__all__ = [
    "KindDay",
    "KindHour",
    "MonitorRound",
    "MonthReport",
    "PartitionDay",
    "PartitionHour",
    "PodLifetime",
    "PurgeState",
    "Rate",
    "ReportChunk",
    "ReportRow",
    "ReportRun",
    "ReportState",
    "RollupDirt",
    "RollupState",
    "RunChunk",
    "UsageDay",
    "UsageHour",
    "UserDay",
    "UserHour",
    "UtilizationDirt",
    "UtilizationQuarter",
    "UtilizationState",
]
