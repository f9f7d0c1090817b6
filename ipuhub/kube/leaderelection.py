"""io: leader election by a Lease: one of several replicas works, the others wait (KEP-589).

A replica measures time since it saw the Lease change with its own clock; clocks of two machines are
never compared. A leader that cannot renew stops before another begins. A standby checks the Lease
when it changes, when it expires, and every few seconds. A notification of a changed Lease triggers
a check, never an action.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from ipuhub import VERSION_ANNOTATION, __version__
from ipuhub.backoff import Backoff, jitter
from ipuhub.concurrency import end_tasks
from ipuhub.kube.errors import AlreadyExists, ApiError, Conflict, Gone, NotFound
from ipuhub.kube.malformed import ANNOTATION
from ipuhub.kube.resources import LEASES
from ipuhub.kube.watch import Scope, Watch
from ipuhub.times import format_micro_time, utc_now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest

log = structlog.get_logger(__name__)
_BACKOFF = Backoff(first_seconds=0.8, max_seconds=60.0)
_MOST_TRANSITIONS: Final = 2**31  # the API server takes 32 bits
_VERSION: Final = {VERSION_ANNOTATION: __version__}


@asynccontextmanager
async def lease_changes(
    client: KubeClient, namespace: str, name: str
) -> AsyncIterator[asyncio.Event]:
    """An event that is set at each change of the Lease; its waiter clears it.

    A change may be missed, and a server that refuses the watch is only logged, so the waiter also
    checks periodically.
    """
    changed = asyncio.Event()
    task = asyncio.create_task(_follow(client, namespace, name, changed))
    try:
        yield changed
    finally:
        await end_tasks(task)


async def _follow(client: KubeClient, namespace: str, name: str, changed: asyncio.Event) -> None:
    # Named by a field selector, or the right to watch this one Lease would not do.
    scope = Scope(LEASES, namespace, field_selector=f"metadata.name={name}")
    failures = 0
    while True:
        try:
            # From what there is now, which needs no right to list.
            async with aclosing(Watch(client, scope, "").events()) as events:
                async for event in events:
                    failures = 0
                    if event.type != "BOOKMARK":
                        changed.set()
        except ApiError as error:
            if not failures and not isinstance(error, Gone):
                log.warning("cannot watch the Lease", lease=name, problem=str(error))
        await asyncio.sleep(_BACKOFF.delay_seconds(failures, jitter()))
        failures += 1


# A suspended machine stops the usual monotonic clock, by which its Lease would still be fresh.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock_seconds() -> float:
    """Return the time by which a Lease is held: it never goes back, and never stops with the
    machine."""
    return time.clock_gettime(_CLOCK)


class LeadershipLost(Exception):  # noqa: N818  # what happened, not a fault
    """The Lease could not be renewed in time: another replica may lead by now."""


class LeaseHeld(Exception):  # noqa: N818  # a state, not an error
    """Another replica holds the Lease, and is alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTiming:
    """Times in seconds: how long a silent leader keeps the Lease, how long a leader tries to renew
    before it stops, and the pause between two tries. Each is shorter than the time before."""

    duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0


@dataclass(slots=True)
class _Seen:
    """The Lease as last seen, and by our clock when that was new and when it runs out."""

    renewal: tuple[Any, ...] = ()
    at: float = 0.0
    until: float = 0.0


class LeaderElection:
    """One replica's part in the election for the Lease `namespace`/`name`.

    `identity` must differ between replicas. `predecessor` is the replica that this replica took the
    Lease from because it no longer renewed; empty: the Lease was free.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        timing: LeaseTiming | None = None,
    ) -> None:
        self.identity = identity
        self.holder = ""
        self.predecessor = ""
        self.problem = ""
        self._client = client
        self._namespace = namespace
        self._name = name
        self._timing = timing or LeaseTiming()
        self._seen = _Seen()
        self._holds = False
        self._renewed_at = -math.inf

    @property
    def is_leading(self) -> bool:
        """Return whether this replica may work now, by the clock.

        A process that was suspended can continue before its renewal does, long after another
        replica has begun.
        """
        return self._holds and self._age_seconds() < self._timing.renew_deadline_seconds

    @property
    def left_seconds(self) -> float:
        """Return for how long no other replica can lead, whatever happens to this replica; 0:
        another may now."""
        return self._timing.duration_seconds - self._age_seconds() if self.is_leading else 0.0

    def _age_seconds(self) -> float:
        return clock_seconds() - self._renewed_at

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, then run `work` for as long as it is held; release it at the end.

        It is renewed until `work` has ended, however long that takes, and released only then.
        Returns when `work` returns. Raises LeadershipLost, after `work` has been cancelled, and
        whatever `work` raises.
        """
        await self._acquire()
        await self._work(work)

    async def lead_now(self, work: Callable[[], Awaitable[None]]) -> None:
        """Like `lead`, but wait only until it is known whether the holder lives.

        Raises LeaseHeld, before any work, where it does, and ApiError where that cannot be known.
        """
        await self._acquire_unless_held()
        await self._work(work)

    async def _work(self, work: Callable[[], Awaitable[None]]) -> None:
        log.info("leading", lease=self._name, identity=self.identity)
        working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            else:
                renewing.result()
        finally:
            try:
                await end_tasks(working)
            finally:
                await end_tasks(renewing)
            if self._holds:
                self._holds = False
                await self._release()

    async def _acquire(self) -> None:
        if not await self._attempt():
            async with lease_changes(self._client, self._namespace, self._name) as changed:
                await self._stand_by(changed)
        self._holds = True

    async def _acquire_unless_held(self) -> None:
        known: tuple[Any, ...] = ()
        async with lease_changes(self._client, self._namespace, self._name) as changed:
            while not await self._try():
                # A replica that writes it is alive; from a replica that died nothing comes until it
                # has run out.
                if known not in {(), self._seen.renewal}:
                    where = f"{self._namespace}/{self._name}"
                    raise LeaseHeld(f"{self.holder} holds the Lease {where} and renews it")
                known = self._seen.renewal
                await self._changed(changed)
        self._holds = True

    async def _stand_by(self, changed: asyncio.Event) -> None:
        logged = ""
        while True:
            if self.holder and self.holder != logged:
                logged = self.holder
                log.info("standing by", lease=self._name, leader=logged)
            await self._changed(changed)
            if await self._attempt():
                return

    async def _changed(self, changed: asyncio.Event) -> None:
        """Wait for a change of the Lease, or until the next check is due."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience_seconds()):
                await changed.wait()
        changed.clear()  # before looking: what changes meanwhile is looked at again

    def _patience_seconds(self) -> float:
        """Return how long to wait for news of the Lease before reading it anyway."""
        retry = self._timing.retry_seconds
        remaining = self._seen.until - clock_seconds()
        return min(remaining, retry) if remaining > 0 else retry

    async def _renew(self) -> None:
        now, timing = clock_seconds, self._timing
        while True:
            seconds = timing.renew_deadline_seconds - (now() - self._renewed_at)
            # After a slow answer sooner than usual: there is always time for another try.
            await asyncio.sleep(min(timing.retry_seconds, max(seconds - timing.retry_seconds, 0.0)))
            seconds = timing.renew_deadline_seconds - (now() - self._renewed_at)
            try:
                async with asyncio.timeout(max(seconds, 0.0)):
                    held = await self._attempt()
            except TimeoutError:
                held = False
            if held:
                continue
            if self.holder != self.identity or seconds <= timing.retry_seconds:
                self._holds = False
                cause = self.problem or f"{self.holder or 'nobody'} holds it now"
                raise LeadershipLost(f"lost the Lease {self._namespace}/{self._name}: {cause}")

    async def _attempt(self) -> bool:
        """Take or renew the Lease; whether it is ours now. Troubles are tried again."""
        try:
            held = await self._try()
        except ApiError as error:
            if not self.problem:
                log.warning("cannot reach the Lease", lease=self._name, problem=str(error))
            self.problem = str(error)
            return False
        self.problem = ""
        return held

    async def _try(self) -> bool:
        """Take or renew the Lease; whether it is ours now. Raises ApiError."""
        # Others may count from any moment between question and answer: we count from the first.
        began = clock_seconds()
        try:
            held = await self._take()
        except (AlreadyExists, Conflict):
            return False
        if held:
            self._renewed_at = began
        return held

    async def _take(self) -> bool:
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            written = {name: text for name, text in self._annotations().items() if text}
            meta = {"name": self._name, "namespace": self._namespace, "annotations": written}
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
            await self._create(body | {"spec": self._spec({})})
            self.holder, self.predecessor = self.identity, ""
            return True
        spec = lease.get("spec") or {}
        self.holder = str(spec.get("holderIdentity") or "")
        if not self._may_take(spec):
            return False
        is_new = self.holder != self.identity
        known = lease["metadata"].get("annotations") or {}
        wanted = self._annotations().items()
        changed = {name: text for name, text in wanted if is_new or known.get(name) != text}
        await self._write(lease, self._spec(spec), changed)
        if is_new:
            self.predecessor = self.holder
        self.holder = self.identity
        return True

    def _annotations(self) -> dict[str, str | None]:
        """Return what this replica says of itself; a null takes back what its predecessor said."""
        return {**_VERSION, ANNOTATION: self._client.malformed.text or None}

    async def _create(self, lease: Manifest) -> None:
        try:
            await self._client.create(LEASES, lease)
        except NotFound as error:
            missing = f"namespace {self._namespace} does not exist: create it ({error})"
            raise NotFound(error.status, error.reason, missing) from error

    def _may_take(self, spec: Manifest) -> bool:
        now = clock_seconds()
        renewal = (self.holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        at = now if renewal != self._seen.renewal else self._seen.at
        allowed = float(spec.get("leaseDurationSeconds") or self._timing.duration_seconds)
        self._seen = _Seen(renewal, at, at + allowed)
        return self.holder in {"", self.identity} or now >= self._seen.until

    def _spec(self, old: Manifest) -> Manifest:
        written = format_micro_time(utc_now())
        transitions = int(old.get("leaseTransitions") or 0)
        if old.get("holderIdentity") == self.identity:
            duration = round(self._timing.duration_seconds)
            return {"renewTime": written, "leaseDurationSeconds": duration}
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": round(self._timing.duration_seconds),
            "acquireTime": written,
            "renewTime": written,
            "leaseTransitions": (transitions + bool(old)) % _MOST_TRANSITIONS,
        }

    async def _write(
        self, lease: Manifest, spec: Manifest, annotations: Manifest | None = None
    ) -> None:
        meta: Manifest = {"resourceVersion": lease["metadata"]["resourceVersion"]}
        if annotations:
            meta["annotations"] = annotations
        body = {"metadata": meta, "spec": spec}
        await self._client.patch(LEASES, self._name, body, self._namespace)

    async def _release(self) -> None:
        """Give the Lease back, so that a successor need not wait; best effort."""
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(self._timing.renew_deadline_seconds / 5):
                while not await self._try_release():
                    pass

    async def _try_release(self) -> bool:
        lease = await self._client.get(LEASES, self._name, self._namespace)
        if (lease.get("spec") or {}).get("holderIdentity") == self.identity:
            try:
                await self._write(lease, {"holderIdentity": ""})
            except Conflict:  # a renewal that was under way has landed only now
                return False
        return True
