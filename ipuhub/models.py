"""glue: models shared by all apps, and the index of long lifetimes by an instant in them."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from django.conf import settings
from django.contrib.postgres.indexes import GistIndex
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Greatest, Now
from django.db.models.lookups import GreaterThan

from ipuhub.api.scopes import DEFAULT
from ipuhub.roles import ROLES


class WatchCheckpoint(models.Model):
    """How far one watch of one cluster has been committed.

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


class RoleGrant(models.Model):
    """A role of a user in a namespace (`*`: in all); see `ipuhub.roles`.

    Administrators of everything are Django's staff and need no row. Each sign-in replaces grants
    `from_groups` of a provider.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="role_grants"
    )
    role = models.TextField()
    namespace = models.TextField()
    from_groups = models.BooleanField(default=False, db_default=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "role", "namespace"], name="role_grant_once"),
            models.CheckConstraint(condition=Q(role__in=list(ROLES)), name="role_grant_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.role} in {self.namespace}"


class RoleChange(models.Model):
    """A role that was granted to a user or revoked, and by whom."""

    at = models.DateTimeField()
    by = models.TextField()
    user_name = models.TextField()
    role = models.TextField()
    namespace = models.TextField()
    is_granted = models.BooleanField()

    class Meta:
        indexes: ClassVar = [
            models.Index(F("at").desc(), F("id").desc(), name="role_change_newest")
        ]

    def __str__(self) -> str:
        return f"{self.by}: {self.role} of {self.user_name} in {self.namespace}"


class ApiToken(models.Model):
    """A token for the API with the permissions of its owner; only its SHA-256 is stored.

    `scopes` (words of `ipuhub.api.scopes`) cut these permissions down.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens"
    )
    name = models.TextField()
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    scopes = models.TextField(default=DEFAULT, db_default=DEFAULT)

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"


class TaskMessage(models.Model):
    """A queued task; see `ipuhub.taskqueue`.

    `claimed_until`: until when a worker has claimed it; one that starts the task deletes the row.
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

    Web and worker note their own. Of components without a database connection, `looked_at` is when
    the dashboard observed them, and the other fields are what it found (`dashboard.observing`).
    """

    name = models.TextField(primary_key=True)
    at = models.DateTimeField(null=True)
    looked_at = models.DateTimeField(null=True)
    state = models.TextField(default="", db_default="")
    detail = models.TextField(default="", db_default="")
    holder = models.TextField(default="", db_default="")
    members = models.JSONField(default=list, db_default=[])
    absent = models.JSONField(default=list, db_default=[])

    def __str__(self) -> str:
        return f"{self.name} at {self.at}"


class SignInAttempts(models.Model):
    """Failed sign-ins of a user, an address, or both (`key`: their digest): `ipuhub.web.signin`.
    Attempts before `blocked_until` are rejected."""

    key = models.TextField(unique=True)
    failures = models.IntegerField()
    changed_at = models.DateTimeField(db_index=True)
    blocked_until = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.failures} since {self.changed_at}"


class ExternalIdentity(models.Model):
    """Who a user is at a provider of sign-in; see `ipuhub.oidc.accounts`.

    Users are found by issuer and subject, never by their name, which a provider may give away
    again. `issuer` is the OIDC issuer, or `header:` for names from a proxy in front. `groups`:
    those of the last sign-in, as the provider names them.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="external_identities"
    )
    issuer = models.TextField()
    subject = models.TextField()
    groups = models.JSONField(default=list)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="external_identity_once")
        ]

    def __str__(self) -> str:
        return f"{self.user} is {self.subject} of {self.issuer}"


class ExternalSession(models.Model):
    """A session that began at a provider, so that the provider can end it.

    `session_id`: the claim sid; `issued_at`: of the ID token, by the provider's clock; `id_token`
    shows the provider at sign-out whose session ends.
    """

    identity = models.ForeignKey(
        ExternalIdentity, on_delete=models.CASCADE, related_name="sessions"
    )
    session_key = models.CharField(max_length=40, unique=True)
    session_id = models.TextField(default="")
    id_token = models.TextField(default="")
    issued_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"session of {self.identity} since {self.issued_at}"


class AuditEntry(models.Model):
    """A write to Kubernetes that a user asked for, and what the API server answered.

    The row is committed before the write is sent, with the outcome `sent`; the answer makes it
    `accepted`, `refused` or `unknown` (no answer: the write may have happened). A row that stays
    `sent` belongs to a web process that ended in between.
    `kubernetes_user` and `kubernetes_groups` are whom it impersonated; `via` is `page`, `session`
    (of the API) or `token NAME`; `change` is the body, `status` the HTTP status of the answer;
    `key` is the caller's Idempotency-Key, `digest` of the request that used it first.
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
    key = models.TextField(null=True)  # noqa: DJ001  # null: many rows have none
    digest = models.TextField(default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "key"], name="audit_key_once")
        ]
        indexes: ClassVar = [
            models.Index(F("at").desc(), F("id").desc(), name="audit_newest"),
            models.Index(F("namespace"), F("at").desc(), F("id").desc(), name="audit_namespace"),
            models.Index(F("uid"), F("at").desc(), name="audit_job"),
        ]

    def __str__(self) -> str:
        return f"{self.user_name}: {self.action} {self.namespace}/{self.name}"


class Subscription(models.Model):
    """What a user wants to be told, and where; see `dashboard.notify`.

    `job_user`, `group` and `namespace` narrow jobs down (empty: any); the owner's rights do, too.
    `target` is a URL or a mail address. `secret` signs webhooks. Facts from before `since` are not
    told.
    """

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="subscriptions"
    )
    event = models.TextField()
    channel = models.TextField()
    target = models.TextField()
    job_user = models.TextField(default="")
    group = models.TextField(default="")
    namespace = models.TextField(default="")
    minutes = models.IntegerField(default=0)
    secret = models.TextField(default="")
    is_paused = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    since = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.owner}: {self.event} to {self.target}"


class Notification(models.Model):
    """A fact that a subscription is told: the outbox, and the log of what was sent.

    `key` names the fact, so that it is queued once. `state`: queued, sent, or dead (given up).
    A process that sends claims the row; `attempts` counts its tries.
    """

    subscription = models.ForeignKey(
        Subscription, on_delete=models.CASCADE, related_name="notifications"
    )
    key = models.TextField()
    event = models.TextField()
    subject = models.TextField()
    body = models.JSONField()
    at = models.DateTimeField()
    state = models.TextField(default="queued")
    attempts = models.IntegerField(default=0)
    next_at = models.DateTimeField()
    claimed_until = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)
    message = models.TextField(default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["subscription", "key"], name="notification_once")
        ]
        indexes: ClassVar = [
            models.Index(fields=["next_at"], name="notification_due", condition=Q(state="queued")),
            models.Index(F("at").desc(), F("id").desc(), name="notification_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} to {self.subscription.target}"


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


class NotificationCount(models.Model):
    """How often something became of notifications; see `dashboard.notify.metrics`."""

    name = models.TextField(primary_key=True)
    total = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.name}: {self.total}"


def long_lifetimes(began: str, ended: str, *, name: str) -> GistIndex:
    """Return an index of the lifetimes longer than a day by the time that they span.

    Few are, so it costs recorders next to nothing; without it those that reach into a range would
    only be found among all that ever began before it.
    """
    span = Func(F(began), Greatest(ended, began), Value("()"), function="tstzrange")
    is_long = Q(GreaterThan(F(ended) - F(began), timedelta(days=1)))
    return GistIndex(span, name=name, condition=is_long)
