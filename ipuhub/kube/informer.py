"""io: a local copy of a set of objects that follows the API server, with indexes."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeAlias

import structlog

from ipuhub.backoff import jitter
from ipuhub.kube.errors import ApiError, Gone
from ipuhub.kube.watch import Pace, Scope, Watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest, Resource, WatchEvent

ObjectKey: TypeAlias = tuple[str, str]
"""(namespace, name); the namespace of cluster-wide objects is the empty string."""


def key_of(manifest: Manifest) -> ObjectKey:
    """Return the key of an object."""
    metadata = manifest["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


class IndexedStore:
    """A map of objects with indexes that follow each change.

    An indexer returns the values under which an object is to be found. It must not raise: it
    sees whatever the API server accepted.
    """

    def __init__(self, indexers: Mapping[str, Callable[[Manifest], Iterable[str]]]) -> None:
        self._indexers = dict(indexers)
        self._objects: dict[ObjectKey, Manifest] = {}
        self._values: dict[ObjectKey, list[tuple[str, str]]] = {}
        # Dicts keep insertion order, which makes answers repeatable.
        self._index: dict[tuple[str, str], dict[ObjectKey, Manifest]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: ObjectKey) -> Manifest | None:
        return self._objects.get(key)

    def all(self) -> list[Manifest]:
        return list(self._objects.values())

    def by_index(self, index: str, value: str) -> list[Manifest]:
        """Objects for which indexer `index` gave `value`. Raises KeyError for no such indexer."""
        if index not in self._indexers:
            raise KeyError(f"no index {index!r}; there are {sorted(self._indexers)}")
        return list(self._index.get((index, value), {}).values())

    def put(self, manifest: Manifest) -> None:
        """Store an object and replace its previous version."""
        key = key_of(manifest)
        self._unindex(key)
        self._objects[key] = manifest
        values = [
            (index, value)
            for index, indexer in self._indexers.items()
            for value in dict.fromkeys(indexer(manifest))
        ]
        self._values[key] = values
        for entry in values:
            self._index.setdefault(entry, {})[key] = manifest

    def remove(self, key: ObjectKey) -> Manifest | None:
        """Forget an object; return it, or None."""
        self._unindex(key)
        return self._objects.pop(key, None)

    def _unindex(self, key: ObjectKey) -> None:
        for entry in self._values.pop(key, ()):
            found = self._index[entry]
            del found[key]
            if not found:
                del self._index[entry]


if TYPE_CHECKING:
    Handler: TypeAlias = Callable[[Manifest | None, Manifest | None], None]
log = structlog.get_logger(__name__)
_PAGE = 200  # objects: a full page needs many times the memory of its trimmed objects


def _version_of(manifest: Manifest) -> tuple[object, object]:
    metadata = manifest["metadata"]
    return metadata.get("uid"), metadata.get("resourceVersion")


class Informer:
    """The objects of one resource, namespace and selection, in a local copy.

    Objects are shared: read them, never change them. `managedFields` are dropped, `transform` may
    drop more. Neither indexers nor `transform` may raise. `must_relist` is called before each
    watch: True if the server converts stored versions differently than before, so that all objects
    are listed again. `relists` counts lists, the first included; `problem` is why the copy is not
    current (empty: it is).
    """

    def __init__(  # noqa: PLR0913  # the scope's own parts, flat for its many callers
        self,
        client: KubeClient,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, Callable[[Manifest], Iterable[str]]] | None = None,
        transform: Callable[[Manifest], Manifest] | None = None,
        must_relist: Callable[[], Awaitable[bool]] | None = None,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.relists = 0
        self._client = client
        self._scope = Scope(resource, namespace, label_selector, field_selector)
        self._transform = transform
        self._must_relist = must_relist
        self._is_outdated = False
        self._pace = pace or Pace()
        self._clock = clock
        self._store = IndexedStore(indexers or {})
        self._handlers: list[Handler] = []
        self._synced = asyncio.Event()
        self._heard_at: float | None = None
        self._problem = ""
        self._watch: Watch | None = None
        self._listed_version = ""

    # ------------------------------------------------------------------ what it knows

    @property
    def synced(self) -> bool:
        """Return whether a first list has been read; stays true while the server is unavailable."""
        return self._synced.is_set()

    @property
    def resource_version(self) -> str:
        """The version up to which this copy is complete."""
        return self._watch.resource_version if self._watch else self._listed_version

    @property
    def problem(self) -> str:
        """Return why the copy is not current, in one sentence; empty: it is."""
        return self._problem or (self._watch.problem if self._watch else "")

    def stale_seconds(self, now: float) -> float:
        """Seconds from the server's last sign of life to `now` (of the clock); inf before any.

        A quiet watch reaches about 70 s; more means that the server is unavailable.
        """
        return float("inf") if self._heard_at is None else max(now - self._heard_at, 0.0)

    def get(self, namespace: str, name: str) -> Manifest | None:
        """Return an object or None; the namespace of cluster-wide objects is the empty string."""
        return self._store.get((namespace, name))

    def by_index(self, index: str, value: str) -> list[Manifest]:
        """Objects for which indexer `index` gave `value`."""
        return self._store.by_index(index, value)

    def all(self) -> list[Manifest]:
        return self._store.all()

    def __len__(self) -> int:
        return len(self._store)

    # ------------------------------------------------------------------ following

    def add_handler(self, handler: Handler) -> None:
        """Call `handler(old, new)` after each change; old is None on arrival, new on removal.

        Known objects are replayed. A handler must be quick; what it raises is logged.
        """
        self._handlers.append(handler)
        for manifest in self._store.all():
            self._call(handler, None, manifest)

    async def wait_synced(self, timeout_seconds: float | None = None) -> None:
        """Wait for the first list. Raises TimeoutError, with the reason, after the given time."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._synced.wait()
        except TimeoutError as error:
            problem = self.problem or "no answer yet"
            raise TimeoutError(f"{self._scope.resource.plural} not listed: {problem}") from error

    async def run(self) -> None:
        """List, watch, and list again when the watch cannot go on; until cancelled.

        No change is lost: each watch continues from the version of the list before it.
        """
        now = asyncio.get_running_loop().time
        failures = 0
        while True:
            listed_at = None
            try:
                await self._relist()
                listed_at = now()
                await self._follow()
            except ApiError as error:
                # Time spent waiting for an answer is no sign of health.
                healthy = listed_at is not None and now() - listed_at >= self._pace.healthy_seconds
                failures = 0 if healthy else failures + 1
                is_due = listed_at is not None and self._is_outdated
                if isinstance(error, Gone) and (healthy or is_due):
                    log.info("watch expired", resource=self._scope.resource.plural, why=str(error))
                    continue
                await self._pause(failures, error)

    async def _pause(self, failures: int, error: ApiError) -> None:
        if not self._problem:
            log.warning("cannot follow", resource=self._scope.resource.plural, problem=str(error))
        self._problem = str(error)
        spread = jitter()
        pause = self._pace.backoff.delay_seconds(max(failures - 1, 0), spread)
        await asyncio.sleep(max(pause, error.retry_after or 0.0))

    async def _relist(self) -> None:
        scope = self._scope
        found = await self._client.list(
            scope.resource,
            scope.namespace,
            label_selector=scope.label_selector,
            field_selector=scope.field_selector,
            limit=_PAGE,
            keep=self._trim if self._is_outdated else self._known,
        )
        self.relists += 1
        self._watch = None
        self._listed_version = found.resource_version
        self._heard()
        present = {key_of(manifest) for manifest in found.items}
        for manifest in self._store.all():
            if key_of(manifest) not in present:
                self._emit(self._store.remove(key_of(manifest)), None)
        for manifest in found.items:
            self._take(manifest)
        self._is_outdated = False
        if self._problem:
            log.info("following again", resource=scope.resource.plural)
            self._problem = ""
        self._synced.set()

    async def _follow(self) -> None:
        self._watch = Watch(
            self._client,
            self._scope,
            self._listed_version,
            pace=self._pace,
            on_heard=self._heard,
            before_open=self._check,
        )
        async with aclosing(self._watch.events()) as events:
            async for event in events:
                self._apply(event)

    async def _check(self) -> None:
        """Raise Gone if the server now shows objects in another form than the watch brought
        before."""
        if self._must_relist is not None and await self._must_relist():
            self._is_outdated = True
            raise Gone(410, "Expired", "the server shows the objects otherwise than before")

    def _apply(self, event: WatchEvent) -> None:
        if event.type in {"ADDED", "MODIFIED"}:
            self._take(self._trim(event.object))
        elif event.type == "DELETED":
            # The event shows the last state (who ended when), which the copy may not have.
            last = self._trim(event.object)
            if self._store.remove(key_of(last)) is not None:
                self._emit(last, None)

    def _take(self, new: Manifest) -> None:
        key = key_of(new)
        old = self._store.get(key)
        if old is not None:
            before, after = old["metadata"], new["metadata"]
            if before.get("uid") != after.get("uid"):
                # Deleted and made again unseen: two objects that share a name.
                self._emit(self._store.remove(key), None)
                old = None
            elif _version_of(old) == _version_of(new) and not (self._is_outdated and old != new):
                return
        self._store.put(new)
        self._emit(old, new)

    def _known(self, manifest: Manifest) -> Manifest:
        """Return the object to keep for a listed object: the stored copy where it has not
        changed."""
        listed = self._trim(manifest)
        old = self._store.get(key_of(listed))
        return old if old is not None and _version_of(old) == _version_of(listed) else listed

    def _trim(self, manifest: Manifest) -> Manifest:
        manifest["metadata"].pop("managedFields", None)
        return self._transform(manifest) if self._transform else manifest

    def _heard(self) -> None:
        self._heard_at = self._clock()

    def _emit(self, old: Manifest | None, new: Manifest | None) -> None:
        for handler in self._handlers:
            self._call(handler, old, new)

    def _call(self, handler: Handler, old: Manifest | None, new: Manifest | None) -> None:
        try:
            handler(old, new)
        except Exception:  # one faulty handler must not stop the copy that all others read
            log.exception("handler failed", resource=self._scope.resource.plural)
