"""io: partitions that the tracker lacks: a person decides for each to adopt or remove it.

The sweep never touches a partition without an entry, because it may belong to a person or to
another cluster. Here a person decides. Everything is checked again after the answer: a partition
that the proxy has made meanwhile is in the tracker by then and is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ipuhub.kube.errors import NotFound
from ipuhub.kube.resources import Resource
from ipuhub.partition import Phase
from partitions.errors import UnknownPartition
from partitions.proxy.drift import Claim, UntrackedPartition
from partitions.proxy.lifecycle import TrackerEntry, release_error
from partitions.proxy.tracker import LARGEST, next_serial
from partitions.proxy.vipuapi import is_under_removal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from ipuhub.kube.client import KubeClient
    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.drift import Drift
    from partitions.proxy.fleet import Fleet
    from partitions.proxy.tracker import Draft
    from partitions.proxy.trackerstore import TrackerStore

    Manifest = Mapping[str, Any]

IPUJOBS: Final = Resource("graphcore.ai", "v1alpha1", "ipujobs", "IPUJob")


_SIZES: Final = ("jobInstances", "ipusPerJobInstance", "modelReplicas", "ipusPerModelReplica")
_OF_STATUS: Final[Mapping[str, Mapping[str, type]]] = {
    "instances": {"index": int, "attempt": int},
    "partitions": {"instance": int, "id": str, "controller": str, "state": str},
}
"""Fields of the entries of two lists, by the types that the CRD gives them."""


async def read_jobs(client: KubeClient) -> list[dict[str, Any]]:
    """Return all IPUJobs, of each only whose it is, its sizes and its partitions: tens of thousands
    of pod templates would not fit into the memory of a command's pod. Raises ApiError."""
    return (await client.list(IPUJOBS, keep=_needed)).items


async def read_claims(client: KubeClient) -> dict[tuple[str, str], Claim]:
    """Return the partitions that jobs' statuses claim, by controller and id. Raises ApiError."""
    try:
        jobs = await read_jobs(client)
    except NotFound:
        return {}  # IPUJobs are not installed: there are no owners
    return {(where, partition): claim for job in jobs for where, partition, claim in _claims(job)}


def strangers(
    drift: Drift,
    views: Iterable[ControllerView],
    claims: Mapping[tuple[str, str], Claim],
    entries: Iterable[TrackerEntry],
) -> list[UntrackedPartition]:
    """Return partitions without an entry; a claim counts if its holder has no other partition."""
    holders = {entry.holder for entry in entries if entry.phase is not Phase.RELEASED}
    listed = {(v.spec.address, p.id): (v.spec.label, p.size) for v in views for p in v.partitions}
    found = []
    for controller, partition in drift.untracked:
        claim = claims.get((controller, partition))
        if claim is not None and (claim.uid, claim.instance) in holders:
            claim = None
        label, size = listed[controller, partition]
        found.append(UntrackedPartition(controller, label, partition, size, claim))
    return found


class Repair:
    """Adopts and removes; `now` gives the time as aware UTC."""

    def __init__(self, store: TrackerStore, fleet: Fleet, now: Callable[[], datetime]) -> None:
        self._store = store
        self._fleet = fleet
        self._now = now

    async def adopt(self, stranger: UntrackedPartition, claim: Claim) -> None:
        """Enter it as held by `claim` from now on; the proxy then asks whether it is ACTIVE.

        Raises UnknownPartition where tracker or holder have changed, the partition is being
        removed, or its nodes are not known, TrackerUnavailable and VipuError.
        """
        if not stranger.label:  # the job's next pods would run on any node
            raise UnknownPartition(
                f"{stranger.controller} is off the list of controllers, and no entry tells the "
                "label of its nodes: add it to the list again"
            )
        if await is_under_removal(self._fleet.api(stranger.controller), stranger.id):
            raise UnknownPartition(f"{stranger.controller} is removing {stranger.id}")
        await self._store.refresh()

        def change(draft: Draft) -> None:
            last, now = draft.newest((claim.uid, claim.instance)), self._now()
            _refuse_known(draft.entries(), stranger)
            if last is not None and last.phase is not Phase.RELEASED:
                raise UnknownPartition(f"{claim.namespace}/{claim.name} has {last.id} by now")
            draft.put(
                TrackerEntry(
                    uid=claim.uid,
                    instance=claim.instance,
                    serial=next_serial(last, now),
                    namespace=claim.namespace,
                    name=claim.name,
                    attempt=claim.attempt,
                    id=stranger.id,
                    size=stranger.size,
                    phase=Phase.CREATING,
                    controller=stranger.controller,
                    label=stranger.label,
                    reserved_at=now,
                )
            )

        await self._store.write(change)

    async def force(self, entry: TrackerEntry) -> None:
        """Remove a partition of a job that its controller does not remove otherwise; the proxy then
        ends the release. Raises UnknownPartition if its release has already ended,
        TrackerUnavailable and VipuError."""
        await self._store.refresh()
        now = self._store.tracker.entries.get(entry.key)
        if now is None or not release_error(now) or now.id != entry.id:
            raise UnknownPartition(f"{entry.id} is not in the same state by now")
        await self._fleet.api(entry.controller).remove_partition(entry.id, force=True)

    async def remove(self, stranger: UntrackedPartition) -> None:
        """Remove it from its controller. Raises UnknownPartition where an entry has it by now,
        TrackerUnavailable and VipuError."""
        await self._store.refresh()
        _refuse_known(self._store.tracker.entries.values(), stranger)
        await self._fleet.api(stranger.controller).remove_partition(stranger.id)


def _refuse_known(entries: Iterable[TrackerEntry], stranger: UntrackedPartition) -> None:
    for entry in entries:
        is_same = (entry.controller, entry.id) == (stranger.controller, stranger.id)
        if is_same and entry.phase is not Phase.RELEASED:
            raise UnknownPartition(f"the tracker has {stranger.id} by now; it is left alone")


def _claims(job: Manifest) -> Iterator[tuple[str, str, Claim]]:
    meta, status = job["metadata"], job["status"]
    attempts = {entry.get("index"): entry.get("attempt", 0) for entry in status["instances"]}
    for held in status["partitions"]:
        if held.get("state") == Phase.RELEASED or not {"id", "controller"} <= held.keys():
            continue
        instance = held.get("instance", 0)
        claim = Claim(
            meta["uid"], meta["namespace"], meta["name"], instance, attempts.get(instance, 0)
        )
        yield held["controller"], held["id"], claim


def _needed(job: Manifest) -> dict[str, Any]:
    """Keep what these commands read. A status of wrong types, which a CRD without a schema takes,
    claims nothing: the operator reports it and writes it again."""
    spec, status = _mapping(job.get("spec")), _mapping(job.get("status"))
    return {
        "metadata": {name: job["metadata"][name] for name in ("uid", "namespace", "name")},
        "spec": {name: spec[name] for name in _SIZES if name in spec},
        "status": {
            list_name: [*_entries(status.get(list_name), fields)]
            for list_name, fields in _OF_STATUS.items()
        },
    }


def _entries(stored: object, fields: Mapping[str, type]) -> Iterator[dict[str, Any]]:
    for each in stored if isinstance(stored, list) else ():
        if isinstance(each, dict):
            known = {name: each[name] for name in fields if each.get(name) is not None}
            if all(_is_storable(value, fields[name]) for name, value in known.items()):
                yield known


def _is_storable(value: object, kind: type) -> bool:
    """Return whether the tracker could hold the value: an adopted partition becomes an entry."""
    if type(value) is not kind:
        return False
    return not isinstance(value, int) or 0 <= value <= LARGEST


def _mapping(stored: object) -> dict[str, Any]:
    return stored if isinstance(stored, dict) else {}
