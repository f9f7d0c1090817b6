"""Many lifetimes at once, made inside PostgreSQL: deterministic, for plans and figures."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from usage.reports.downloads import own_connection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

_INSERT = """
INSERT INTO usage_podlifetime (uid, cluster_uid, namespace, pod_name, node, claim, component,
  component_name, "group", "user", user_verified, instance_type, job_uid, role, partition,
  cpu_millicores, memory_bytes, gpus, accelerators, micro_ipus, phase, reason, created_at,
  scheduled_at, started_at, finished_at, end_source, estimated, uncertainty_seconds, updated_at)
SELECT md5(n::text)::uuid::text, 'cluster', 'team-' || n %% 20, 'job-' || n || '-worker-0',
  'node-' || n %% 50, 'operator', (ARRAY['ipujob', 'notebook', 'job', 'app'])[1 + n %% 4],
  'job-' || n, 'team-' || n %% 20, 'user-' || n %% 500, false, 'ipu-' || (1 << (n %% 7)),
  md5((n / 2)::text)::uuid::text, 'worker', 'p-job-' || n, 1000 * (1 + n %% 8),
  (1 + n %% 16)::bigint << 30, 0, '{}', 1000000::bigint << (n %% 7), 'Succeeded', 'Completed',
  began, began, began, CASE WHEN n %% 997 = 0 AND began > %(until)s - interval '2 days' THEN NULL
    ELSE began + length END, 'event', false, 0, began + length
FROM (
  SELECT n,
    %(first)s::timestamptz + n * ((%(until)s::timestamptz - %(first)s) / %(count)s) AS began,
    CASE WHEN n %% 20 = 0 THEN interval '1 hour' * (24 + abs(hashint4(n)) %% 240)
      ELSE interval '1 second' * (60 + abs(hashint4(n)) %% 20000) END AS length
  FROM generate_series(0, %(count)s - 1) AS n
) AS made"""

# Those that stand for no constraint: to make them anew takes less CPU than each row's entries do.
_INDEXES = """
SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
WHERE indrelid = 'usage_podlifetime'::regclass
  AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)"""

_ANALYZE = "ANALYZE usage_podlifetime"


def store_many(cursor: Any, count: int, first: datetime, until: datetime) -> None:
    """Store `count` pods that begin evenly in [first, until); one in 20 is longer than a day."""
    _insert(cursor, count, first, until)
    cursor.execute(_ANALYZE)


def _insert(cursor: Any, count: int, first: datetime, until: datetime) -> None:
    cursor.execute(_INSERT, {"count": count, "first": first, "until": until})


@contextmanager
def many_stored(count: int, first: datetime, until: datetime) -> Iterator[Any]:
    """Yield a cursor that sees so many pods; they are never committed, and leave no dead rows that
    each later test of the session would scan."""
    with own_connection() as own:
        cursor = psycopg.ClientCursor(own)
        indexes = cursor.execute(_INDEXES).fetchall()
        for name, _definition in indexes:
            cursor.execute(f"DROP INDEX {name}")
        _insert(cursor, count, first, until)
        for _name, definition in indexes:
            cursor.execute(definition)
        cursor.execute(_ANALYZE)  # after the indexes: of those of expressions it keeps figures, too
        yield cursor
        own.rollback()
        own.autocommit = True
        own.execute("VACUUM usage_podlifetime")
