"""glue: the administrator's part of the rules of IPUJobs, the same for operator and webhooks."""

from __future__ import annotations

from django.conf import settings

from jobs.patience import Patience
from jobs.privileges import Privileges
from jobs.sessionlimits import SessionLimits


def session_limits() -> SessionLimits:
    """How long interactive jobs last."""
    return SessionLimits(settings.SESSION_DEFAULT_SECONDS, settings.SESSION_MAXIMUM_SECONDS)


def privileges() -> Privileges:
    """Whose jobs may have more than others."""
    return Privileges(
        namespaces=frozenset(settings.PRIVILEGED_NAMESPACES),
        host_network=settings.HOST_NETWORK,
        host_ipc=settings.HOST_IPC,
        privileged=settings.POD_PROFILE == "seed",
    )


def patience() -> Patience:
    """When the operator gives something up."""
    return Patience(
        most_losses=settings.MOST_LOSSES,
        hold_seconds=settings.RESTART_HOLD_SECONDS,
        start_seconds=settings.START_HOLD_SECONDS,
    )
