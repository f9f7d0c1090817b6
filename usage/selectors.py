"""glue: what was recorded of pods, and what could not be, within what somebody may see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipuhub.models import RecordFault, WatchGap
from usage.models import PodLifetime

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from ipuhub.web.access import Scope


def visible_lifetimes(scope: Scope) -> QuerySet[PodLifetime]:
    """Return the pods that may be shown, scheduled or not."""
    rows = PodLifetime.objects.all()
    return rows if scope.namespaces is None else rows.filter(namespace__in=scope.namespaces)


def faults(scope: Scope) -> QuerySet[RecordFault]:
    """Return what the recorders could not take; only who sees everything sees any."""
    return RecordFault.objects.all() if scope.sees_all else RecordFault.objects.none()


def gaps(_scope: Scope) -> QuerySet[WatchGap]:
    """Return when watches saw nothing; they name no namespace, so anybody may know."""
    return WatchGap.objects.all()
