"""docs/admin/csv-columns.md has the columns of every CSV file, in the order of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dashboard.actions.auditlist import COLUMNS as AUDIT
from dashboard.actions.rolechanges import COLUMNS as ROLE_COLUMNS
from dashboard.fleettable import COLUMNS as IPUS
from dashboard.job import tables as job
from dashboard.job.api import POD_COLUMNS
from dashboard.notify.api import COLUMNS as NOTIFICATIONS
from dashboard.notify.subscriptionapi import COLUMNS as SUBSCRIPTIONS
from dashboard.partitions import PartitionUsageSerializer
from dashboard.queue.lines import COLUMNS as QUEUE
from dashboard.system import WATCH_COLUMNS
from jobs.views import COLUMNS as JOBS
from partitions.views import PARTITIONS, STAT_COLUMNS
from usage.api.rates import COLUMNS as RATES
from usage.api.reports import REPORT_COLUMNS, RUN_COLUMNS
from usage.reports.columnmeanings import DETAILS, SUMMARY
from usage.reports.columns import CORRECTION, DEFAULT, PRIMEHUB
from usage.sums.columns import step_columns, sums_columns
from usage.tables import (
    COST,
    COST_EXPORTS,
    FAULT_COLUMNS,
    GAP_COLUMNS,
    LIFETIME_COLUMNS,
)
from usage.utilization.answers import capacity_columns, week_columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipuhub.web.columns import Column
    from usage.reports.columnmeanings import Meaning
    from usage.reports.columns import Columns

PAGE = Path(__file__).resolve().parents[3] / "docs" / "admin" / "csv-columns.md"


def names(columns: Columns) -> list[str]:
    return [name for name, _ in columns]


def keys(columns: Iterable[Column]) -> list[str]:
    return [column.key for column in columns]


FILES = {
    "Summary of a month or range": names(DEFAULT.summary),
    "Details of a month or range": names(DEFAULT.details),
    "Correction": names(CORRECTION.summary),
    "PrimeHub summary": names(PRIMEHUB.summary),
    "PrimeHub details": names(PRIMEHUB.details),
    "Usage by dimension": keys(sums_columns((), None)),
    "Usage by step": keys(step_columns((), None)),
    "Pods": keys(LIFETIME_COLUMNS),
    "Partition usage": list(PartitionUsageSerializer.Meta.fields),
    "Partitions": keys((*PARTITIONS.columns, COST, *COST_EXPORTS)),
    "Utilization": keys(capacity_columns()),
    "Utilization by hour of the week": keys(week_columns()),
    "Gaps": keys(GAP_COLUMNS),
    "Faults": keys(FAULT_COLUMNS),
    "Jobs": keys((*JOBS, COST, *COST_EXPORTS)),
    "IPUs by namespace": keys(STAT_COLUMNS),
    "Watches": keys(WATCH_COLUMNS),
    "Conditions of a job": keys(job.CONDITIONS),
    "Attempts of a job": keys(job.ATTEMPTS),
    "History of a job": keys(job.TRANSITIONS),
    "Kubernetes Events of a job": keys(job.EVENTS),
    "Pods of a job": keys(job.PODS),
    "Partitions of a job": keys(job.PARTITIONS),
    "Pods of a job from the API": keys(POD_COLUMNS),
    "Month reports": keys(REPORT_COLUMNS),
    "Report runs": keys(RUN_COLUMNS),
    "Rates": keys(RATES),
    "Subscriptions": keys(SUBSCRIPTIONS),
    "Audit": keys(AUDIT),
    "Role changes": keys(ROLE_COLUMNS),
    "Notifications": keys(NOTIFICATIONS),
    "IPUs": keys(IPUS),
    "Queue": keys(QUEUE),
}


def documented() -> dict[str, list[str]]:
    """Return the columns of each section's table."""
    sections = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    tables = {
        section.partition("\n")[0]: re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        for section in sections
    }
    return {title: columns for title, columns in tables.items() if columns}


@pytest.mark.parametrize("title", FILES)
def test_the_page_has_the_columns_of_the_file(title: str) -> None:
    assert documented().get(title) == FILES[title]


@pytest.mark.parametrize(
    ("title", "meanings"),
    [("Summary of a month or range", SUMMARY), ("Details of a month or range", DETAILS)],
)
def test_the_reports_page_explains_columns_in_the_same_words(
    title: str, meanings: dict[str, Meaning]
) -> None:
    section = PAGE.read_text("utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", section, re.MULTILINE)
    shown_rows = [(name, meaning.unit, meaning.text) for name, meaning in meanings.items()]
    assert rows == shown_rows


def test_every_table_of_the_page_is_of_a_file() -> None:
    assert set(documented()) == set(FILES)
