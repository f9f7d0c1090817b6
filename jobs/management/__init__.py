"""Management commands: the composition roots of this app, and the rules that operator and webhooks
share."""

from __future__ import annotations

from django.conf import settings

from jobs.ipujob.privileges import Privileges
from jobs.ipujob.rules import Patience
from jobs.ipujob.spec import SessionLimits


def session_limits() -> SessionLimits:
    """Return the limits of interactive sessions."""
    return SessionLimits(settings.SESSION_DEFAULT_SECONDS, settings.SESSION_MAXIMUM_SECONDS)


def privileges() -> Privileges:
    """Return the privileges that job pods may request."""
    return Privileges(
        profile=settings.POD_PROFILE,
        host_network=settings.HOST_NETWORK,
        version=settings.POD_STANDARD_VERSION,
        secrets=tuple(settings.JOB_SECRETS),
    )


def patience() -> Patience:
    """Return how long the operator keeps trying."""
    return Patience(
        most_losses=settings.MOST_LOSSES,
        hold_seconds=settings.RESTART_HOLD_SECONDS,
        start_seconds=settings.START_HOLD_SECONDS,
        ready_seconds=settings.READY_HOLD_SECONDS,
    )
