"""domain: the objects a job still lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.actions import CreateChild, Kind, Step
from jobs.builders.access import build_role, build_role_binding, build_service_account
from jobs.builders.context import PodPlace
from jobs.builders.launcher import build_launcher
from jobs.builders.mpi import build_config_map
from jobs.builders.worker import build_worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobs.builders.context import BuildContext
    from jobs.instances import Instance
    from jobs.manifests import Manifest
    from jobs.observed import Observed

BUILDERS: dict[Kind, Callable[[BuildContext], Manifest]] = {
    Kind.CONFIG_MAP: build_config_map,
    Kind.SERVICE_ACCOUNT: build_service_account,
    Kind.ROLE: build_role,
    Kind.ROLE_BINDING: build_role_binding,
}


def children_step(
    observed: Observed, context: BuildContext, instances: tuple[Instance, ...]
) -> Step:
    """ConfigMap, ServiceAccount, Role and RoleBinding of a job with a launcher, all at once."""
    actions = (
        tuple(
            CreateChild(kind, build(context))
            for kind, build in BUILDERS.items()
            if kind not in observed.children
        )
        if context.spec.has_launcher and any(instance.is_active for instance in instances)
        else ()
    )
    return Step("children", actions, needs_previous=True)


def workers_step(context: BuildContext, instances: tuple[Instance, ...]) -> Step:
    """The missing workers of every instance whose partition is ready, all at once."""
    actions = [
        CreateChild(Kind.POD, build_worker(context, place, number))
        for instance in instances
        if (place := _place(instance)) is not None
        for number, pod in zip(
            context.spec.workers_of(instance.index), instance.workers.values(), strict=True
        )
        if pod is None
    ]
    return Step("workers", tuple(actions), needs_previous=True)


def launcher_step(context: BuildContext, instances: tuple[Instance, ...]) -> Step:
    """The missing launcher."""
    actions = [
        CreateChild(Kind.POD, build_launcher(context, place))
        for instance in instances
        if context.spec.has_launcher
        and instance.launcher is None
        and (place := _place(instance)) is not None
    ]
    return Step("launcher", tuple(actions), needs_previous=True)


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
