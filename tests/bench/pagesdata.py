"""A deterministic history for the page bench: jobs, partitions and pods of the last 60 days.

20 groups, 500 users, 4 components, 8 instance types, 40 namespaces; one pod in 20 runs for days,
one in 5,000 never ends, and pods that would end later than now still run; ten pods a job, and where
there are ten times as many pods as jobs a quarter of the partitions has its pods. Two pods in three
have accelerators, half of them by one name and half by another. Four V-IPU controllers report their
IPUs every minute. Utilization covers a year: the sums of the 60 days, six times. Each table is
written by one INSERT ... SELECT, so that a million rows take seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

DAYS = 60

_PODS = """
INSERT INTO usage_podlifetime (uid, cluster_uid, namespace, pod_name, node, claim, component,
  component_name, "group", "user", user_verified, instance_type, job_uid, role, partition,
  cpu_millicores, memory_bytes, gpus, accelerators, micro_ipus, phase, reason, created_at,
  scheduled_at, started_at, finished_at, end_source, estimated, uncertainty_seconds, updated_at)
SELECT md5('pod' || n)::uuid::text, 'bench', 'ns-' || u %% 40, 'pod-' || n, 'node-' || n %% 64,
  CASE WHEN c = 0 THEN 'operator' ELSE 'annotation' END,
  (ARRAY['ipujob', 'notebook', 'job', 'app'])[c + 1], 'work-' || n / 10,
  'group-' || u %% 20, 'user-' || u, n %% 7 > 0, 'type-' || (u + n) %% 2 + c * 2,
  CASE WHEN c = 0 THEN md5('job' || n / 10)::uuid::text ELSE '' END,
  CASE WHEN n %% 10 = 0 THEN 'launcher' ELSE 'worker' END,
  CASE WHEN c = 0 THEN 'p-work-' || n / 10 ELSE '' END,
  (n %% 16 + 1) * 500, (n %% 32 + 1) * 1073741824::bigint, n %% 3,
  CASE WHEN n %% 3 = 0 THEN '{}'::jsonb
    ELSE jsonb_build_object((ARRAY['nvidia.com/gpu', 'amd.com/gpu'])[n %% 2 + 1], n %% 3) END,
  CASE WHEN c = 0 THEN (n %% 10) * 1000000 ELSE 0 END,
  CASE WHEN is_over THEN 'Succeeded' ELSE 'Running' END, '',
  began, began, began, CASE WHEN is_over THEN began + took END,
  'event', n %% 50 = 0, 0, %(now)s
FROM (SELECT *, n %% 5000 > 0 AND began + took <= %(now)s AS is_over
  FROM (SELECT n, u, (n / 10) %% 4 AS c,
        date_trunc('second', %(now)s - n * (interval '60 days' / %(rows)s)) AS began,
        interval '1 second' * (CASE WHEN n %% 20 = 0 THEN n %% 300000 ELSE n %% 7200 END) AS took
      FROM (SELECT n, (n / 40 * 7919) %% 500 AS u
            FROM generate_series(1, %(rows)s) AS n) AS numbers) AS lives) AS pods
"""
_PARTITIONS = """
INSERT INTO partitions_partitionlifetime (key, cluster_uid, shard, job_uid, namespace, job_name,
  instance, attempt, partition, controller, size, phase, reason, message, "group", "user",
  user_verified, reserved_at, active_at, released_at, estimated, uncertainty_seconds, updated_at)
SELECT 'k' || n, 'bench', '', md5('job' || n)::uuid::text, 'ns-' || u %% 40, 'work-' || n, 0, 0,
  'p-work-' || n, 'vipu-' || n %% 4, (ARRAY[1, 2, 4, 8, 16])[n %% 5 + 1], 'released', '', '',
  'group-' || u %% 20, 'user-' || u, true, began, began,
  least(began + interval '1 second' * (n %% 7200), %(now)s), false, 0, %(now)s
FROM (SELECT n, (n / 4 * 7919) %% 500 AS u,
        date_trunc('second', %(now)s - n * (interval '60 days' / %(rows)s)) AS began
      FROM generate_series(1, %(rows)s) AS n) AS held
"""
_JOBS = """
INSERT INTO jobs_jobrecord (uid, cluster_uid, namespace, name, "group", "user", user_verified,
  ipus, instances, workers, status, reason, message, restart_count, partitions, spec, conditions,
  labels, created_at, started_at, completed_at, estimated, updated_at)
SELECT md5('job' || n)::uuid::text, 'bench', 'ns-' || u %% 40, 'work-' || n, 'group-' || u %% 20,
  'user-' || u, true, (ARRAY[1, 2, 4, 8, 16])[n %% 5 + 1], 1, 9,
  (ARRAY['Completed', 'Completed', 'Failed', 'Running'])
    [CASE WHEN n < 50 THEN 4 ELSE n %% 3 + 1 END],
  'IPUJobCompleted', 'IPUJob work-' || n || ' ended.', 0, '[]', '{"workers": {"replicas": 9}}',
  '[]', '{}', began, began, CASE WHEN n >= 50 THEN least(began + interval '1 hour', %(now)s) END,
  false, %(now)s
FROM (SELECT n, (n / 4 * 7919) %% 500 AS u,
        date_trunc('second', %(now)s - n * (interval '60 days' / %(rows)s)) AS began
      FROM generate_series(1, %(rows)s) AS n) AS jobs
"""
_CAPACITY = """
INSERT INTO partitions_capacitychange (controller, at, total, free, cordoned, faulty, reachable)
SELECT 'vipu-' || c, %(now)s - interval '1 minute' * m, 2048, 700 + (m * 7919 + c) %% 300,
  m / 10000, m %% 3, m %% 1000 > 0
FROM generate_series(1, 86400) AS m, generate_series(0, 3) AS c
"""
_ASKED = """
INSERT INTO ipuhub_watchcheckpoint (name, cluster_uid, resource_version, selection, epoch,
  position_at) VALUES ('capacity', '', '', '', 1, %(now)s)
"""

_EARLIER = """
INSERT INTO usage_utilization{0} (controller, begin, capacity, reserved, by_others, held_idle, idle,
  down, unknown, pod_micro)
SELECT controller, begin - n * interval '60 days', capacity, reserved, by_others, held_idle, idle,
  down, unknown, pod_micro
FROM usage_utilization{0}, generate_series(1, 5) AS n ON CONFLICT DO NOTHING
"""


def fill(cursor: Any, *, pods: int, jobs: int, now: datetime) -> None:
    """Write `pods` lifetimes and `jobs` partition holdings that end at or before `now`."""
    cursor.execute(_CAPACITY, {"now": now})
    cursor.execute(_ASKED, {"now": now})
    cursor.execute(_PODS, {"rows": pods, "now": now})
    cursor.execute(_PARTITIONS, {"rows": jobs, "now": now})
    cursor.execute(_JOBS, {"rows": jobs, "now": now})
    cursor.execute("ANALYZE usage_podlifetime, partitions_partitionlifetime, jobs_jobrecord")


def fill_year(cursor: Any) -> None:
    """Repeat the sums of utilization back to a year ago."""
    for grain in ("quarter", "hour"):
        cursor.execute(_EARLIER.format(grain))
    cursor.execute(
        "UPDATE usage_utilizationstate SET begin = (SELECT min(begin) FROM"
        " usage_utilizationquarter)"
    )
