"""glue: utilization summed by quarter of an hour, so that a page need not tell a month's story."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from usage.models.sums import HourDirt


class UtilizationQuarter(models.Model):
    """What became of the IPUs of one controller in the quarter of an hour from `begin` on.

    The sums of `Utilization` (usage/utilization/amounts.py); none where all of them are zero. A
    quarter is the longest time of which the days of every zone and the hours of UTC consist.
    """

    controller = models.TextField()
    begin = models.DateTimeField()
    capacity = models.BigIntegerField()
    reserved = models.BigIntegerField()
    by_others = models.BigIntegerField()
    held_idle = models.BigIntegerField()
    idle = models.BigIntegerField()
    down = models.BigIntegerField()
    unknown = models.BigIntegerField()
    pod_micro = models.DecimalField(max_digits=40, decimal_places=0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["begin", "controller"], name="utilization_once")
        ]

    def __str__(self) -> str:
        return f"{self.controller} at {self.begin}"


class UtilizationState(models.Model):
    """What is summed: all quarters in [begin, until), as if nobody had asked the controllers after
    `known_until` (empty: nobody ever did). At most one row."""

    begin = models.DateTimeField()
    until = models.DateTimeField()
    known_until = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.begin} to {self.until}"


class UtilizationDirt(HourDirt):
    """Of the sums of utilization: all of `RollupDirt`, and what changes nothing but these."""
