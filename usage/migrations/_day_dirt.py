"""The triggers of migration 0003, which noted days; `_hour_dirt` has those of now.

Statement triggers with transition tables: one row of dirt for each different pair of days in a
batch, whatever its size. A change of the end touches the days between old and new end; a change
of anything else that is summed touches the whole lifetime.

A plan that a small batch has cached would join a large one by nested loops, 0.1 ms a row at 1,000
rows: they are off in the function, and the triggers cost a tenth of the upsert.
"""

from __future__ import annotations

from typing import Final

_SUMMED = (
    "scheduled_at",
    "namespace",
    '"group"',
    '"user"',
    "user_verified",
    "component",
    "instance_type",
    "cpu_millicores",
    "memory_bytes",
    "gpus",
    "micro_ipus",
    "estimated",
)


def _row(alias: str) -> str:
    return f"({', '.join(f'{alias}.{column}' for column in _SUMMED)})"


CREATE: Final = f"""
CREATE FUNCTION usage_mark_dirt() RETURNS trigger LANGUAGE plpgsql SET enable_nestloop = off AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    INSERT INTO usage_rollupdirt (first_day, last_day)
    SELECT DISTINCT (least(
        CASE WHEN {_row("a")} IS NOT DISTINCT FROM {_row("b")}
             THEN least(a.finished_at, b.finished_at)
             ELSE least(a.scheduled_at, b.scheduled_at) END) AT TIME ZONE 'UTC')::date,
      CASE WHEN a.finished_at IS NOT NULL AND b.finished_at IS NOT NULL
           THEN (greatest(a.finished_at, b.finished_at, a.scheduled_at, b.scheduled_at)
                 AT TIME ZONE 'UTC')::date END
    FROM removed b JOIN added a USING (id)
    WHERE (a.scheduled_at IS NOT NULL OR b.scheduled_at IS NOT NULL)
      AND (a.finished_at IS DISTINCT FROM b.finished_at
           OR {_row("a")} IS DISTINCT FROM {_row("b")});
  ELSIF TG_OP = 'INSERT' THEN
    INSERT INTO usage_rollupdirt (first_day, last_day)
    SELECT DISTINCT (scheduled_at AT TIME ZONE 'UTC')::date,
      CASE WHEN finished_at IS NOT NULL
           THEN (greatest(scheduled_at, finished_at) AT TIME ZONE 'UTC')::date END
    FROM added WHERE scheduled_at IS NOT NULL;
  ELSE
    INSERT INTO usage_rollupdirt (first_day, last_day)
    SELECT DISTINCT (scheduled_at AT TIME ZONE 'UTC')::date,
      CASE WHEN finished_at IS NOT NULL
           THEN (greatest(scheduled_at, finished_at) AT TIME ZONE 'UTC')::date END
    FROM removed WHERE scheduled_at IS NOT NULL;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER usage_dirt_insert AFTER INSERT ON usage_podlifetime
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION usage_mark_dirt();
CREATE TRIGGER usage_dirt_update AFTER UPDATE ON usage_podlifetime
  REFERENCING OLD TABLE AS removed NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION usage_mark_dirt();
CREATE TRIGGER usage_dirt_delete AFTER DELETE ON usage_podlifetime
  REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION usage_mark_dirt();
"""  # noqa: S608  # text of this module
DROP: Final = """
DROP TRIGGER usage_dirt_insert ON usage_podlifetime;
DROP TRIGGER usage_dirt_update ON usage_podlifetime;
DROP TRIGGER usage_dirt_delete ON usage_podlifetime;
DROP FUNCTION usage_mark_dirt();
"""
