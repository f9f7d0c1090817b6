"""io: executes a plan; the only place that handles conflicts, retries and AlreadyExists.

Also reads a job's pods from the API server itself. A watch can be late by a minute, and what cannot
be undone must not rely on its copy. Every function raises ApiError.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ipuhub.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from ipuhub.partition import Phase
from jobs.ipujob.names import (
    ANNOTATION_END,
    IPUJOBS,
    LABEL_ATTEMPT,
    LABEL_INSTANCE,
    LABEL_JOB_UID,
    RESOURCE_OF,
    Kind,
    format_time,
    labels_of,
    metadata,
    name_of,
    namespace_of,
)
from jobs.operator.actions import (
    CreateChild,
    DeleteChild,
    DeleteJob,
    EndPod,
    EnsurePartition,
    PatchStatus,
    ReleasePartition,
    SetFinalizers,
    StoreKey,
    TryPod,
)
from jobs.operator.effects import PodDryRuns, store_key
from jobs.operator.failures import NameConflictError, fault_of
from jobs.operator.metrics import count_action, count_decision
from jobs.operator.ownership import is_object_of, is_pod_of
from jobs.operator.pods import TERMINAL
from jobs.operator.provisioning import has_waited

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ipuhub.kube.client import KubeClient
    from ipuhub.partition import Partition
    from jobs.ipujob.names import JobKey, Manifest
    from jobs.operator.actions import Action, Event, Plan, Step
    from jobs.operator.effects import Effects
    from jobs.operator.observed import Fault, Observed

_PODS = RESOURCE_OF[Kind.POD]


async def has_pod(client: KubeClient, key: JobKey, name: str, attempt: int) -> bool:
    """Return whether the job has this pod, and for this attempt."""
    try:
        pod = await client.get(_PODS, name, key.namespace)
    except NotFound:
        return False
    return is_object_of(pod, key) and labels_of(pod).get(LABEL_ATTEMPT) == str(attempt)


async def has_live_pods(client: KubeClient, key: JobKey, instance: int) -> bool:
    """Return whether a pod may still use the instance's IPUs."""
    selector = f"{LABEL_JOB_UID}={key.uid}"
    found = await client.list(_PODS, key.namespace, label_selector=selector)
    return any(
        (pod.get("status") or {}).get("phase") not in TERMINAL
        for pod in found.items
        if is_pod_of(pod, key)
        and labels_of(pod).get(LABEL_INSTANCE, str(instance)) == str(instance)
    )


HEAD_START_SECONDS = 0.1


@dataclass(slots=True)
class Outcome:
    """The outcome of a plan. `failed`: try again with growing delays, or after `retry_after`
    seconds; `fault`: the problem to show to the user; `replan`: partitions have changed, plan again
    immediately; `has_freed`: others that wait for IPUs may look again too; `refusal`: an error that
    does not resolve by itself, for the log."""

    failed: bool = False
    fault: Fault | None = None
    replan: bool = False
    has_freed: bool = False
    retry_after: float | None = None
    refusal: str = ""


@dataclass(slots=True)
class _Pass:
    """One plan being carried out. `resource_version` is the job's, as of our own last write;
    `is_current`: the API server has said in this pass that no other write has followed it;
    `leave` is called before the pass waits for V-IPU."""

    observed: Observed
    resource_version: str
    leave: Callable[[], None]
    is_current: bool = False
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def uid(self) -> str:
        return self.observed.key.uid


class Executor:
    """Carries out plans."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._rehearsals = PodDryRuns(effects.client)
        self._turn = asyncio.Lock()  # first come, first served

    async def execute(
        self, observed: Observed, plan: Plan, leave: Callable[[], None] = lambda: None
    ) -> Outcome:
        """All steps in order, the actions of a step at the same time."""
        version = str(metadata(observed.job or {}).get("resourceVersion", ""))
        this = _Pass(observed, version, leave)
        for step in plan.steps:
            if step.needs_previous and this.outcome.failed:
                continue
            await self._step(this, step)
        return this.outcome

    async def _step(self, this: _Pass, step: Step) -> None:
        if step.makes_pods:
            try:
                is_late = await self._is_late(this)
            except ApiError as error:
                self._note_failure(this, step.actions[0], error)
                return
            if is_late:
                this.outcome.failed = True
                return
        results = await asyncio.gather(
            *(self._act(this, action) for action in step.actions), return_exceptions=True
        )
        for action, failure in zip(step.actions, results, strict=True):
            if failure is not None:
                self._note_failure(this, action, failure)

    async def _act(self, this: _Pass, action: Action) -> None:
        began = time.perf_counter()
        failure: BaseException | None = None
        try:
            await self._carry_out(this, action)
        except BaseException as error:
            failure = error
            raise
        finally:
            count_action(action, time.perf_counter() - began, failure)

    async def _carry_out(self, this: _Pass, action: Action) -> None:
        match action:
            case CreateChild():
                await self._create(this, action)
            case TryPod():
                await self._rehearsals.judge(action)
            case DeleteChild():
                await self._delete(this, action)
            case DeleteJob():
                await self._delete_job(this)
            case EndPod():
                await self._end_pod(this, action)
            case SetFinalizers():
                await self._set_finalizers(this, action)
            case PatchStatus():
                await self._patch_status(this, action)
            case EnsurePartition():
                await self._ensure(this, action)
            case ReleasePartition():
                await self._release(this, action)
            case StoreKey():
                this.leave()
                await store_key(self._effects, this.observed.key, action)
                this.outcome.replan = True

    async def _create(self, this: _Pass, action: CreateChild) -> None:
        resource = RESOURCE_OF[action.kind]
        client, key = self._effects.client, this.observed.key
        try:
            created = await client.create(resource, action.manifest)
        except AlreadyExists:
            created = await self._existing(action)
            if not is_object_of(created, key):
                raise NameConflictError(
                    f"{action.kind} {key.namespace}/{name_of(action.manifest)} already exists "
                    "and does not belong to the job: delete it or rename the job"
                ) from None
        self._effects.expectations.written(
            key.uid, self._effects.caches.children[action.kind], created, is_new=True
        )

    async def _existing(self, action: CreateChild) -> Manifest:
        name, namespace = name_of(action.manifest), namespace_of(action.manifest)
        try:
            return await self._effects.client.get(RESOURCE_OF[action.kind], name, namespace)
        except NotFound as error:  # it went in between: try again
            raise Conflict(409, "Conflict", f"{action.kind} {name} has just gone") from error

    async def _delete(self, this: _Pass, action: DeleteChild) -> None:
        try:
            await self._effects.client.delete(
                RESOURCE_OF[action.kind], action.name, action.namespace, uid=action.uid
            )
        except NotFound:
            return
        # A conflict (another object has its name now, or the server says so for reasons of its
        # own) is tried again: with a copy that shows why, or with success.
        self._effects.expectations.deleted(
            this.uid,
            self._effects.caches.children[action.kind],
            action.namespace,
            action.name,
            action.uid,
        )
        if action.event is not None:
            await self._tell(this, (action.event,))

    async def _delete_job(self, this: _Pass) -> None:
        key = this.observed.key
        with contextlib.suppress(NotFound):
            await self._effects.client.delete(IPUJOBS, key.name, key.namespace, uid=key.uid)

    async def _end_pod(self, this: _Pass, action: EndPod) -> None:
        patch: Manifest = {"metadata": {"uid": action.uid}}
        if action.told_at:
            patch["metadata"]["annotations"] = {ANNOTATION_END: action.told_at}
        if action.deadline_seconds is not None:
            patch["spec"] = {"activeDeadlineSeconds": action.deadline_seconds}
        pods = RESOURCE_OF[Kind.POD]
        try:
            ended = await self._effects.client.patch(pods, action.name, patch, action.namespace)
        except NotFound:
            return
        self._effects.expectations.written(this.uid, self._effects.caches.pods, ended)

    async def _set_finalizers(self, this: _Pass, action: SetFinalizers) -> None:
        body = {"finalizers": list(action.finalizers)}
        await self._patch_job(this, {"metadata": body}, None)

    async def _patch_status(self, this: _Pass, action: PatchStatus) -> None:
        for name, attempt in action.absent:
            if await has_pod(self._effects.client, this.observed.key, name, attempt):
                this.outcome.failed = True  # our copy is late: an attempt must not end of that
                return
        stored, keeper = this.observed.status(), self._effects.keeper
        for _ in range(2):  # once more, in the way that the first answer has taught
            written = keeper.to_write(stored, action.status, format_time(self._effects.now()))
            job = await self._patch_job(this, {"status": written}, "status")
            if job is None:
                return
            if keeper.read_back(job.get("status") or {}, stored, written):
                count_decision(this.observed.job or {}, action, self._effects.now())
                await self._tell(this, action.events)
                return
        this.outcome.failed = True  # a decision that was not stored is not acted on

    async def _patch_job(
        self, this: _Pass, body: Manifest, subresource: str | None
    ) -> Manifest | None:
        """Writes to the job, if it is still as observed; None: it is gone."""
        key = this.observed.key
        guard = {"resourceVersion": this.resource_version}
        body = {**body, "metadata": {**body.get("metadata", {}), **guard}}
        try:
            job = await self._effects.client.patch(
                IPUJOBS, key.name, body, key.namespace, subresource=subresource
            )
        except NotFound:
            return None
        this.resource_version = str(metadata(job).get("resourceVersion", ""))
        this.is_current = True  # or the write would have been a conflict
        self._effects.expectations.written(this.uid, self._effects.caches.jobs, job)
        return job

    async def _tell(self, this: _Pass, events: tuple[Event, ...]) -> None:
        for event in events:
            await self._effects.recorder.record(
                this.observed.job or {},
                type="Warning" if event.is_warning else "Normal",
                reason=str(event.reason),
                message=event.message,
            )

    async def _ensure(self, this: _Pass, action: EnsurePartition) -> None:
        key = this.observed.key
        known = this.observed.partitions.get(action.instance)
        if known is not None and not await self._may_begin(this, known, action):
            this.outcome.failed = True
            return
        call = self._effects.partitions.ensure(
            uid=key.uid,
            namespace=key.namespace,
            name=key.name,
            instance=action.instance,
            size=action.size,
            attempt=action.attempt,
        )
        this.is_current = False  # the answer may take seconds
        this.leave()
        waited = has_waited(this.observed, action.instance)
        fact = await (self._in_turn(call) if waited else call)
        self._effects.facts.note(key.uid, fact, self._effects.now())
        this.outcome.replan = True

    async def _may_begin(self, this: _Pass, known: Partition, action: EnsurePartition) -> bool:
        """Return whether an attempt may take over what the instance has or had, by the API server's
        own word: it might be reset under a living pod, or made for a job that has ended since."""
        if known.phase == Phase.RELEASED:
            return not await self._is_late(this)
        if known.attempt >= action.attempt:
            return True
        return not await has_live_pods(self._effects.client, this.observed.key, action.instance)

    async def _is_late(self, this: _Pass) -> bool:
        """Return whether the job has changed since it was observed, checked once in a pass. A job
        that has given its partition back may be finished, and a stale copy must not restart it."""
        if this.is_current:
            return False
        key = this.observed.key
        try:
            job = await self._effects.client.get(IPUJOBS, key.name, key.namespace)
        except NotFound:
            return True
        this.is_current = metadata(job).get("resourceVersion") == this.resource_version
        return not this.is_current

    async def _in_turn(self, call: Coroutine[Any, Any, Partition]) -> Partition:
        """Calls of those who have waited start one after another: sent at the same time, they
        would overtake each other on the way to the proxy. An answer that takes long, since the
        partition is being made, is not waited for by the others."""
        async with self._turn:
            task = asyncio.create_task(call)
            try:
                await asyncio.wait({task}, timeout=HEAD_START_SECONDS)
            except asyncio.CancelledError:
                task.cancel()
                raise
        return await task

    async def _release(self, this: _Pass, action: ReleasePartition) -> None:
        if await has_live_pods(self._effects.client, this.observed.key, action.instance):
            this.outcome.failed = True
            return
        this.leave()
        fact = await self._effects.partitions.release(this.uid, action.instance)
        if fact is None:
            self._effects.facts.note_released(this.uid, action.instance)
        else:
            self._effects.facts.note(this.uid, fact, self._effects.now())
        this.outcome.replan = True
        this.outcome.has_freed |= fact is not None and fact.phase == Phase.RELEASED

    def _note_failure(self, this: _Pass, action: Action, error: BaseException) -> None:
        """Anything but an expected error is a bug, for the outermost loop to report."""
        outcome = this.outcome
        if not isinstance(error, ApiError | NameConflictError) and not hasattr(error, "retryable"):
            raise error
        outcome.failed = True
        outcome.retry_after = getattr(error, "retry_after", None) or outcome.retry_after
        fault = fault_of(action, error)
        if fault is not None and outcome.fault is None:
            outcome.fault = fault
        # What may pass by itself is on /readyz and in the status; a line per try would drown it.
        if not getattr(error, "retryable", False) and not outcome.refusal:
            outcome.refusal = f"{type(action).__name__}: {error}"
