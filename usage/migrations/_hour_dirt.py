"""The triggers that remember which hours of the sums went stale, since migration 0006.

As `_day_dirt`, but by hours and for partitions too. One row
of dirt for each different pair of hours in a batch, whatever its size. A change of the end touches
the hours between old and new end; a change of anything else that is summed the whole lifetime.

A plan that a small batch has cached would join a large one by nested loops, 0.1 ms a row at 1,000
rows: they are off in the functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of lifetimes; a change of one of `summed` changes sums."""

    name: str
    function: str
    prefix: str
    began: str
    ended: str
    summed: tuple[str, ...]


PODS: Final = _Table(
    "usage_podlifetime",
    "usage_mark_dirt",
    "usage_dirt",
    "scheduled_at",
    "finished_at",
    (
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
    ),
)
_PARTITIONS: Final = _Table(
    "partitions_partitionlifetime",
    "usage_mark_partition_dirt",
    "usage_partition_dirt",
    "reserved_at",
    "released_at",
    ("reserved_at", "namespace", '"group"', '"user"', "size"),
)


def hour(instant: str) -> str:
    return f"date_bin('1 hour', {instant}, '2000-01-01 00:00:00+00')"


def create(table: _Table) -> str:
    began, ended = table.began, table.ended
    a, b = (f"({', '.join(f'{alias}.{each}' for each in table.summed)})" for alias in "ab")
    whole = (
        f"SELECT DISTINCT {hour(began)}, CASE WHEN {ended} IS NOT NULL THEN"  # noqa: S608
        f" {hour(f'greatest({began}, {ended})')} END FROM ROWS WHERE {began} IS NOT NULL"
    )
    insert = "INSERT INTO usage_rollupdirt (first_hour, last_hour)"
    return f"""
CREATE OR REPLACE FUNCTION {table.function}() RETURNS trigger LANGUAGE plpgsql
SET enable_nestloop = off AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    {insert}
    SELECT DISTINCT {
        hour(f'''least(CASE WHEN {a} IS NOT DISTINCT FROM {b}
        THEN least(a.{ended}, b.{ended}) ELSE least(a.{began}, b.{began}) END)''')
    },
      CASE WHEN a.{ended} IS NOT NULL AND b.{ended} IS NOT NULL
           THEN {hour(f"greatest(a.{ended}, b.{ended}, a.{began}, b.{began})")} END
    FROM removed b JOIN added a USING (id)
    WHERE (a.{began} IS NOT NULL OR b.{began} IS NOT NULL)
      AND (a.{ended} IS DISTINCT FROM b.{ended} OR {a} IS DISTINCT FROM {b});
  ELSIF TG_OP = 'INSERT' THEN
    {insert} {whole.replace("ROWS", "added")};
  ELSE
    {insert} {whole.replace("ROWS", "removed")};
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER {table.prefix}_insert AFTER INSERT ON {table.name}
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION {table.function}();
CREATE TRIGGER {table.prefix}_update AFTER UPDATE ON {table.name}
  REFERENCING OLD TABLE AS removed NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION {table.function}();
CREATE TRIGGER {table.prefix}_delete AFTER DELETE ON {table.name}
  REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION {table.function}();
"""  # noqa: S608  # text of this module


def drop(table: _Table) -> str:
    triggers = "".join(
        f"DROP TRIGGER {table.prefix}_{each} ON {table.name};\n"
        for each in ("insert", "update", "delete")
    )
    return f"{triggers}DROP FUNCTION {table.function}();\n"


CREATE: Final = create(PODS) + create(_PARTITIONS)
DROP: Final = drop(PODS) + drop(_PARTITIONS)
