"""glue: the tables of usage reporting."""

from __future__ import annotations

from usage.models.accelerators import (
    KindAcceleratorDay,
    KindAcceleratorHour,
    KindAcceleratorSpan,
    UsageAcceleratorDay,
    UsageAcceleratorHour,
    UsageAcceleratorSpan,
    UserAcceleratorDay,
    UserAcceleratorHour,
    UserAcceleratorSpan,
)
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
from usage.models.spans import KindSpan, PartitionSpan, UsageSpan, UserSpan
from usage.models.sums import (
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
    "KindAcceleratorDay",
    "KindAcceleratorHour",
    "KindAcceleratorSpan",
    "KindDay",
    "KindHour",
    "KindSpan",
    "MonitorRound",
    "MonthReport",
    "PartitionDay",
    "PartitionHour",
    "PartitionSpan",
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
    "UsageAcceleratorDay",
    "UsageAcceleratorHour",
    "UsageAcceleratorSpan",
    "UsageDay",
    "UsageHour",
    "UsageSpan",
    "UserAcceleratorDay",
    "UserAcceleratorHour",
    "UserAcceleratorSpan",
    "UserDay",
    "UserHour",
    "UserSpan",
    "UtilizationDirt",
    "UtilizationQuarter",
    "UtilizationState",
]
