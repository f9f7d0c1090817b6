"""glue: what retention deleted, for ever on record."""

from __future__ import annotations

from django.db import models


class PurgeState(models.Model):
    """One purge: what ended before `purged_before` (a day of `zone`) was deleted, and how much.

    Lifetimes before the latest such day may be gone, so that no report of a range that begins
    before it can be made any more, and sums by day before it are never made anew.
    `finished_at` empty: it was interrupted; the next one deletes the rest.
    """

    purged_before = models.DateField()
    zone = models.TextField(default="UTC")
    began_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    counts = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"before {self.purged_before}"
