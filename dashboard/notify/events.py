"""glue: the events that users can subscribe to, and the facts behind them, from PostgreSQL.

Each fact has a key and is queued only once, so rounds may overlap and several workers may look at
the same time.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import structlog
from django.conf import settings
from django.db import DatabaseError
from django.db.models import Exists, OuterRef, Q, Subquery, Value
from django.db.models.functions import Coalesce, Concat

from dashboard.notify.metrics import Count, count
from dashboard.notify.outages import read_episodes
from ipuhub.models import Notification, Subscription
from ipuhub.text import spell_duration
from ipuhub.web.access import access_of, is_admin
from ipuhub.web.clusterusers import ClusterAway
from jobs.models import ENDED_AT, JobTransition
from jobs.selectors import state_of, visible_jobs
from partitions.models import CapacityChange
from usage.models import MonthReport, ReportState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from django.db.models import QuerySet

    from dashboard.notify.outages import Episode
    from jobs.models import JobRecord

JOB_ENDED, JOB_WAITING = "job-ended", "job-waiting"
CONTROLLER_DOWN, COMPONENT_DOWN = "controller-down", "component-down"
MONTH_CLOSED, TEST = "month-closed", "test"
EVENTS: Final = {
    JOB_ENDED: "A job ended",
    JOB_WAITING: "A job waits longer than N minutes",
    CONTROLLER_DOWN: "A V-IPU controller is down (administrators)",
    COMPONENT_DOWN: "A component is down for 3 minutes, or recovered (administrators)",
    MONTH_CLOSED: "A month was closed (accountants)",
}
OF_COMPONENTS: Final = (CONTROLLER_DOWN, COMPONENT_DOWN)
"""Events for administrators only. Kubernetes may have to decide who sees the others."""
LOOK_BACK: Final = dt.timedelta(days=1)
"""Facts that are recorded this much later than they happened are still told."""
KEPT: Final = dt.timedelta(days=60)
"""The log goes back this far: longer than any fact is looked for, else it would be told again."""
# The reviews of one user can fail alone. To a silent server each question takes seconds.
_MOST_AWAY: Final = 3
# When the reviews of an owner last failed. Such owners come last, and first of them who failed
# longest ago: else three who fail in each round would silence all who come after them.
_FAILED: Final[dict[int, dt.datetime]] = {}
_OLDEST_WAITING: Final = dt.timedelta(days=30)
_MOST: Final = 500  # new facts of one subscription and round
_PENDING: Final = "Pending"
_OF_JOB: Final = ("uid", "namespace", "name", "user", "group", "ipus", "reason")
_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened, for one subscription."""

    key: str
    at: dt.datetime
    subject: str
    path: str = ""
    details: dict[str, Any] = field(default_factory=dict)


def spell_event(event: str, minutes: int = 0) -> str:
    """Return an event in the words of the form that subscribes to it."""
    words = EVENTS.get(event, event)
    return words.replace("N minutes", f"{minutes} minutes") if minutes else words


def collect(now: dt.datetime, events: Collection[str] = tuple(EVENTS)) -> int:
    """Queue what is new for all subscriptions to these events; return how many notifications there
    are more."""
    Notification.objects.filter(at__lt=now - KEPT).delete()
    made = 0
    away: set[int] = set()  # owners whose rights Kubernetes does not report
    active = Subscription.objects.filter(
        is_paused=False, owner__is_active=True, event__in=[*events]
    ).select_related("owner")
    for subscription in sorted(active, key=_turn):
        if subscription.owner_id in away:
            continue
        if len(away) >= _MOST_AWAY and not is_admin(subscription.owner):
            continue
        try:
            made += queue(subscription, _facts(subscription, now), now)
        except ClusterAway:
            away.add(subscription.owner_id)
            _FAILED[subscription.owner_id] = now
            continue  # the facts stay until it is known
        except DatabaseError:
            raise
        except Exception:  # noqa: BLE001  # one odd subscription must not hold back the others
            _LOG.exception("subscription failed", id=subscription.pk)
            count(Count.COLLECT_ERROR)
            continue
        _FAILED.pop(subscription.owner_id, None)
    return made


def _turn(subscription: Subscription) -> tuple[float, int]:
    failed_at = _FAILED.get(subscription.owner_id)
    return (failed_at.timestamp() if failed_at else 0.0, subscription.pk)


def queue(subscription: Subscription, facts: Iterable[Fact], now: dt.datetime) -> int:
    """Queue the facts that are not queued yet, at most _MOST; return how many.

    Facts that are queued already do not count: else the first _MOST of a day would hide the rest.
    """
    made, left = 0, iter(facts)
    while made < _MOST and (batch := list(islice(left, _MOST))):
        known = set(
            Notification.objects.filter(
                subscription=subscription, key__in=[fact.key for fact in batch]
            ).values_list("key", flat=True)
        )
        rows = [_row(subscription, fact, now) for fact in batch if fact.key not in known]
        rows = rows[: _MOST - made]
        # Another worker may have queued them in between: the constraint decides.
        Notification.objects.bulk_create(rows, ignore_conflicts=True)
        made += len(rows)
    return made


def _row(subscription: Subscription, fact: Fact, now: dt.datetime) -> Notification:
    url = f"{settings.PUBLIC_URL.rstrip('/')}{fact.path}" if settings.PUBLIC_URL else ""
    event = TEST if fact.key.startswith(f"{TEST}:") else subscription.event
    body = {"event": event, "at": fact.at.isoformat(), "subject": fact.subject, "url": url}
    return Notification(
        subscription=subscription,
        key=fact.key,
        event=event,
        subject=fact.subject,
        body=body | fact.details,
        at=now,
        next_at=now,
    )


def _facts(subscription: Subscription, now: dt.datetime) -> Iterator[Fact]:
    since = max(subscription.since, now - LOOK_BACK)
    access = access_of(subscription.owner)
    if subscription.event == JOB_ENDED:
        yield from _ended(_jobs(subscription), subscription, since)
    elif subscription.event == JOB_WAITING:
        yield from _waiting(_jobs(subscription), subscription, now)
    elif subscription.event == CONTROLLER_DOWN and access.is_admin:
        yield from _down(since)
    elif subscription.event == COMPONENT_DOWN and access.is_admin:
        yield from _outages(subscription, now)
    elif subscription.event == MONTH_CLOSED and access.is_accountant:
        yield from _closed(since)


def _jobs(subscription: Subscription) -> QuerySet[JobRecord]:
    """Return the jobs that are meant and that the owner may see now."""
    given = {"user": subscription.job_user, "group": subscription.group}
    given["namespace"] = subscription.namespace
    narrowed = Q(**{name: text for name, text in given.items() if text})
    return visible_jobs(access_of(subscription.owner).jobs).filter(narrowed)


def _ended(
    jobs: QuerySet[JobRecord], subscription: Subscription, since: dt.datetime
) -> Iterator[Fact]:
    key = Concat(Value(f"{JOB_ENDED}:"), OuterRef("uid"))
    queued = Notification.objects.filter(subscription=subscription, key=key)
    ended = jobs.annotate(over=ENDED_AT).filter(~Exists(queued), over__gte=since)
    rows = ended.order_by("over", "id")
    for job in rows[:_MOST]:
        at = job.completed_at or job.deleted_at
        state = state_of(job)
        subject = f"Job {job.namespace}/{job.name} ended: {state}"
        yield Fact(f"{JOB_ENDED}:{job.uid}", at or since, subject, *_of(job, state))


def _waiting(
    jobs: QuerySet[JobRecord], subscription: Subscription, now: dt.datetime
) -> Iterator[Fact]:
    patience = dt.timedelta(minutes=subscription.minutes)
    rows = _pending_since(jobs, now - _OLDEST_WAITING, now - patience)
    for job in rows.only(*_OF_JOB, "created_at").iterator(_MOST):
        subject = (
            f"Job {job.namespace}/{job.name} waits for more than {subscription.minutes} minutes"
        )
        began: dt.datetime = job.waits_since  # type: ignore[attr-defined]  # annotated
        wait = "" if began == job.created_at else f":{began.isoformat()}"  # a later wait
        key = f"{JOB_WAITING}:{job.uid}{wait}"
        yield Fact(key, began + patience, subject, *_of(job, _PENDING))


def _pending_since(
    jobs: QuerySet[JobRecord], first: dt.datetime, last: dt.datetime
) -> QuerySet[JobRecord]:
    """Return the jobs that wait since an instant in this range, with it as `waits_since`.

    While a job waits, its reason may change, which is another transition to the same state.
    """
    mine = JobTransition.objects.filter(job=OuterRef("pk"))
    before = mine.exclude(state=_PENDING).order_by("-at").values("at")[:1]
    again = mine.filter(state=_PENDING, at__gt=OuterRef("not_pending_at"))
    pending = jobs.filter(status=_PENDING, completed_at=None, deleted_at=None)
    rows = pending.annotate(not_pending_at=Subquery(before))
    began = Coalesce(
        Subquery(again.order_by("at").values("at")[:1]), "not_pending_at", "created_at"
    )
    due = rows.annotate(waits_since=began).filter(waits_since__range=(first, last))
    return due.order_by("waits_since")


def _of(job: JobRecord, state: str) -> tuple[str, dict[str, Any]]:
    fields = {name: getattr(job, name) for name in _OF_JOB} | {"state": state}
    return f"/jobs/{job.uid}/", {"job": fields}


def _down(since: dt.datetime) -> Iterator[Fact]:
    rows = CapacityChange.objects.filter(at__gte=since, reachable=False).order_by("at")
    for row in rows.iterator(_MOST):
        key = f"{CONTROLLER_DOWN}:{row.controller}:{row.at.isoformat()}"
        subject = f"V-IPU controller {row.controller} does not answer"
        details = {"controller": {"address": row.controller, "ipus": row.total}}
        yield Fact(key, row.at, subject, "/system/", details)


def _outages(subscription: Subscription, now: dt.datetime) -> Iterator[Fact]:
    """Return the outages since the subscription, and the ends of outages that were already sent."""
    episodes = {
        f"{COMPONENT_DOWN}:{each.name}:{each.began_at.isoformat()}": each
        for each in read_episodes(now, ended_after=now - LOOK_BACK)
    }
    sent = Notification.objects.filter(subscription=subscription, key__in=episodes)
    queued = set(sent.values_list("key", flat=True))
    for key, episode in episodes.items():
        if episode.noticed_at >= subscription.since and episode.ended_at is None:
            subject = f"{episode.subject} {episode.verb} down: {episode.detail}"
            yield Fact(key, episode.noticed_at, subject, "/system/", _of_outage(episode, "down"))
        ended_at = episode.ended_at
        if ended_at is None or ended_at < subscription.since:
            continue
        if key in queued:
            lasted = spell_duration((ended_at - episode.began_at).total_seconds())
            subject = f"{episode.subject} recovered after {lasted}"
            yield Fact(f"{key}:up", ended_at, subject, "/system/", _of_outage(episode, "up"))


def _of_outage(episode: Episode, state: str) -> dict[str, Any]:
    component: dict[str, Any] = {"name": episode.name, "state": state, "detail": episode.detail}
    if episode.members:
        component["members"] = list(episode.members)
    return {"component": component | {"since": episode.began_at.isoformat()}}


def _closed(since: dt.datetime) -> Iterator[Fact]:
    rows = MonthReport.objects.filter(
        state=ReportState.CLOSED, number=0, generated_at__gte=since
    ).order_by("generated_at")
    for row in rows.iterator(_MOST):
        subject = f"The month {row.month} was closed"
        details = {"month": {"month": row.month, "version": row.version}}
        key = f"{MONTH_CLOSED}:{row.month}"
        yield Fact(key, row.generated_at, subject, "/usage/reports/", details)
