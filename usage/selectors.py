"""glue: usage over any window: who held what, by any dimension, in steps or in one sum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db import connection

from ipuhub.models import RecordFault, WatchGap
from ipuhub.months import Month
from usage.dimensions import DIMENSIONS
from usage.measures import POD_SUMS, Measures, total
from usage.models import PodLifetime
from usage.parts import Coverage, Stretch, split
from usage.rollups import read_coverage
from usage.usagesql import fold, partition_sums, pod_sums
from usage.windows import Window, step_begins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from django.db.models import QuerySet

    from ipuhub.web.access import Scope
    from usage.dimensions import Dimension


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: whose usage, of what (`equals`: values by dimension name), by what."""

    scope: Scope
    window: Window
    zone: ZoneInfo
    by: Dimension | None = None
    equals: Mapping[str, str] = field(default_factory=dict)

    @property
    def rolled(self) -> bool:
        """Whether the day sums know all dimensions in question."""
        names = [*self.equals, *([self.by.name] if self.by else [])]
        return all(DIMENSIONS[name].rolled for name in names)


def month_to_date(scope: Scope, now: datetime, zone: ZoneInfo) -> Measures:
    """Return what was held since the month of `zone` began."""
    month = Month.of(now, zone)
    window = Window.of(month.first(zone), month.end(zone), now)
    return total(summary(Question(scope, window, zone)).values())


def summary(question: Question) -> dict[str, Measures]:
    """Return the sums by value of the dimension asked for (by none: under the empty text)."""
    sums = _ask(question, [question.window.begin])
    return {key: measures for (_, key), measures in sums.items()}


def series(question: Question, step: str) -> tuple[list[datetime], dict[tuple[int, str], Measures]]:
    """Return when the steps begin, and the sums by number of step and by value.

    Raises WindowError. What has not happened yet is in no step.
    """
    begins = step_begins(question.window, step, question.zone)
    return begins, _ask(question, begins)


def chart(
    question: Question, step: str, amount: str, top: int
) -> tuple[list[datetime], dict[tuple[int, str | None], int]]:
    """Return when the steps begin, and one exact sum by number of step and by value.

    Only the `top` values with most of it stand apart; all others are under None.
    """
    begins = step_begins(question.window, step, question.zone)
    passed = [instant for instant in begins if instant < question.window.until]
    if not passed:
        return begins, {}
    if amount == "partition_ipu_seconds":
        statement, parameters = _partition_sql(question, passed)
    else:
        statement, parameters = _pod_sql(question, passed, (amount,))
    rows = _run(fold(statement, amount), parameters | {"top": top})
    return begins, {(bucket, key): int(held) for bucket, key, held in rows}


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


def _ask(question: Question, begins: Sequence[datetime]) -> dict[tuple[int, str], Measures]:
    until = question.window.until
    if until <= begins[0]:
        return {}
    passed = [instant for instant in begins if instant < until]
    found: dict[tuple[int, str], Measures] = {}
    for bucket, key, *sums in _run(*_pod_sql(question, passed)):
        found[bucket, key] = Measures(*map(int, sums))
    for bucket, key, count, held in _run(*_partition_sql(question, passed)):
        more = Measures(partitions=int(count), partition_ipu_seconds=int(held))
        found[bucket, key] = found.get((bucket, key), Measures()) + more
    return dict(sorted(found.items()))


def _pod_sql(
    question: Question, begins: Sequence[datetime], names: Sequence[str] = POD_SUMS
) -> tuple[str, dict[str, Any]]:
    cover = read_coverage() if question.rolled else Coverage()
    parts = split(begins, question.window.until, question.zone, cover)
    key = question.by.pods if question.by else "''::text"
    where, parameters = _conditions(question, "pods")
    statement, own = pod_sums(key, where, parts, names)
    return statement, parameters | own


def _partition_sql(question: Question, begins: Sequence[datetime]) -> tuple[str, dict[str, Any]]:
    count = len(begins)
    stretch = Stretch((*begins, question.window.until), tuple(range(count)), (True,) * count)
    key = question.by.partitions if question.by else "''::text"
    where, parameters = _conditions(question, "partitions")
    statement, own = partition_sums(key, where, stretch)
    return statement, parameters | own


def _conditions(question: Question, source: str) -> tuple[str, dict[str, Any]]:
    """Return the condition on rows of `source` and its parameters."""
    texts = ["true"]
    parameters: dict[str, Any] = {}
    for name, value in question.equals.items():
        texts.append(f"{getattr(DIMENSIONS[name], source)} = %(equals_{name})s")
        parameters[f"equals_{name}"] = value
    if question.scope.namespaces is not None:
        texts.append("namespace = ANY(%(namespaces)s)")
        parameters["namespaces"] = sorted(question.scope.namespaces)
    return " AND ".join(texts), parameters


def _run(statement: str, parameters: Mapping[str, Any]) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[Any] = cursor.fetchall()
        return rows
