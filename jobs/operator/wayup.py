"""domain: the objects a job still lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from jobs.builders.access import build_role, build_role_binding, build_service_account
from jobs.builders.context import PodPlace
from jobs.builders.launcher import build_launcher
from jobs.builders.mpi import build_config_map
from jobs.builders.worker import build_worker
from jobs.operator import restoring
from jobs.operator.actions import CreateChild, Kind, Step

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from jobs.builders.context import BuildContext
    from jobs.ipujob.manifests import Manifest
    from jobs.operator.instances import Instance
    from jobs.operator.observed import Child, Observed

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


def restore_step(observed: Observed, changed: tuple[Child, ...], now: datetime) -> Step:
    """Of what somebody has `changed`, what may go now: the next pass makes it anew."""
    return Step("restore", tuple(restoring.replaced(observed, changed, now)))


def changed_children(
    observed: Observed, context: BuildContext, instances: tuple[Instance, ...]
) -> tuple[Child, ...]:
    """What is not as the builders make it, as long as the job needs it."""
    if not context.spec.has_launcher or not any(instance.is_active for instance in instances):
        return ()
    return restoring.changed(observed, context, CHILDREN | ROLE | BINDING)


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


def pods_step(context: BuildContext, instances: tuple[Instance, ...]) -> Step:
    """The missing pods of every instance whose partition is ready, all at once: the launcher waits
    for its workers by itself, whichever is made first."""
    actions = []
    for instance in instances:
        place = _place(instance)
        if place is None:
            continue
        numbers = context.spec.workers_of(instance.index)
        actions += [
            CreateChild(Kind.POD, build_worker(context, place, number))
            for number, pod in zip(numbers, instance.workers.values(), strict=True)
            if pod is None
        ]
        if context.spec.has_launcher and instance.launcher is None:
            actions.append(CreateChild(Kind.POD, build_launcher(context, place)))
    return Step("pods", tuple(actions), needs_previous=True)


def _place(instance: Instance) -> PodPlace | None:
    """Where new pods of an instance go; None: it must not get any now.

    A running attempt gets no second launcher and no replaced worker: a pod it lost ends it. Pods
    of another attempt have to be gone first, since they have the same names.
    """
    if not instance.is_active or instance.has_started or instance.strays:
        return None
    if instance.is_settled or instance.is_resting:
        return None
    if instance.partition is None:
        return None
    return PodPlace(instance.index, instance.attempt, instance.partition)
