"""Empties the tests' database after a test that committed, at the price of what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

# Django's flush truncates all of about seventy tables, a file each, and then sends the signals of a
# migration, which read every permission. Most tests write to five. The tables left out are those
# that the migrations fill.
_EMPTY = """
DO $$
DECLARE
  name text;
  filled boolean;
  names text[] := ARRAY[]::text[];
BEGIN
  FOR name IN
    SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
    WHERE schemaname = current_schema()
      AND tablename NOT IN ('django_migrations', 'django_content_type', 'auth_permission')
  LOOP
    EXECUTE 'SELECT EXISTS (SELECT FROM ' || name || ')' INTO filled;
    IF filled THEN
      names := array_append(names, name);
    END IF;
  END LOOP;
  IF cardinality(names) > 0 THEN
    EXECUTE 'TRUNCATE ' || array_to_string(names, ', ') || ' CASCADE';
  END IF;
END $$
"""


def empty_tables(connection: BaseDatabaseWrapper) -> None:
    """Leave in no table of the current schema a row that a test wrote."""
    with connection.cursor() as cursor:
        cursor.execute(_EMPTY)
