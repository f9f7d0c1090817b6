"""glue: the audit log of writes to Kubernetes."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Value


class AuditEntry(models.Model):
    """A write to Kubernetes that a user requested, and the API server's answer.

    The row is committed before the write is sent, with the outcome `sent`; the answer makes it
    `accepted`, `refused` or `unknown` (no answer: the write may have happened). A row that stays
    `sent` belongs to a web process that ended in between. `kubernetes_user` and `kubernetes_groups`
    are the impersonated user and groups; `via` is `page`, `session` (of the API) or `token NAME`;
    `change` is the body, `status` the HTTP status of the answer.
    """

    at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True)
    user_name = models.TextField()
    kubernetes_user = models.TextField()
    kubernetes_groups = models.JSONField(default=list, db_default=Value([], models.JSONField()))
    via = models.TextField(default="page")
    action = models.TextField()
    namespace = models.TextField()
    name = models.TextField()
    uid = models.TextField(default="")
    change = models.JSONField()
    outcome = models.TextField(default="sent")
    status = models.IntegerField(null=True)
    message = models.TextField(default="")

    class Meta:
        indexes: ClassVar = [
            models.Index(F("at").desc(), F("id").desc(), name="audit_newest"),
            models.Index(F("namespace"), F("at").desc(), F("id").desc(), name="audit_namespace"),
            models.Index(F("uid"), F("at").desc(), name="audit_job"),
        ]

    def __str__(self) -> str:
        return f"{self.user_name}: {self.action} {self.namespace}/{self.name}"
