"""domain: provisioning of a job besides its pods: when to request and release its partitions, and
which of its objects are missing or were changed.

Also the dry-run pods that are checked before a job gets IPUs.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from ipuhub.partition import ASK_AGAIN, Partition, Phase
from ipuhub.partition import Reason as PartitionReason
from jobs.builders.launcher import (
    build_config_map,
    build_launcher,
    build_role,
    build_role_binding,
    build_service_account,
)
from jobs.builders.pods import PodPlace, build_worker
from jobs.ipujob.conditions import Reason, current_condition
from jobs.ipujob.names import Kind, parse_time
from jobs.operator.actions import (
    CreateChild,
    DeleteChild,
    EnsurePartition,
    Event,
    ReleasePartition,
    Step,
    TryPod,
)
from jobs.operator.ownership import contents_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from jobs.builders.pods import BuildContext
    from jobs.ipujob.names import Manifest
    from jobs.operator.observed import Child, Instance, Observed

MOST_AT_ONCE = 64  # partitions of one job that are asked for in one pass
_SHORTAGES = frozenset(
    {
        PartitionReason.NO_CAPACITY,
        PartitionReason.NO_CONTROLLERS,
        PartitionReason.NO_LABELLED_NODE,
        PartitionReason.CONTROLLER_UNAVAILABLE,
    }
)
RESIZE_PAUSE = timedelta(seconds=1)  # at least so long between two requests of an edited job


def is_due(instance: Instance, now: datetime) -> bool:
    """Return whether to request the instance's partition now.

    A partition that waits for IPUs is requested when the poll wakes all waiting jobs, oldest first:
    with a timer for each, their order would be random. What is held for an earlier attempt was
    requested by that attempt, even if only recently: nothing would wake a job that was suspended
    and resumed within this moment.
    """
    partition = instance.partition
    if not _is_wanted(instance):
        return False
    if partition is None or partition.phase == Phase.RELEASED or partition.asked_at is None:
        return True
    if partition.phase == Phase.WAITING:
        return False
    return partition.attempt < instance.attempt or not partition.was_asked(now)


def _is_wanted(instance: Instance) -> bool:
    """Return whether the instance still needs a partition.

    Never while a pod might use its current partition: another request could reset it. Nor during a
    pause: an attempt would begin, and could end, too early, and its partition would be held idle.
    """
    if instance.is_resting:
        return False
    if instance.is_settled or instance.is_active or instance.has_started or instance.may_be_used:
        return False
    partition = instance.partition
    if partition is None:
        return True
    has_failed = partition.phase == Phase.ERROR and partition.attempt == instance.attempt
    return not has_failed and partition.phase != Phase.RELEASING


def reservations(
    instances: Iterable[Instance], size: int, now: datetime
) -> tuple[EnsurePartition, ...]:
    """The partitions to request now, a limited number at a time.

    All have the same size: if the first waits for IPUs, the others would get the same answer, so
    only the first waiting instance requests for all. It does so at once after an edit of the size.
    """
    all_of_them = tuple(instances)
    due = [instance for instance in all_of_them if is_due(instance, now)]
    if any(_waits(instance) for instance in all_of_them):
        resized = [each for each, left in _resized(all_of_them, size, now) if left <= 0]
        waiting = [*(instance for instance in due if _waits(instance)), *resized][:1]
        due = [*waiting, *(i for i in due if i.partition is not None and not _may_wait(i))]
    return tuple(
        EnsurePartition(instance.index, instance.attempt, size) for instance in due[:MOST_AT_ONCE]
    )


def _waits(instance: Instance) -> bool:
    return instance.partition is not None and instance.partition.phase == Phase.WAITING


def _resized(
    instances: Iterable[Instance], size: int, now: datetime
) -> list[tuple[Instance, float]]:
    """Return the first waiting instance, if its last answer is about another size, and the seconds
    until it may request again: an edit in a loop must not make it a flood of requests."""
    for instance in instances:
        partition = instance.partition
        if partition is None or partition.phase != Phase.WAITING:
            continue
        if partition.size == size or partition.asked_at is None or not _is_wanted(instance):
            break
        return [(instance, (partition.asked_at + RESIZE_PAUSE - now).total_seconds())]
    return []


def _may_wait(instance: Instance) -> bool:
    """Return whether it holds nothing yet, and so may find no room."""
    partition = instance.partition
    return partition is None or partition.phase in {Phase.WAITING, Phase.RELEASED}


def ask_again_after(instances: Sequence[Instance], size: int, now: datetime) -> float | None:
    """Return the seconds until an unfinished partition, or one of an edited size, is requested
    again."""
    unfinished = _next_call(
        (
            instance.partition
            for instance in instances
            if _is_wanted(instance) and instance.partition is not None
        ),
        {Phase.RESERVING, Phase.CREATING},
        now,
    )
    resized = (left for _, left in _resized(instances, size, now) if left > 0)
    return min((*resized, *(() if unfinished is None else (unfinished,))), default=None)


def release_again_after(observed: Observed, now: datetime) -> float | None:
    """Return the seconds until the release of a partition is requested again."""
    return _next_call(observed.partitions.values(), {Phase.RELEASING}, now)


def _next_call(partitions: Iterable[Partition], phases: set[Phase], now: datetime) -> float | None:
    """The delay until the next request; what is due now is requested now, so nothing here is
    overdue."""
    waits = [
        (p.asked_at + ASK_AGAIN - now).total_seconds()
        for p in partitions
        if p.phase in phases and p.asked_at is not None and p.was_asked(now)
    ]
    return min(waits) if waits else None


def idle(instances: Iterable[Instance], now: datetime, hold_seconds: float) -> tuple[int, ...]:
    """Return the instances that hold a partition of a past attempt during a long pause.

    If the pause lasts longer than `hold_seconds`, others can have these IPUs.
    """
    return tuple(
        instance.index
        for instance in instances
        if instance.partition is not None
        and instance.partition.phase not in {Phase.WAITING, Phase.RELEASED}
        and instance.partition.attempt <= instance.attempt  # else our copy of the job is late
        and instance.is_resting
        and not instance.may_be_used
        and instance.record.restart_at is not None
        and (
            instance.is_blocked_out
            or (instance.record.restart_at - now).total_seconds() > hold_seconds
        )
    )


def known_instances(observed: Observed, wanted: int) -> tuple[int, ...]:
    """Every instance that may hold a partition: wanted, recorded by the proxy or in the status."""
    stored = (entry.get("instance", 0) for entry in observed.status().get("partitions") or ())
    return tuple(sorted({*range(wanted), *observed.partitions, *stored}))


def releases(
    observed: Observed, instances: Iterable[int], now: datetime
) -> tuple[ReleasePartition, ...]:
    """Return the releases that `instances` still need. Only the proxy's answer counts: a partition
    that is merely missing in its list is released once more, which finds nothing or finishes it. A
    release under way is left to the proxy for a while. An unreachable proxy is not called: the poll
    shows when it is back."""
    if observed.proxy_problem:
        return ()
    return tuple(
        ReleasePartition(index)
        for index in instances
        if not is_released(observed, index) and not _is_under_way(observed, index, now)
    )


def _is_under_way(observed: Observed, instance: int, now: datetime) -> bool:
    partition = observed.partitions.get(instance)
    return partition is not None and partition.phase == Phase.RELEASING and partition.was_asked(now)


def is_released(observed: Observed, instance: int) -> bool:
    """Return whether the proxy has confirmed that the partition is gone."""
    partition = observed.partitions.get(instance)
    return partition is not None and partition.phase == Phase.RELEASED


def was_released(observed: Observed, instance: int) -> bool:
    """Return whether it is released, or the status says so and no later news contradicts it."""
    if instance in observed.partitions:
        return is_released(observed, instance)
    return any(
        entry.get("instance", 0) == instance and entry.get("state") == Phase.RELEASED
        for entry in observed.status().get("partitions") or ()
    )


# What no admission looks at: a pod is judged before its partition, and with it its nodes, is known.
_STAND_IN = Partition(
    instance=0, phase=Phase.ACTIVE, id="not-yet-known", controller="not.yet.known:8090"
)


def try_step(
    observed: Observed,
    context: BuildContext,
    instances: tuple[Instance, ...],
    asks: tuple[EnsurePartition, ...],
) -> Step:
    """Return a step that tries a worker and the launcher of the next instance by dry runs.

    What a quota, a limit or an admission plugin refuses must not hold IPUs. Jobs that already wait
    for IPUs have been tried before.
    """
    asking = {ask.instance for ask in asks}
    fresh = [i for i in instances if i.index in asking and _is_fresh(observed, i)]
    if not fresh:
        return Step("try", ())
    first = fresh[0]
    place = PodPlace(first.index, first.attempt, _STAND_IN)
    pods = [build_worker(context, place, context.spec.workers_of(first.index).start)]
    if context.spec.has_launcher:
        pods.append(_of_default_account(build_launcher(context, place)))
    key = _key(context)
    tries = tuple(TryPod(f"{key}/{number}", pod) for number, pod in enumerate(pods))
    return Step("try", tries, needs_previous=True)


def _is_fresh(observed: Observed, instance: Instance) -> bool:
    partition = instance.partition
    if partition is None:
        return not has_waited(observed, instance.index)
    return partition.phase == Phase.RELEASED


def has_waited(observed: Observed, instance: int) -> bool:
    """Return whether the last answer to the instance's requests was that it has to wait.

    An operator that has just started has no answer yet: the status has the answer that the operator
    before it got. Otherwise those who waited through a restart would lose their order.
    """
    partition = observed.partitions.get(instance)
    if partition is not None:
        return partition.phase == Phase.WAITING
    return (current_condition(observed.status()) or {}).get("reason") in _SHORTAGES


def _of_default_account(launcher: Manifest) -> Manifest:
    """The launcher's own service account is made later, and a pod of none is refused."""
    launcher["spec"].pop("serviceAccountName", None)
    return launcher


def _key(context: BuildContext) -> str:
    """Equal for jobs of one namespace whose pods differ in names only."""
    words = f"{context.key.namespace} {len(context.key.name)} {context.fingerprint}"
    return hashlib.sha256(words.encode()).hexdigest()


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
    """Return the objects that differ from the output of the builders, while the job needs them."""
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
    message = f"{what} differs from what the job needs and is recreated"
    event = Event(Reason.OBJECT_RESTORED, message, is_warning=True)
    return DeleteChild(child.kind, child.namespace, child.name, child.uid, event)


def restore_again_after(
    observed: Observed, changed: tuple[Child, ...], now: datetime
) -> float | None:
    """Return the seconds until another object can be restored; None: there is none."""
    waits = [_seconds_left(observed, child, now) for child in changed]
    return min((seconds for seconds in waits if seconds > 0), default=None)


def _seconds_left(observed: Observed, child: Child, now: datetime) -> float:
    """No time is left for an object made before the job was started or resumed."""
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
