"""The triggers that record which hours of the sums and of utilization became stale.

Statement triggers with transition tables: one row of dirt for each different pair of hours in a
batch, whatever its size. A change of the end touches the hours between old and new end; a change of
any other summed column the whole lifetime.

A change that makes sums of lifetimes stale also makes sums of utilization stale: their dirt is
copied. A holding also determines how much of the IPUs that a controller reports as used belong to
others, until the next report of that controller: so it is dirt up to the next change of capacity
after its end. Such a change counts up to the next change of its controller, a gap in the polls for
its own time.

A plan that a small batch has cached would join a large batch by nested loops, 0.1 ms a row at 1,000
rows: they are off in the functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of lifetimes; a change of one of `summed` changes sums."""

    name: str
    function: str
    prefix: str
    began: str
    ended: str
    summed: tuple[str, ...]


_PODS: Final = _Table(
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
        "job_uid",
        "partition",
        "accelerators",
    ),
)
_PARTITIONS: Final = _Table(
    "HOLDINGS",
    "usage_mark_partition_dirt",
    "usage_partition_dirt",
    "reserved_at",
    "released_at",
    ("reserved_at", "namespace", '"group"', '"user"', "size"),
)


def _hour(instant: str) -> str:
    return f"date_bin('1 hour', {instant}, '2000-01-01 00:00:00+00')"


def _create(table: _Table) -> str:
    began, ended = table.began, table.ended
    a, b = (f"({', '.join(f'{alias}.{each}' for each in table.summed)})" for alias in "ab")
    whole = (
        f"SELECT DISTINCT {_hour(began)}, CASE WHEN {ended} IS NOT NULL THEN"  # noqa: S608
        f" {_hour(f'greatest({began}, {ended})')} END FROM ROWS WHERE {began} IS NOT NULL"
    )
    insert = "INSERT INTO usage_rollupdirt (first_hour, last_hour)"
    return f"""
CREATE FUNCTION {table.function}() RETURNS trigger LANGUAGE plpgsql
SET enable_nestloop = off AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    {insert}
    SELECT DISTINCT {
        _hour(f'''least(CASE WHEN {a} IS NOT DISTINCT FROM {b}
        THEN least(a.{ended}, b.{ended}) ELSE least(a.{began}, b.{began}) END)''')
    },
      CASE WHEN a.{ended} IS NOT NULL AND b.{ended} IS NOT NULL
           THEN {_hour(f"greatest(a.{ended}, b.{ended}, a.{began}, b.{began})")} END
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


_INSERT: Final = "INSERT INTO usage_utilizationdirt (first_hour, last_hour)"
_HELD: Final = "reserved_at, controller, size, namespace, job_uid, partition"


def _told_after(alias: str, condition: str) -> str:
    """Return the hour of the next change of capacity; NULL: there is none yet."""
    return (
        f"(SELECT {_hour('min(told.at)')} FROM partitions_capacity AS told"  # noqa: S608
        f" WHERE told.controller = {alias}.controller AND {condition})"
    )


def _held_until(alias: str) -> str:
    end = f"greatest({alias}.reserved_at, {alias}.released_at)"
    after = _told_after(alias, f"told.at >= {end}")
    return f"CASE WHEN {alias}.released_at IS NOT NULL THEN {after} END"


def _columns(alias: str) -> str:
    return f"({', '.join(f'{alias}.{name}' for name in _HELD.split(', '))})"


def _triggers(table: str, name: str) -> str:
    own = f"FOR EACH STATEMENT EXECUTE FUNCTION {name}();"
    return f"""
CREATE TRIGGER {name}_insert AFTER INSERT ON {table} REFERENCING NEW TABLE AS added {own}
CREATE TRIGGER {name}_update AFTER UPDATE ON {table}
  REFERENCING OLD TABLE AS removed NEW TABLE AS added {own}
CREATE TRIGGER {name}_delete AFTER DELETE ON {table} REFERENCING OLD TABLE AS removed {own}
"""


def _function(name: str, insert: str, update: str, delete: str) -> str:
    return f"""
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET enable_nestloop = off AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN {update}
  ELSIF TG_OP = 'INSERT' THEN {insert}
  ELSE {delete}
  END IF;
  RETURN NULL;
END $$;
"""


def _rows(name: str, select: str) -> str:
    """Return the function for a table whose rows make the same hours dirty, come or gone."""
    each = {rows: f"{_INSERT} {select.replace('ROWS', rows)};" for rows in ("added", "removed")}
    return _function(name, each["added"], each["removed"] + each["added"], each["removed"])


_WHOLE: Final = (
    f"SELECT DISTINCT {_hour('one.reserved_at')}, {_held_until('one')}"  # noqa: S608
    " FROM ROWS AS one"
)
_CHANGED: Final = f"""{_INSERT}
    SELECT DISTINCT {_hour("least(a.released_at, b.released_at)")},
      CASE WHEN a.released_at IS NOT NULL AND b.released_at IS NOT NULL
           THEN {_told_after("a", "told.at >= greatest(a.released_at, b.released_at)")} END
    FROM removed b JOIN added a USING (id)
    WHERE {_columns("a")} = {_columns("b")} AND a.released_at IS DISTINCT FROM b.released_at;
    {_INSERT}
    SELECT DISTINCT {_hour("one.reserved_at")}, {_held_until("one")} FROM (
      SELECT b.* FROM removed b JOIN added a USING (id) WHERE {_columns("a")} <> {_columns("b")}
      UNION ALL
      SELECT a.* FROM removed b JOIN added a USING (id) WHERE {_columns("a")} <> {_columns("b")}
    ) AS one;"""  # noqa: S608  # text of this module
_HOLDINGS: Final = _function(
    "usage_mark_holdings",
    f"{_INSERT} {_WHOLE.replace('ROWS', 'added')};",
    _CHANGED,
    f"{_INSERT} {_WHOLE.replace('ROWS', 'removed')};",
)
_TOLD: Final = _rows(
    "usage_mark_capacity",
    f"SELECT DISTINCT {_hour('one.at')}, {_told_after('one', 'told.at > one.at')}"  # noqa: S608
    " FROM ROWS AS one",
)
_GAPS: Final = _rows(
    "usage_mark_gaps",
    f"SELECT DISTINCT {_hour('began_at')}, {_hour('greatest(began_at, ended_at)')}"  # noqa: S608
    " FROM ROWS WHERE watch = 'capacity'",
)
_COPIED: Final = f"""
CREATE FUNCTION usage_copy_dirt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  {_INSERT} SELECT first_hour, last_hour FROM added;
  RETURN NULL;
END $$;
CREATE TRIGGER usage_copy_dirt AFTER INSERT ON usage_rollupdirt
  REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION usage_copy_dirt();
"""  # noqa: S608
_ON: Final = {
    "usage_mark_holdings": "HOLDINGS",
    "usage_mark_capacity": "CAPACITY",
    "usage_mark_gaps": "GAPS",
}

_CREATE: Final = (
    _create(_PODS)
    + _create(_PARTITIONS)
    + _COPIED
    + "".join((_HOLDINGS, _TOLD, _GAPS))
    + "".join(_triggers(table, name) for name, table in _ON.items())
)
# The tables of other apps, each by the model whose it is.
_MODELS: Final = {
    "HOLDINGS": ("partitions", "PartitionLifetime"),
    "CAPACITY": ("partitions", "CapacityChange"),
    "GAPS": ("ipuhub", "WatchGap"),
}


def create(apps: Any, schema: Any) -> None:
    sql = _CREATE
    for word, model in _MODELS.items():
        sql = sql.replace(f" ON {word}", f" ON {apps.get_model(*model)._meta.db_table}")  # noqa: SLF001
    schema.execute(sql, params=None)


def drop(_apps: Any, schema: Any) -> None:
    schema.execute(_DROP, params=None)


_FUNCTIONS: Final = (_PODS.function, _PARTITIONS.function, "usage_copy_dirt", *_ON)
_DROP: Final = "".join(f"DROP FUNCTION {name}() CASCADE;\n" for name in _FUNCTIONS)
