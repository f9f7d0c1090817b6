"""The triggers that remember which hours of utilization went stale, since migration 0010.

What makes sums of lifetimes stale makes these stale, too: their dirt is copied. A holding also
says how much of what a controller told as used is others', until that controller tells more: so
it is dirt up to the next change of capacity after its end. Such a change counts up to the next of
its controller, a gap of whoever asks controllers for its own time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from usage.migrations import _hour_dirt
from usage.migrations._hour_dirt import hour

_INSERT: Final = "INSERT INTO usage_utilizationdirt (first_hour, last_hour)"
_HELD: Final = "reserved_at, controller, size, namespace, job_uid, partition"


def _told_after(alias: str, condition: str) -> str:
    """Return the hour of the next change of capacity; NULL: there is none yet."""
    return (
        f"(SELECT {hour('min(told.at)')} FROM partitions_capacitychange AS told"  # noqa: S608
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
    f"SELECT DISTINCT {hour('one.reserved_at')}, {_held_until('one')}"  # noqa: S608
    " FROM ROWS AS one"
)
_CHANGED: Final = f"""{_INSERT}
    SELECT DISTINCT {hour("least(a.released_at, b.released_at)")},
      CASE WHEN a.released_at IS NOT NULL AND b.released_at IS NOT NULL
           THEN {_told_after("a", "told.at >= greatest(a.released_at, b.released_at)")} END
    FROM removed b JOIN added a USING (id)
    WHERE {_columns("a")} = {_columns("b")} AND a.released_at IS DISTINCT FROM b.released_at;
    {_INSERT}
    SELECT DISTINCT {hour("one.reserved_at")}, {_held_until("one")} FROM (
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
    f"SELECT DISTINCT {hour('one.at')}, {_told_after('one', 'told.at > one.at')}"  # noqa: S608
    " FROM ROWS AS one",
)
_GAPS: Final = _rows(
    "usage_mark_gaps",
    f"SELECT DISTINCT {hour('began_at')}, {hour('greatest(began_at, ended_at)')}"  # noqa: S608
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
    "usage_mark_holdings": "partitions_partitionlifetime",
    "usage_mark_capacity": "partitions_capacitychange",
    "usage_mark_gaps": "ipuhub_watchgap",
}

# On whose partitions a pod runs was not summed before.
_PODS: Final = replace(_hour_dirt.PODS, summed=(*_hour_dirt.PODS.summed, "job_uid", "partition"))
CREATE: Final = (
    _COPIED
    + "".join((_HOLDINGS, _TOLD, _GAPS))
    + "".join(_triggers(table, name) for name, table in _ON.items())
    + _hour_dirt.drop(_hour_dirt.PODS)
    + _hour_dirt.create(_PODS)
)
DROP: Final = (
    _hour_dirt.drop(_PODS)
    + _hour_dirt.create(_hour_dirt.PODS)
    + "".join(
        f"DROP TRIGGER {name}_{each} ON {table};\n"
        for name, table in _ON.items()
        for each in ("insert", "update", "delete")
    )
    + "".join(f"DROP FUNCTION {name}();\n" for name in _ON)
    + "DROP TRIGGER usage_copy_dirt ON usage_rollupdirt;\nDROP FUNCTION usage_copy_dirt();\n"
)
