"""glue: the zone in whose calendar usage has days and months."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


def usage_zone() -> ZoneInfo:
    """Return the zone of the reports: pages and reports cut months alike."""
    zone: ZoneInfo = settings.REPORT_ZONE
    return zone
