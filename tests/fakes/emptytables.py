"""Empties the tests' database after a test that committed, at the price of what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

# Django's flush truncates all of about seventy tables, and then sends the signals of a migration,
# which read every permission. Most tests write a few rows to five tables. To truncate a table
# makes its files and those of its indexes anew: 25 ms of CPU for five, and several times that on a
# file system that passes over the numbers of files deleted lately. To delete the rows takes 3 ms,
# and leaves their room: a table that has grown, or has statistics, is truncated. Until then the
# planner takes it for ten pages, full or not. Triggers, which would write to other tables, are off
# meanwhile, and only a superuser may do that. The tables left out are those that the migrations
# fill.
_EMPTY = """
DO $$
DECLARE
  found record;
  name text;
  filled boolean;
  emptied text[] := ARRAY[]::text[];
  truncated text[] := ARRAY[]::text[];
BEGIN
  FOR found IN
    SELECT oid, oid::regclass::text AS name, reltuples FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'
      AND relname NOT IN ('django_migrations', 'django_content_type', 'auth_permission')
  LOOP
    CONTINUE WHEN pg_relation_size(found.oid) = 0;
    EXECUTE 'SELECT EXISTS (SELECT FROM ' || found.name || ')' INTO filled;
    CONTINUE WHEN NOT filled;
    IF current_setting('is_superuser') = 'on' AND found.reltuples < 0
      AND pg_relation_size(found.oid) < 10 * 8192
      AND pg_total_relation_size(found.oid) < 1024 * 1024
    THEN
      emptied := array_append(emptied, found.name);
    ELSE
      truncated := array_append(truncated, found.name);
    END IF;
  END LOOP;
  IF cardinality(emptied) > 0 THEN
    -- as TRUNCATE does: who still writes is waited for
    EXECUTE 'LOCK TABLE ' || array_to_string(emptied || truncated, ', ');
    SET LOCAL session_replication_role = replica;
    FOREACH name IN ARRAY emptied LOOP
      EXECUTE 'DELETE FROM ' || name;
    END LOOP;
    SET LOCAL session_replication_role = origin;
  END IF;
  IF cardinality(truncated) > 0 THEN
    EXECUTE 'TRUNCATE ' || array_to_string(truncated, ', ') || ' CASCADE';
  END IF;
END $$
"""


def empty_tables(connection: BaseDatabaseWrapper) -> None:
    """Leave in no table of the current schema a row that a test wrote."""
    with connection.cursor() as cursor:
        cursor.execute(_EMPTY)
