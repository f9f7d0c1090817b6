"""glue: the audit log of what users changed."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q, Value


class AuditEntry(models.Model):
    """A change that a user requested, and its outcome; `ipuhub.web.audit` makes the rows.

    `kind` names the changed object: a job, a rate, a token and so on. `changes` holds the changed
    fields (field, before, after), `address` the client's address, `via` the way: `page`, `session`
    (of the API), `token NAME`, `command NAME` or `sign-in`.

    The row of a job's change is committed before the write is sent to Kubernetes, with the outcome
    `sent`; the answer makes it `accepted`, `refused` or `unknown` (no answer: the write may have
    happened). A row that stays `sent` belongs to a web process that ended in between.
    `kubernetes_user` and `kubernetes_groups` are the impersonated user and groups; `change` is the
    body, `status` the HTTP status of the answer. The row of a run of reports is `sent` until the
    run is over, then `accepted`, `refused` or `failed`; `uid` is the number of the run.
    """

    at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    user_name = models.TextField()
    kubernetes_user = models.TextField()
    kubernetes_groups = models.JSONField(default=list, db_default=Value([], models.JSONField()))
    via = models.TextField(default="page")
    address = models.TextField(default="", db_default="")
    kind = models.TextField(default="job", db_default="job")
    action = models.TextField()
    namespace = models.TextField()
    name = models.TextField()
    uid = models.TextField(default="")
    change = models.JSONField()
    changes = models.JSONField(default=list, db_default=Value([], models.JSONField()))
    outcome = models.TextField(default="sent")
    status = models.IntegerField(null=True)
    message = models.TextField(default="")

    class Meta:
        indexes: ClassVar = [
            models.Index(F("at").desc(), F("id").desc(), name="audit_newest"),
            models.Index(F("namespace"), F("at").desc(), F("id").desc(), name="audit_namespace"),
            models.Index(F("kind"), F("at").desc(), F("id").desc(), name="audit_kind"),
            models.Index(F("uid"), F("at").desc(), name="audit_job"),
            models.Index(
                F("at").desc(),
                F("id").desc(),
                condition=Q(kind__in=["role", "token"]),
                name="audit_roles",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user_name}: {self.action} {self.kind} {self.namespace}/{self.name}"
