"""glue: copies the pods of a PrimeHub Usage database into IPUHub's, in batches.

Pods that are already recorded stay unchanged, so you can repeat an import, and run it next to a
prober.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.db import connection, transaction

from ipuhub.models import WatchCheckpoint
from ipuhub.recording.recorder import Fault, store
from ipuhub.recording.shapes import Subject
from usage.legacy.primehub import SourceRow, convert_row
from usage.models import PodLifetime
from usage.reports.downloads import own_connection
from usage.time.months import POD_WATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from usage.legacy.primehub import Origin

WATCH: Final = "primehub-import"
"""Under which name the faults of an import are kept."""
_BATCH: Final = 2000
_TABLE: Final = "primehub_usages"
_SOUND: Final = "BETWEEN '1970-01-01' AND '9000-01-01'"


def _instant(column: str) -> str:
    return f"CASE WHEN {column} {_SOUND} THEN {column} AT TIME ZONE %(zone)s END"


_COUNT: Final = f"SELECT count(*), count(DISTINCT uid) FROM {_TABLE}"  # noqa: S608
# Of several rows of a pod the row that ended last is the best known: a second prober of PrimeHub
# Usage left the other row open.
_ROWS: Final = f"""
SELECT DISTINCT ON (uid) uid, pod_name, group_name, user_name, component, component_name,
  instance_type, gpu, cpu, memory,
  {_instant("scheduled_time")}, {_instant("finished_time")}, {_instant("updated_time")},
  NOT (COALESCE(scheduled_time {_SOUND}, true) AND COALESCE(finished_time {_SOUND}, true)
    AND updated_time {_SOUND}),
  count(*) OVER (PARTITION BY uid)
FROM {_TABLE} ORDER BY uid, finished_time DESC NULLS LAST, updated_time DESC, id DESC
"""  # noqa: S608  # names of columns only


class ImportRefusedError(Exception):
    """The import did nothing; the message says why and what to do."""


@dataclass
class Outcome:
    """The result of an import or of a dry run: numbers of pods by result.

    `faults`: faulty rows by code. `began`: when the first imported pod began.
    """

    zone: str = ""
    rows: int = 0
    pods: int = 0
    imported: int = 0
    known: int = 0
    open: int = 0
    never_scheduled: int = 0
    began: datetime | None = None
    faults: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Order:
    """The rows to import, from the database at `url` (empty: IPUHub's own).

    `zone`: the time zone of the times in that database; empty: its server's. `purged_until`: pods
    that ended earlier were purged. `write`: off for a dry run.
    """

    origin: Origin
    url: str = ""
    zone: str = ""
    purged_until: datetime | None = None
    write: bool = True


def import_usage(order: Order, tell: Callable[[int, int], None]) -> Outcome:
    """Import all pods and report progress. Raises ImportRefusedError.

    Each batch is one transaction: imported batches stay if a later batch fails.
    """
    outcome = Outcome()
    with _open(order.url) as source:
        try:
            for rows in _batches(source, order, outcome):
                _take(rows, order, outcome)
                tell(outcome.imported + outcome.known, outcome.pods)
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise ImportRefusedError(
                "The source is not a database of PrimeHub Usage 1.1: "
                f"{error.diag.message_primary}. Name it with --from."
            ) from None
        except psycopg.errors.InvalidParameterValue:
            raise ImportRefusedError(
                f"PostgreSQL does not know the time zone {order.zone!r}."
            ) from None
    return outcome


def newest_cluster() -> str:
    """Return the UID of the cluster whose pods are recorded; empty if no pod is."""
    checkpoint = WatchCheckpoint.objects.filter(name=POD_WATCH).first()
    return checkpoint.cluster_uid if checkpoint else ""


def _open(url: str) -> psycopg.Connection[Any]:
    try:
        source = psycopg.connect(url, connect_timeout=10) if url else own_connection()
    except psycopg.OperationalError as error:
        raise ImportRefusedError(f"The source does not answer: {error}") from None
    except psycopg.ProgrammingError:  # its text would show the password
        raise ImportRefusedError("--from is not an address like postgresql://HOST/NAME.") from None
    source.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    source.read_only = True
    return source


def _batches(
    source: psycopg.Connection[Any], order: Order, outcome: Outcome
) -> Iterator[list[SourceRow]]:
    """Yield batches of rows, one row per pod, from one snapshot."""
    outcome.zone = order.zone or _one(source, "SHOW timezone")[0]
    source.execute("SELECT timezone(%s, now())", [outcome.zone])  # refused here, also without rows
    outcome.rows, outcome.pods = _one(source, _COUNT)
    with source.cursor(name="import_primehub") as cursor:
        cursor.itersize = _BATCH
        cursor.execute(_ROWS, {"zone": outcome.zone})
        while rows := cursor.fetchmany(_BATCH):
            yield [SourceRow(*row) for row in rows]


def _one(source: psycopg.Connection[Any], sql: str) -> tuple[Any, ...]:
    found = source.execute(sql.encode()).fetchone()
    return () if found is None else tuple(found)


def _take(rows: list[SourceRow], order: Order, outcome: Outcome) -> None:
    """Import the pods of a batch that are not recorded yet, and store faults of their rows."""
    with transaction.atomic():
        uids = [row.uid for row in rows]
        known = set(PodLifetime.objects.filter(uid__in=uids).values_list("uid", flat=True))
        new, faults = [], list[Fault]()
        for row in rows:
            if row.uid in known:
                continue
            found = convert_row(row, order.origin)
            faults += found.faults
            if found.columns is not None and not _is_purged(found.columns, order):
                new.append(PodLifetime(**found.columns))
            elif found.columns is not None:
                faults.append(_purged(row, order))
        _count(new, faults, outcome)
        outcome.known += len(known)
        if order.write:
            PodLifetime.objects.bulk_create(new, ignore_conflicts=True)
            with connection.cursor() as cursor:
                store(cursor, WATCH, faults, order.origin.now)  # type: ignore[arg-type]


def _is_purged(columns: dict[str, Any], order: Order) -> bool:
    return order.purged_until is not None and columns["finished_at"] < order.purged_until


def _purged(row: SourceRow, order: Order) -> Fault:
    text = (
        f"the pod ended before {order.purged_until:%Y-%m-%d %H:%M} UTC, until when usage is purged"
    )
    return Fault(Subject(row.uid, order.origin.namespace, row.pod_name), "import-purged", text)


def _count(new: list[PodLifetime], faults: list[Fault], outcome: Outcome) -> None:
    outcome.imported += len(new)
    outcome.open += sum(each.estimated for each in new)
    outcome.never_scheduled += sum(each.scheduled_at is None for each in new)
    outcome.faults.update(fault.code for fault in faults)
    begins = [each.scheduled_at for each in new if each.scheduled_at is not None]
    outcome.began = min([*begins, *([outcome.began] if outcome.began else [])], default=None)
