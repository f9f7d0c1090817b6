"""io: confirms the operator's stamps on pods by the records of their jobs.

A stamp counts if there is a record of a job with the same UID in the same namespace. Without a
record the pod counts as its annotation claims, without the stamp's IPUs. The row keeps the stamp,
and the transaction that writes the job's record applies it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from usage.pods.annotations import OPERATOR, OPERATORS_COMPONENT
from usage.pods.rows import with_confirmed_stamp, with_unconfirmed_stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from psycopg import Cursor

    from usage.pods.rows import JobOwner, PodRow

    RecordedJobs: TypeAlias = Callable[[Cursor[Any], Collection[str]], Mapping[str, JobOwner]]
    """Which of these jobs, by UID, are recorded, and whose they are."""

_LOCK: Final = 0x1B_57_A3_95  # between a search for a record in vain and the write of the record
_SHARE: Final = "SELECT pg_advisory_xact_lock_shared(%s)"
_ALONE: Final = "SELECT pg_advisory_xact_lock(%s)"
# No sighting: `updated_at` stays.
_PROVE: Final = f"""
UPDATE usage_podlifetime AS known SET
    claim = '{OPERATOR}', "group" = job."group", "user" = job."user",
    user_verified = job.user_verified, stamp = NULL,
    job_uid = job.uid, role = known.stamp ->> 'role', partition = known.stamp ->> 'partition',
    instance = (known.stamp ->> 'instance')::integer,
    attempt = (known.stamp ->> 'attempt')::integer,
    micro_ipus = (known.stamp ->> 'micro_ipus')::bigint,
    component = CASE known.claimed_component WHEN '{OPERATORS_COMPONENT}'
        THEN known.claimed_component ELSE known.component END,
    claimed_component = CASE known.claimed_component WHEN '{OPERATORS_COMPONENT}'
        THEN '' ELSE known.claimed_component END
FROM jsonb_to_recordset(%(jobs)s::jsonb)
        AS job (uid text, namespace text, "group" text, "user" text, user_verified boolean)
WHERE known.stamp IS NOT NULL AND known.stamp ->> 'job_uid' = job.uid
  AND known.namespace = job.namespace
"""  # noqa: S608  # text of this program


def no_job_owners(_cursor: Cursor[Any], _jobs: Collection[str]) -> Mapping[str, JobOwner]:
    """Return no jobs: without a record of jobs no stamp is confirmed."""
    return {}


def check_stamps(
    cursor: Cursor[Any], rows: Sequence[PodRow], recorded: RecordedJobs
) -> Sequence[PodRow]:
    """Return the rows with each stamp either confirmed or kept for later; `rows` is not changed."""
    jobs = {row.job_uid for row in rows if row.claim == OPERATOR}
    if not jobs:
        return rows
    found = recorded(cursor, jobs)
    if missing := jobs - found.keys():
        # A record that is being written now: either it is waited for and seen, or its writer waits
        # for this transaction and sees these rows.
        cursor.execute(_SHARE, [_LOCK])
        found = {**found, **recorded(cursor, missing)}
    return [row if row.claim != OPERATOR else _judged(row, found) for row in rows]


def _judged(row: PodRow, jobs: Mapping[str, JobOwner]) -> PodRow:
    owner = jobs.get(row.job_uid)
    if owner is None or owner.namespace != row.namespace:
        return with_unconfirmed_stamp(row)
    return with_confirmed_stamp(row, owner)


def confirm_stamps(cursor: Cursor[Any], recorded: RecordedJobs, jobs: Collection[str]) -> int:
    """Confirm waiting stamps of jobs that this transaction has recorded; return their number."""
    cursor.execute(_ALONE, [_LOCK])
    owners = [{"uid": uid, **owner._asdict()} for uid, owner in recorded(cursor, jobs).items()]
    cursor.execute(_PROVE, {"jobs": msgspec.json.encode(owners).decode()})
    return cursor.rowcount
