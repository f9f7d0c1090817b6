"""io: leadership by a Lease: of several replicas one works, the others wait (KEP-589).

What a replica sees of another is timed by its own clock, from the moment it saw the Lease change:
clocks of two machines are never compared. A leader that cannot renew stops before another begins.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import structlog

from ipuhub.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from ipuhub.kube.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.types import Manifest

log = structlog.get_logger(__name__)


class LeadershipLost(Exception):  # noqa: N818  # what happened, not a fault
    """The Lease could not be renewed in time: another replica may lead by now."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds: how long a silent leader keeps the Lease, how long a leader tries to renew before
    it stops, and the time between two tries. Each is shorter than the one before it."""

    duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0


@dataclass(slots=True)
class _Seen:
    """The Lease as last seen, and when its content last changed by our clock."""

    renewal: tuple[Any, ...] = ()
    at: float = 0.0


class LeaderElection:
    """One replica's part in the election for the Lease `namespace`/`name`.

    `identity` must differ between replicas. `is_leading` is for health and metrics.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        timing: LeaseTiming | None = None,
    ) -> None:
        self.is_leading = False
        self.holder = ""
        self.problem = ""
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._timing = timing or LeaseTiming()
        self._seen = _Seen()

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the Lease, then run `work` for as long as it is held; give it back at the end.

        Returns when `work` returns. Raises LeadershipLost, after `work` has been cancelled, and
        whatever `work` raises.
        """
        await self._acquire()
        log.info("leading", lease=self._name, identity=self._identity)
        working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            else:
                renewing.result()
        finally:
            for task in (working, renewing):
                task.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)
            if self.is_leading:
                self.is_leading = False
                await self._release()

    async def _acquire(self) -> None:
        told = ""
        while not await self._attempt():
            if self.holder and self.holder != told:
                told = self.holder
                log.info("standing by", lease=self._name, leader=told)
            await asyncio.sleep(self._timing.retry_seconds)
        self.is_leading = True

    async def _renew(self) -> None:
        now = asyncio.get_running_loop().time
        renewed = now()
        while True:
            await asyncio.sleep(self._timing.retry_seconds)
            left = self._timing.renew_deadline_seconds - (now() - renewed)
            try:
                async with asyncio.timeout(max(left, 0.0)):
                    held = await self._attempt()
            except TimeoutError:
                held = False
            if held:
                renewed = now()
            elif self.holder != self._identity or left <= self._timing.retry_seconds:
                self.is_leading = False
                why = self.problem or f"{self.holder or 'nobody'} holds it now"
                raise LeadershipLost(f"lost the Lease {self._namespace}/{self._name}: {why}")

    async def _attempt(self) -> bool:
        """Take or renew the Lease; whether it is ours now. Troubles are tried again."""
        try:
            held = await self._take()
        except (AlreadyExists, Conflict):
            return False
        except ApiError as error:
            if not self.problem:
                log.warning("cannot reach the Lease", lease=self._name, problem=str(error))
            self.problem = str(error)
            return False
        self.problem = ""
        return held

    async def _take(self) -> bool:
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            meta = {"name": self._name, "namespace": self._namespace}
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
            await self._create(body | {"spec": self._spec({})})
            self.holder = self._identity
            return True
        spec = lease.get("spec") or {}
        self.holder = str(spec.get("holderIdentity") or "")
        if not self._may_take(spec):
            return False
        await self._write(lease, self._spec(spec))
        self.holder = self._identity
        return True

    async def _create(self, lease: Manifest) -> None:
        try:
            await self._client.create(LEASES, lease)
        except NotFound as error:
            missing = f"namespace {self._namespace} does not exist: create it ({error})"
            raise NotFound(error.status, error.reason, missing) from error

    def _may_take(self, spec: Manifest) -> bool:
        now = asyncio.get_running_loop().time()
        renewal = (self.holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if renewal != self._seen.renewal:
            self._seen = _Seen(renewal, now)
        if self.holder in {"", self._identity}:
            return True
        allowed = float(spec.get("leaseDurationSeconds") or self._timing.duration_seconds)
        return now - self._seen.at >= allowed

    def _spec(self, old: Manifest) -> Manifest:
        written = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        transitions = int(old.get("leaseTransitions") or 0)
        if old.get("holderIdentity") == self._identity:
            duration = round(self._timing.duration_seconds)
            return {"renewTime": written, "leaseDurationSeconds": duration}
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": round(self._timing.duration_seconds),
            "acquireTime": written,
            "renewTime": written,
            "leaseTransitions": transitions + bool(old),
        }

    async def _write(self, lease: Manifest, spec: Manifest) -> None:
        version = lease["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "spec": spec}
        await self._client.patch(LEASES, self._name, body, self._namespace)

    async def _release(self) -> None:
        """Give the Lease back, so that a successor need not wait; best effort."""
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(self._timing.retry_seconds):
                lease = await self._client.get(LEASES, self._name, self._namespace)
                if (lease.get("spec") or {}).get("holderIdentity") == self._identity:
                    await self._write(lease, {"holderIdentity": ""})
