"""glue: queued tasks, heartbeats, outages of components, and incidents of IPU-Machines."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class TaskMessage(models.Model):
    """A queued task; see `ipuhub.taskqueue`.

    `claimed_until`: until when a worker has claimed it; the worker deletes the row as it starts the
    task.
    """

    queue = models.TextField()
    body = models.TextField()
    queued_at = models.DateTimeField()
    claimed_until = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["queue", "id"], name="ipuhub_taskmessage_next")]

    def __str__(self) -> str:
        return f"{self.queue} {self.pk}"


class Heartbeat(models.Model):
    """The last sign of life of a component, `at` a time (null: never).

    `version`: its release. Of those with a database connection: `ipuhub.heartbeats`. Of others,
    `looked_at` is when the dashboard observed them, and the other fields are what it found
    (`dashboard.observing`).
    """

    name = models.TextField(primary_key=True)
    at = models.DateTimeField(null=True)
    looked_at = models.DateTimeField(null=True)
    state = models.TextField(default="", db_default="")
    detail = models.TextField(default="", db_default="")
    holder = models.TextField(default="", db_default="")
    members = models.JSONField(default=list, db_default=[])
    absent = models.JSONField(default=list, db_default=[])
    version = models.TextField(default="", db_default="")

    def __str__(self) -> str:
        return f"{self.name} at {self.at}"


class ComponentOutage(models.Model):
    """A time in which a component was down; see `dashboard.notify.outages`.

    `since`: the first look that found it down; `ended_at`: null while it is. `member`: the V-IPU
    agent, of many. Those that go down within minutes share the `episode` of the first.
    """

    name = models.TextField()
    member = models.TextField(default="", db_default="")
    episode = models.DateTimeField(db_default=Now())
    since = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    detail = models.TextField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["name", "member"],
                condition=Q(ended_at=None),
                name="component_outage_open_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} since {self.since}"


class MachineIncident(models.Model):
    """A time in which an IPU-Machine was cordoned, or an IPU of it faulty; see
    `dashboard.machines.incidents`.

    `since`: the first look that found it; `ended_at`: null while it lasts. `device`: the number of
    the IPU in the machine, -1 for the machine. `what`: a sentence of its V-IPU controller.
    """

    controller = models.TextField()
    machine = models.TextField()
    device = models.IntegerField()
    what = models.TextField()
    since = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["controller", "machine", "device"],
                condition=Q(ended_at=None),
                name="machine_incident_open_once",
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["controller", "machine", "since"], name="machine_incident_recent")
        ]

    def __str__(self) -> str:
        return f"{self.what} since {self.since}"
