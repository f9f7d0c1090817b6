"""Management commands: the composition roots of this app, and the refusal when USAGE_ENABLED is
off."""

from __future__ import annotations

from django.conf import settings
from django.core.management.base import CommandError


def require_usage() -> None:
    """Raise CommandError with a sentence where usage is off."""
    if not settings.USAGE_ENABLED:
        raise CommandError(
            "usage is off (USAGE_ENABLED), so this process has nothing to do. Remove this "
            "process, or set USAGE_ENABLED=on for all processes."
        )
