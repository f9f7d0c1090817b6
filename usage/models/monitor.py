"""glue: what the monitor did last."""

from __future__ import annotations

from django.db import models


class MonitorRound(models.Model):
    """The monitor's last round in each cluster.

    `checked` pods were asked about, `present` of them are there, `closed` were ended. `left` are
    gone but were left to somebody else: the prober, which is about to record their exact end, or
    a later round. `problem` is why nothing could be judged; empty: nothing was in the way.
    """

    cluster_uid = models.TextField(unique=True)
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    checked = models.BigIntegerField()
    present = models.BigIntegerField()
    closed = models.BigIntegerField()
    left = models.BigIntegerField()
    problem = models.TextField(default="")

    def __str__(self) -> str:
        return f"{self.cluster_uid} at {self.ended_at}"
