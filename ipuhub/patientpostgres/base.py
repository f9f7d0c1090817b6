"""glue: Django's PostgreSQL backend on connections with a limit on waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.db.backends.postgresql import base

from ipuhub.patientpostgres.connection import PatientConnection

if TYPE_CHECKING:
    from collections.abc import Mapping

HEALTH_CHECK_SECONDS: Final = 2.0
"""Timeout of the check of a reused connection, once per request."""


class _Driver:
    """psycopg, as Django uses it, with our kind of connection."""

    connect = staticmethod(PatientConnection.connect)

    def __getattr__(self, name: str) -> Any:
        return getattr(psycopg, name)


class DatabaseWrapper(base.DatabaseWrapper):
    """`SILENCE_SECONDS` in the settings: how long PostgreSQL may be silent; None: forever."""

    Database = _Driver()

    def get_new_connection(self, conn_params: Mapping[str, Any]) -> Any:
        """Connect; the connection knows how long it waits."""
        made = super().get_new_connection(conn_params)
        made.silence_seconds = self.settings_dict.get("SILENCE_SECONDS")
        return made

    def is_usable(self) -> bool:
        """Return whether the connection shows a sign of life in time."""
        if self.connection is None:
            return False
        with self.connection.at_most(HEALTH_CHECK_SECONDS):
            return bool(super().is_usable())
