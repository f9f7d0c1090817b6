"""glue: progress of watches, their gaps, and the index of long lifetimes."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from django.contrib.postgres.indexes import GistIndex
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Greatest
from django.db.models.lookups import GreaterThan


class WatchCheckpoint(models.Model):
    """The committed position of one watch of one cluster.

    `position_at`: when the API server last reported that position (event, bookmark or list).
    `selection`: which objects of the watch are recorded. `epoch` increases when a recorder takes
    over the watch; commits with an older epoch change no row and must be rolled back. `holder`: the
    process that took over last. `namespace`: the only watched namespace (empty: all).
    `lag_seconds`: how long the first change of the last batch waited for its commit.
    """

    name = models.TextField(unique=True)
    cluster_uid = models.TextField(default="")
    resource_version = models.TextField(default="")
    selection = models.TextField(default="")
    epoch = models.BigIntegerField(default=0)
    listed_at = models.DateTimeField(null=True)
    position_at = models.DateTimeField(null=True)
    # Defaults of the database: the recorders write SQL of their own.
    holder = models.TextField(default="", db_default="")
    namespace = models.TextField(default="", db_default="")
    lag_seconds = models.FloatField(null=True)

    def __str__(self) -> str:
        return f"{self.name} at {self.resource_version}"


class WatchGap(models.Model):
    """A time in which a watch saw nothing and the server's history did not reach back.

    Without `shows_loss`, the list after the gap contained exactly the objects recorded before it;
    only objects that came and went in between can be missing.
    """

    watch = models.TextField()
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    cause = models.TextField()
    shows_loss = models.BooleanField(default=True, db_default=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["watch", "began_at"], name="watch_gap_began")]

    def __str__(self) -> str:
        return f"{self.watch}: {self.began_at} to {self.ended_at}"


class RecordFault(models.Model):
    """An object that could not be recorded exactly as it was, for a person to fix the cause.

    One row per object and kind of fault; `count`: repetitions.
    """

    watch = models.TextField()
    uid = models.TextField()
    namespace = models.TextField(default="")
    name = models.TextField(default="")
    code = models.TextField()
    message = models.TextField()
    excerpt = models.TextField(default="")
    count = models.BigIntegerField(default=1)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["watch", "uid", "code"], name="record_fault_once")
        ]
        indexes: ClassVar = [models.Index(fields=["-last_at", "-id"], name="record_fault_newest")]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}: {self.code}"


def long_lifetimes(began: str, ended: str, *, name: str) -> GistIndex:
    """Return an index of the lifetimes longer than a day by the time that they span.

    Few are, so it costs recorders next to nothing; without it those that reach into a range would
    only be found among all that ever began before it.
    """
    span = Func(F(began), Greatest(ended, began), Value("()"), function="tstzrange")
    is_long = Q(GreaterThan(F(ended) - F(began), timedelta(days=1)))
    return GistIndex(span, name=name, condition=is_long)
