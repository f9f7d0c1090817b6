"""domain: the objects of a job other than pods: which are missing, and which were changed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from jobs.builders.launcher import (
    build_config_map,
    build_role,
    build_role_binding,
    build_service_account,
)
from jobs.ipujob.conditions import Reason
from jobs.ipujob.names import Kind, parse_time
from jobs.operator.actions import CreateChild, DeleteChild, Event, Step
from jobs.operator.ownership import contents_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from jobs.builders.pods import BuildContext
    from jobs.ipujob.names import Manifest
    from jobs.operator.observed import Child, Instance, Observed

# Where the cluster itself changes what we make (an admission webhook), it is made again no faster.
PAUSE = timedelta(seconds=30)
_Builders: TypeAlias = "dict[Kind, Callable[[BuildContext], Manifest]]"
# What an API server (the account) and the kubelet (the ConfigMap) want to see before a pod starts.
CHILDREN: Final[_Builders] = {
    Kind.CONFIG_MAP: build_config_map,
    Kind.SERVICE_ACCOUNT: build_service_account,
}
# What the launcher's first request needs. An API server takes 0.1 s for each at rest and several
# times that in a burst: whether we may grant what is in it, it looks up in copies of all roles and
# bindings that must not be late. Before anybody binds a role it looks into that, too.
ROLE: Final[_Builders] = {Kind.ROLE: build_role}
BINDING: Final[_Builders] = {Kind.ROLE_BINDING: build_role_binding}


def children_step(
    observed: Observed, context: BuildContext, instances: tuple[Instance, ...]
) -> Step:
    """ConfigMap and ServiceAccount of a job with a launcher."""
    return _missing("children", CHILDREN, observed, context, instances)


def access_steps(
    observed: Observed, context: BuildContext, instances: tuple[Instance, ...]
) -> tuple[Step, ...]:
    """The Role and then the RoleBinding of a job with a launcher, which no pod waits for."""
    steps = (
        _missing("role", ROLE, observed, context, instances),
        _missing("binding", BINDING, observed, context, instances),
    )
    return tuple(step for step in steps if step.actions)


def changed_children(
    observed: Observed, context: BuildContext, instances: tuple[Instance, ...]
) -> tuple[Child, ...]:
    """Return the objects that differ from what the builders make, while the job needs them."""
    if not context.spec.has_launcher or not any(instance.is_active for instance in instances):
        return ()
    return tuple(
        child
        for kind, build in (CHILDREN | ROLE | BINDING).items()
        if (child := observed.children.get(kind)) is not None
        and child.contents is not None
        and not child.is_deleting
        and child.contents != contents_of(build(context))
    )


def restore_step(observed: Observed, changed: tuple[Child, ...], now: datetime) -> Step:
    """Return the deletions of `changed` objects that can go now.

    The next pass creates them again, which needs no right to update them.
    """
    due = (child for child in changed if _seconds_left(observed, child, now) <= 0)
    return Step("restore", tuple(_deletion(child) for child in due))


def _deletion(child: Child) -> DeleteChild:
    what = f"{child.kind} {child.namespace}/{child.name}"
    said = f"{what} differs from what the job needs and is recreated"
    event = Event(Reason.OBJECT_RESTORED, said, is_warning=True)
    return DeleteChild(child.kind, child.namespace, child.name, child.uid, event)


def restore_again_after(
    observed: Observed, changed: tuple[Child, ...], now: datetime
) -> float | None:
    """Return the seconds until another object can be restored; None: there is none."""
    left = [_seconds_left(observed, child, now) for child in changed]
    return min((seconds for seconds in left if seconds > 0), default=None)


def _seconds_left(observed: Observed, child: Child, now: datetime) -> float:
    """None is left for one that was made before the job was started or resumed."""
    began = parse_time(observed.status().get("startTime"))
    if child.made_at is None or (began is not None and child.made_at < began):
        return 0.0
    return (child.made_at + PAUSE - now).total_seconds()


def _missing(
    name: str,
    builders: _Builders,
    observed: Observed,
    context: BuildContext,
    instances: tuple[Instance, ...],
) -> Step:
    is_due = context.spec.has_launcher and any(instance.is_active for instance in instances)
    kinds = (kind for kind in builders if is_due and kind not in observed.children)
    actions = tuple(CreateChild(kind, builders[kind](context)) for kind in kinds)
    return Step(name, actions, needs_previous=True)
