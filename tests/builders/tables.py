"""Objects as rows of the tables that kubectl prints."""

from __future__ import annotations

import datetime as dt
from typing import Any

from devcluster.printing.tables import as_table
from devcluster.schemas.kinds import BY_KIND

NOW = dt.datetime(2026, 11, 21, 9, 0, 0, tzinfo=dt.UTC)
MADE = "2026-11-21T08:59:48Z"  # 12 s ago
READY = [{"type": "Ready", "status": "True"}]


def cells(api_version: str, kind: str, obj: dict[str, Any]) -> list[Any]:
    """Return the cells of `obj`, made 12 s ago, in its row."""
    obj = {**obj, "metadata": {"name": "n", "creationTimestamp": MADE, **obj.get("metadata", {})}}
    return as_table(BY_KIND[api_version, kind], [obj], None, NOW)["rows"][0]["cells"]
