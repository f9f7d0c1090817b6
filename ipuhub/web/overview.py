"""glue: the overview page: jobs and partitions, read live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from ipuhub.web.wiring import live_reader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser
    from django.http import HttpRequest

    from ipuhub.kube.types import Manifest
    from ipuhub.web.live import LiveState

_COLOURS = {
    "Running": "green",
    "Completed": "blue",
    "Failed": "red",
    "Pending": "yellow",
    "Restarting": "orange",
    "Suspended": "secondary",
    "active": "green",
    "error": "red",
    "creating": "yellow",
    "reserving": "yellow",
    "releasing": "orange",
    "released": "secondary",
}


@dataclass(frozen=True)
class JobRow:
    """One line of the jobs table."""

    namespace: str
    name: str
    status: str
    colour: str
    ipus: str
    workers: str
    partition: str
    message: str
    created: datetime | None


def may_see_cluster(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Say whether `user` may see jobs of every namespace: staff may."""
    return bool(user.is_authenticated and getattr(user, "is_staff", False))


@require_safe
@login_required
def overview(request: HttpRequest) -> HttpResponse:
    """Show the page, or just its changing part when htmx asks. Raises PermissionDenied."""
    if not may_see_cluster(request.user):
        raise PermissionDenied
    now = timezone.now()
    state = live_reader().read(now)
    fragment = bool(request.headers.get("HX-Request")) and not request.headers.get("HX-Boosted")
    template = "_overview.html" if fragment else "overview.html"
    return render(request, template, overview_context(state, now))


@require_safe
def healthz(_request: HttpRequest) -> HttpResponse:
    """Answer ok while the process serves requests."""
    return HttpResponse("ok", content_type="text/plain")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Say in words why a page is refused (Django names the arguments)."""
    del exception
    if request.headers.get("Accept", "").startswith("application/json"):
        return JsonResponse({"title": "Forbidden", "status": 403}, status=403)
    return render(request, "403.html", status=403)


def overview_context(state: LiveState, now: datetime) -> dict[str, Any]:
    """Return what the templates show; a pure function of state and time."""
    total = state.stats.value.get("total", {"used": 0, "available": 0})
    used, free = int(total["used"]), int(total["available"])
    namespaces = {name: v["used"] for name, v in state.stats.value.items() if name != "total"}
    jobs = [_job_row(job) for job in state.jobs.value]
    jobs.sort(key=lambda row: (row.created is None, row.created), reverse=True)
    partitions = sorted(state.partitions.value, key=lambda p: (p.phase == "released", p.id))
    readings = (state.jobs, state.partitions, state.stats)
    problems = list(dict.fromkeys(r.problem for r in readings if r.problem))
    oldest = min((r.read_at for r in readings if r.read_at), default=None)
    return {
        "jobs": jobs,
        "running": sum(row.status == "Running" for row in jobs),
        "pending": sum(row.status == "Pending" for row in jobs),
        "partitions": [(p, _COLOURS.get(p.phase, "secondary")) for p in partitions],
        "held": sum(p.phase not in {"released", "waiting"} for p in partitions),
        "used": used,
        "free": free,
        "total": used + free,
        "used_steps": _steps(used, used + free),
        "namespaces": namespaces,
        "problems": problems,
        "read_at": oldest if problems else now,
        "now": now,
    }


def _job_row(job: Manifest) -> JobRow:
    meta, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    workers = status.get("workersStatus") or {}
    held: Sequence[dict[str, Any]] = status.get("partitions") or ()
    wanted = spec.get("workersPerJobInstance") or (spec.get("workers") or {}).get("replicas") or 1
    phase = status.get("launcherStatus") or "Pending"
    return JobRow(
        namespace=meta["namespace"],
        name=meta["name"],
        status=phase,
        colour=_COLOURS.get(phase, "secondary"),
        ipus=str(status.get("ipus") or ""),
        workers=f"{workers.get('active', 0)}/{wanted}",
        partition=", ".join(p.get("id", "") for p in held),
        message=status.get("lastMessage") or "",
        created=_instant(meta.get("creationTimestamp")),
    )


def _instant(text: str | None) -> datetime | None:
    from django.utils.dateparse import parse_datetime

    return parse_datetime(text) if text else None


def _steps(part: int, whole: int) -> int:
    """Return the share in twentieths, for a width class (inline styles are not allowed)."""
    return 0 if whole <= 0 else max(1 if part else 0, round(20 * part / whole))
