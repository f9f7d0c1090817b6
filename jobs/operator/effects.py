"""io: the writers through which a plan takes effect.

The next plan must see our own writes: a plan from a cache without the last write would repeat or
undo it. Also the dry runs of a job's pods before it gets IPUs.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ipuhub.kube.errors import AlreadyExists, ApiError
from ipuhub.kube.resources import SECRETS
from jobs.builders.pods import build_key_secret
from jobs.ipujob.names import RESOURCE_OF, Kind, is_being_deleted, metadata, uid_of
from jobs.operator.statuskeeper import StatusKeeper

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.informer import Informer
    from jobs.ipujob.names import JobKey, Manifest
    from jobs.operator.actions import StoreKey, TryPod
    from jobs.operator.eventwriter import EventWriter
    from jobs.operator.observer import Caches
    from jobs.operator.partitions import PartitionFacts, Partitions


@dataclass(frozen=True, slots=True)
class Effects:
    """The systems in which a plan takes effect."""

    client: KubeClient
    partitions: Partitions
    recorder: EventWriter
    caches: Caches
    facts: PartitionFacts
    expectations: Expectations
    now: Callable[[], datetime]
    keeper: StatusKeeper = field(default_factory=StatusKeeper)


# A watch that has lost something is reopened within 90 s: a plan made from a copy that is known
# to be wrong could start a command twice, so that waiting for it is better.
TIMEOUT_SECONDS = 120.0
MOST_GONE = 4096  # objects seen to go of late; an answer comes within seconds of its event


@dataclass(frozen=True, slots=True)
class _Expectation:
    cache: Informer
    namespace: str
    name: str
    uid: str
    resource_version: str  # empty: a deletion
    since: float
    is_new: bool


class Expectations:
    """The own writes that the caches do not show yet, by job UID. `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waiting: dict[str, list[_Expectation]] = {}
        self._gone: dict[str, None] = {}  # UIDs, oldest first

    def written(
        self, key: str, cache: Informer, manifest: Manifest, *, is_new: bool = False
    ) -> None:
        """We changed an object, or created it (`is_new`); `manifest` is the server's answer."""
        meta = metadata(manifest)
        if meta.get("resourceVersion") and uid_of(manifest) not in self._gone:
            self._add(key, cache, manifest, str(meta["resourceVersion"]), is_new=is_new)

    def deleted(self, key: str, cache: Informer, namespace: str, name: str, uid: str) -> None:
        """Note that this process requested an object's deletion."""
        gone = {"metadata": {"namespace": namespace, "name": name, "uid": uid}}
        self._add(key, cache, gone, "")

    def gone(self, key: str, uid: str) -> None:
        """A copy has seen an object go: it will not show it any more, even where the answer to its
        creation is still on the way."""
        self._gone[uid] = None
        if len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]
        if key in self._waiting:
            self._waiting[key] = [e for e in self._waiting[key] if e.uid != uid]

    def seconds_left(self, key: str) -> float:
        """Return the most seconds to wait for the caches; 0: they show all our writes, or never
        will."""
        now = self._monotonic()
        unmet = [
            e
            for e in self._waiting.get(key, ())
            if now - e.since < TIMEOUT_SECONDS and not _is_met(e)
        ]
        if unmet:
            self._waiting[key] = unmet
            return TIMEOUT_SECONDS - (now - min(e.since for e in unmet))
        self._waiting.pop(key, None)
        return 0.0

    def _add(
        self, key: str, cache: Informer, manifest: Manifest, version: str, *, is_new: bool = False
    ) -> None:
        meta = metadata(manifest)
        expectation = _Expectation(
            cache,
            meta.get("namespace", ""),
            meta.get("name", ""),
            uid_of(manifest),
            version,
            self._monotonic(),
            is_new,
        )
        self._waiting.setdefault(key, []).append(expectation)


def _is_met(expectation: _Expectation) -> bool:
    found = expectation.cache.get(expectation.namespace, expectation.name)
    if not expectation.resource_version:
        return (
            found is None
            or bool(expectation.uid and uid_of(found) != expectation.uid)
            or is_being_deleted(found)
        )
    # An object shown at an older version has missed an event, however far the copy says it is.
    seen = found and metadata(found).get("resourceVersion")
    if expectation.is_new and not seen:
        return False  # nor has it been seen to go: the event of its making was lost
    return _reaches(str(seen or expectation.cache.resource_version), expectation.resource_version)


def _reaches(version: str, wanted: str) -> bool:
    if version.isdigit() and wanted.isdigit():
        return int(version) >= int(wanted)
    return version == wanted


async def store_key(effects: Effects, job: JobKey, action: StoreKey) -> None:
    """Have a key made for the pods of an attempt, keep it in a Secret of the job, and say so.

    After a crash on the way another key is made, which ends the first key; its Secret stays
    until the job is deleted. Raises ApiError, or an error of the proxy.
    """
    asked_at = effects.now()
    key = await effects.partitions.make_key(job.uid, action.instance, action.attempt)
    if key is None:
        fact = replace(effects.facts.of(job.uid)[action.instance], pod_key="")
    else:
        await effects.client.create(SECRETS, build_key_secret(job, key))
        fact = await effects.partitions.store_key(job.uid, action.instance, action.attempt, key.id)
    effects.facts.note(job.uid, fact, asked_at)


REMEMBERED_SECONDS = 10.0  # a burst of equal jobs asks once
MOST_REMEMBERED = 1000
_NO_DRY_RUN = "does not support dry run"  # a webhook with side effects: the result is unknown


class PodDryRuns:
    """Tries pods by dry runs, which store nothing.

    A recently accepted pod is not tried again: if a quota is used up meanwhile, the pods themselves
    are refused.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._taken: dict[str, float] = {}
        self._under_way: dict[str, asyncio.Event] = {}

    async def judge(self, action: TryPod) -> None:
        """Raise the ApiError by which the server would refuse the pod.

        Of a burst of equal pods only the first is tried. If the server refuses it, each pod is
        tried, for its own message.
        """
        first = self._under_way.get(action.key)
        if first is not None:
            await first.wait()
            await self._judge(action)
            return
        done = self._under_way[action.key] = asyncio.Event()
        try:
            await self._judge(action)
        finally:
            del self._under_way[action.key]
            done.set()

    async def _judge(self, action: TryPod) -> None:
        now = time.monotonic()
        if now - self._taken.get(action.key, float("-inf")) < REMEMBERED_SECONDS:
            return
        try:
            await self._client.try_create(RESOURCE_OF[Kind.POD], action.manifest)
        except AlreadyExists:
            pass  # a pod of an earlier attempt, or another owner's: its creation will show
        except ApiError as error:
            if _NO_DRY_RUN not in error.message:
                raise
        if len(self._taken) >= MOST_REMEMBERED:
            self._taken.clear()
        self._taken[action.key] = now
