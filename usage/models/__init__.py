"""glue: the tables of usage reporting."""

from __future__ import annotations

from usage.models.lifetimes import PodLifetime
from usage.models.monitor import MonitorRound
from usage.models.reports import MonthReport, ReportChunk, ReportRow, ReportRun, ReportState
from usage.models.rollups import RollupDirt, RollupState, UsageDay

__all__ = [
    "MonitorRound",
    "MonthReport",
    "PodLifetime",
    "ReportChunk",
    "ReportRow",
    "ReportRun",
    "ReportState",
    "RollupDirt",
    "RollupState",
    "UsageDay",
]
