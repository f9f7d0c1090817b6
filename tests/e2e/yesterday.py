"""A job that failed yesterday, written into the record of a running demo as its history is.

It is gone from the cluster: what is left of its log are the lines that the operator kept.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from devcluster.demo.history import HistoryWriter, longest_ended
from devcluster.demo.recording import sample_recorders
from devcluster.demo.samples import TEAMS, Outcome, PastJob, SampleJob, sample_uid
from ipuhub.management.demofolder import demo_url, use_database
from ipuhub.recording.store import connection_arguments

if TYPE_CHECKING:
    from tests.e2e.running_demo import RunningDemo

TEAM = TEAMS[0]
_CODE = "from tests.e2e.yesterday import write_failed_job; write_failed_job({!r}, {!r})"


def fail_yesterday(demo: RunningDemo, name: str) -> str:
    """Write it, as `manage.py make_demo_history` would; return whose job it was."""
    demo.manage("shell", "-c", _CODE.format(str(demo.directory), name))
    return TEAM.users[0]


def write_failed_job(directory: str, name: str) -> None:
    """Write it; this runs in a process of its own, with the demo's database."""
    end = longest_ended(datetime.now(UTC))
    ended = end - timedelta(hours=23)
    job = SampleJob(TEAM, name, TEAM.users[0], 1, 1, 600.0, Outcome.FAILS, 1, 2)
    started = ended - timedelta(minutes=10)
    past = PastJob(job, sample_uid(name), started - timedelta(seconds=4), started, ended)
    database = use_database(demo_url(Path(directory)))
    with psycopg.connect(**connection_arguments(database), autocommit=True) as connection:
        HistoryWriter(connection, sample_recorders(), past.created, end).write_jobs([past])
