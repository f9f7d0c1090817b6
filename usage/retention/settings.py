"""glue: the retention that the settings ask for."""

from __future__ import annotations

from django.conf import settings

from usage.retention.purging import Retention


def retention() -> Retention:
    """Return for how many months rows are kept."""
    return Retention(
        settings.USAGE_RETENTION_MONTHS,
        settings.USAGE_RETENTION_GAPS_MONTHS,
        settings.USAGE_RETENTION_FAULTS_MONTHS,
    )
