"""glue: `manage.py sum_usage_days`, for a CronJob where no Celery worker runs."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils import timezone

from usage.rollups import refresh


class Command(BaseCommand):
    help = (
        "Sum the days of usage that are over or have changed; pages are fast where it runs often."
    )

    def handle(self, **_options: Any) -> None:
        days = refresh(timezone.now(), settings.REPORT_ZONE)
        self.stdout.write(f"{days} day{'' if days == 1 else 's'} summed")
