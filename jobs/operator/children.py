"""domain: a job's objects that somebody has changed, or that an earlier spec has left."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from jobs.ipujob.conditions import Reason
from jobs.ipujob.manifests import parse_time
from jobs.operator.actions import DeleteChild, Event
from jobs.operator.ownership import contents_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from jobs.builders.context import BuildContext
    from jobs.ipujob.manifests import Manifest
    from jobs.ipujob.names import Kind
    from jobs.operator.observed import Child, Observed

# Where the cluster itself changes what we make (an admission webhook), it is made again no faster.
PAUSE = timedelta(seconds=30)


def changed(
    observed: Observed, context: BuildContext, builders: Mapping[Kind, Callable[..., Manifest]]
) -> tuple[Child, ...]:
    """The objects whose contents are not those that the job needs."""
    return tuple(
        child
        for kind, build in builders.items()
        if (child := observed.children.get(kind)) is not None
        and child.contents is not None
        and not child.is_deleting
        and child.contents != contents_of(build(context))
    )


def replaced(
    observed: Observed, children: tuple[Child, ...], now: datetime
) -> Iterator[DeleteChild]:
    """Those that may be deleted now, to be made anew: this needs no right to write them."""
    for child in children:
        if _seconds_left(observed, child, now) <= 0:
            what = f"{child.kind} {child.namespace}/{child.name}"
            said = f"{what} is not as the job needs it and is made anew"
            event = Event(Reason.OBJECT_RESTORED, said, is_warning=True)
            yield DeleteChild(child.kind, child.namespace, child.name, child.uid, event)


def seconds_left(observed: Observed, children: tuple[Child, ...], now: datetime) -> float | None:
    """Seconds until another may be; None: there is none."""
    left = [_seconds_left(observed, child, now) for child in children]
    return min((seconds for seconds in left if seconds > 0), default=None)


def _seconds_left(observed: Observed, child: Child, now: datetime) -> float:
    """None is left for one that was made before the job was started or resumed."""
    began = parse_time(observed.status().get("startTime"))
    if child.made_at is None or (began is not None and child.made_at < began):
        return 0.0
    return (child.made_at + PAUSE - now).total_seconds()
