"""glue: the tables that all apps share."""

from __future__ import annotations

from ipuhub.models.access import (
    ApiToken,
    ExternalIdentity,
    ExternalSession,
    RoleGrant,
    SignInAttempts,
)
from ipuhub.models.audit import AuditEntry
from ipuhub.models.components import ComponentOutage, Heartbeat, MachineIncident, TaskMessage
from ipuhub.models.idempotency import IdempotentRequest
from ipuhub.models.notifications import Notification, NotificationCount, Subscription
from ipuhub.models.recording import RecordFault, WatchCheckpoint, WatchGap, long_lifetimes

__all__ = [
    "ApiToken",
    "AuditEntry",
    "ComponentOutage",
    "ExternalIdentity",
    "ExternalSession",
    "Heartbeat",
    "IdempotentRequest",
    "MachineIncident",
    "Notification",
    "NotificationCount",
    "RecordFault",
    "RoleGrant",
    "SignInAttempts",
    "Subscription",
    "TaskMessage",
    "WatchCheckpoint",
    "WatchGap",
    "long_lifetimes",
]
