"""io: the tracker's only writer: all pending changes go out as one merge patch per ConfigMap."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import structlog

from ipuhub.backoff import Backoff, jitter
from ipuhub.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Unreachable
from ipuhub.kube.resources import CONFIG_MAPS
from ipuhub.process.leadership import fenced
from partitions.errors import TrackerUnavailable
from partitions.proxy import metrics
from partitions.proxy.tracker import Draft, Shard, Tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest


log = structlog.get_logger(__name__)
LABEL: Final = "ipuhub.io/tracker"
_T = TypeVar("_T")
_BACKOFF: Final = Backoff(first_seconds=0.2, max_seconds=5.0)
_NOT_READ: Final = "not read yet"
_ENDS: Final = "this replica is shutting down"


@dataclass(eq=False, slots=True)
class _Waiting(Generic[_T]):
    """A change, and who waits for it."""

    change: Callable[[Draft], _T]
    done: asyncio.Future[_T]


_Outcomes: TypeAlias = dict[_Waiting[Any], tuple[Any, Exception | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The tracker's place, and how long a caller waits for a write before the answer is to retry.

    Writes begin `gather_seconds` apart on average: what comes in between goes out together, since
    a patch costs the API server a whole ConfigMap, whatever it changes. After a quiet moment
    `at_once` of them need not wait, as many as a single partition takes until it is ACTIVE.
    """

    namespace: str
    name: str = "ipu-partitions-tracker"
    patience_seconds: float = 5.0
    gather_seconds: float = 0.05
    at_once: int = 3
    backoff: Backoff = _BACKOFF


class TrackerStore:
    """The tracker in memory and on the API server.

    `run` loads and then writes, until it is cancelled; everybody else reads `tracker` and hands
    changes to `write`. A change is a pure function: it is called again when another writer has
    changed the tracker meanwhile, or when the fate of a patch is unknown.

    `left_seconds` says for how long no other replica can lead. A ConfigMap refuses writes from an
    old copy, but each only for itself: a replica that stood still could reserve an id in a
    ConfigMap that its successor has reserved in another.
    """

    def __init__(
        self, client: KubeClient, options: StoreOptions, left_seconds: Callable[[], float]
    ) -> None:
        self._client = fenced(client, {"list", "get"}, left_seconds, Unreachable, Unreachable)
        self._options = options
        self._tracker: Tracker | None = None
        self._queue: list[_Waiting[Any]] = []
        self._wakeup = asyncio.Event()
        self._stale = True
        self._quiet_at = 0.0  # when the writes so far will have had their time
        self._problem = _NOT_READ
        self._has_said = False
        self._is_running = False
        self._is_closed = False

    @property
    def is_read(self) -> bool:
        """Return whether there is a `tracker`; not before the first list, nor on a standby."""
        return self._tracker is not None

    @property
    def tracker(self) -> Tracker:
        """The last state known to be written; raises TrackerUnavailable before the first."""
        if self._tracker is None:
            raise TrackerUnavailable(f"the partition tracker is not available: {self._problem}")
        return self._tracker

    @property
    def problem(self) -> str:
        """Return why the tracker cannot be read or written now; empty: it can."""
        return self._problem

    async def write(self, change: Callable[[Draft], _T]) -> _T:
        """Have `change` written and return its result.

        Raises what `change` raises, else TrackerUnavailable: then it may or may not be written.
        """
        if self._is_closed:
            raise TrackerUnavailable(f"the partition tracker cannot be written: {_ENDS}")
        return await self._have_written(change)

    async def finish(self) -> None:
        """Have all waiting changes written, and take no more of them; raises TrackerUnavailable.

        Where `run` is not running nothing waits, or nothing can be done about it.
        """
        self._is_closed = True
        if self._is_running:
            await self._have_written(lambda _: None)  # it comes behind all that wait

    async def _have_written(self, change: Callable[[Draft], _T]) -> _T:
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(change, done)
        self._queue.append(waiting)
        self._wakeup.set()
        try:
            async with asyncio.timeout(self._options.patience_seconds):
                return await done
        except TimeoutError:
            text = self._problem or "the API server is slow"
            raise TrackerUnavailable(f"the partition tracker cannot be written: {text}") from None

    async def refresh(self) -> None:
        """Read the tracker again, to see what others did to it."""
        self._stale = True
        await self.write(lambda _: None)

    async def run(self) -> None:
        """Load the tracker, then write changes; until cancelled. Then it drops its copy: another
        proxy may write from now on, and a new term must not use stale entries."""
        self._wakeup.set()
        self._is_running = True
        try:
            await self._write_on()
        finally:
            self._is_running = False
            self._tracker, self._stale, self._problem = None, True, _NOT_READ

    async def _write_on(self) -> None:
        failures = 0
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            try:
                await self._write_waiting()
            except ApiError as error:
                self._note(error)
                self._stale = True
                pause = self._options.backoff.delay_seconds(failures, jitter())
                failures += 1
                await asyncio.sleep(max(pause, error.retry_after or 0.0))
                self._wakeup.set()
            else:
                failures = 0
                self._recovered()

    async def _write_waiting(self) -> None:
        """Write all waiting changes; changes of callers that gave up are dropped."""
        while True:
            await self._gather()
            if self._stale:
                self._stale = False  # before reading: a refresh asked for meanwhile reads again
                self._tracker = await self._read()
            batch = self._queue = [change for change in self._queue if not change.done.done()]
            outcomes, draft = _plan(self.tracker, tuple(batch))
            try:
                await self._send(draft, len(batch))
            except (Conflict, AlreadyExists) as error:
                # Another client writes, or removed a ConfigMap: read, then decide again.
                log.info("tracker changed by someone else", what=error.message)
                metrics.CONFLICTS.inc()
                self._stale = True
                continue
            self._queue = [change for change in self._queue if change not in outcomes]
            _tell(outcomes)
            if not self._queue and not self._stale:
                return

    async def _gather(self) -> None:
        """Let more changes come, when the last changes have just gone out."""
        allowed = (self._options.at_once - 1) * self._options.gather_seconds
        pause = self._quiet_at - allowed - asyncio.get_running_loop().time()
        if pause > 0 and not self._stale:
            await asyncio.sleep(pause)

    async def _send(self, draft: Draft, changes: int) -> None:
        patches = draft.patches()
        shards = dict(self.tracker.shards)
        deleted = {name for name, shard in shards.items() if not shard.resource_version}
        if not patches and not deleted:
            return
        now = asyncio.get_running_loop().time()
        self._quiet_at = max(self._quiet_at, now) + self._options.gather_seconds
        began, before = time.perf_counter(), self.tracker
        for name in [*patches, *sorted(deleted - patches.keys())]:
            shard = shards.get(name) or Shard(name, "")
            patch = patches.get(name, {})
            answer = await self._send_one(shard, patch)
            version = answer["metadata"]["resourceVersion"]
            shards[name] = shard.with_changes(patch, version)
        self._tracker = draft.committed(shards)
        metrics.BATCH.observe(changes)
        metrics.WRITE_SECONDS.observe(time.perf_counter() - began)
        for key in (key for patch in patches.values() for key in patch):
            metrics.count_change(before.entries.get(key), self._tracker.entries.get(key))

    async def _send_one(self, shard: Shard, changes: dict[str, str | None]) -> Manifest:
        where = self._options.namespace
        labels = {LABEL: self._options.name}
        if shard.resource_version:
            body: Manifest = {
                "metadata": {"resourceVersion": shard.resource_version},
                "data": changes,
            }
            try:
                return await self._client.patch(CONFIG_MAPS, shard.name, body, where)
            except NotFound as error:
                raise Conflict(409, "Deleted", f"{shard.name} was deleted") from error
        body = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {"name": shard.name, "namespace": where, "labels": labels},
            "data": dict(shard.with_changes(changes, "").data),
        }
        return await self._client.create(CONFIG_MAPS, body, where)

    async def _read(self) -> Tracker:
        name, where = self._options.name, self._options.namespace
        found = await self._client.list(CONFIG_MAPS, where, label_selector=f"{LABEL}={name}")
        shards = {shard.name: shard for shard in map(_shard_of, found.items)}
        if name not in shards:
            first = await self._adopt_first()
            if first is not None:
                shards[name] = first
        tracker = Tracker.read(name, [*shards.values(), *self._vanished(shards.keys())])
        if tracker.unreadable != (self._tracker.unreadable if self._tracker else frozenset()):
            log.warning("tracker has unreadable entries", keys=sorted(tracker.unreadable))
        return tracker

    async def _adopt_first(self) -> Shard | None:
        """The first ConfigMap without our label, which a chart or an earlier product made."""
        name, where = self._options.name, self._options.namespace
        try:
            await self._client.get(CONFIG_MAPS, name, where)
        except NotFound:
            return None
        label = {"metadata": {"labels": {LABEL: name}}}
        return _shard_of(await self._client.patch(CONFIG_MAPS, name, label, where))

    def _vanished(self, present: Collection[str]) -> list[Shard]:
        """ConfigMaps that another client deleted: their partitions are still held."""
        if self._tracker is None:
            return []
        gone = [s for name, s in self._tracker.shards.items() if name not in present]
        for shard in gone:
            if shard.resource_version:
                log.warning("tracker ConfigMap was deleted; it is written again", name=shard.name)
        return [Shard(shard.name, "", shard.data) for shard in gone]

    def _note(self, error: ApiError) -> None:
        self._problem = error.message or error.reason
        if not self._has_said:
            log.warning("tracker unavailable, retrying", problem=self._problem)
        self._has_said = True

    def _recovered(self) -> None:
        if self._problem:
            log.info("tracker available", entries=len(self.tracker.entries))
        self._problem, self._has_said = "", False


def _plan(tracker: Tracker, batch: tuple[_Waiting[Any], ...]) -> tuple[_Outcomes, Draft]:
    """Make all changes on one draft; changes raise before they put anything."""
    draft = Draft(tracker)
    outcomes: _Outcomes = {}
    for waiting in batch:
        try:
            outcomes[waiting] = (waiting.change(draft), None)
        except Exception as error:  # noqa: BLE001  # goes to its caller; the writer must live
            outcomes[waiting] = (None, error)
    return outcomes, draft


def _tell(outcomes: _Outcomes) -> None:
    for waiting, (result, error) in outcomes.items():
        if waiting.done.done():
            continue
        if error is not None:
            waiting.done.set_exception(error)
        else:
            waiting.done.set_result(result)


def _shard_of(manifest: Manifest) -> Shard:
    metadata = manifest["metadata"]
    return Shard(metadata["name"], metadata["resourceVersion"], manifest.get("data") or {})
