"""io: the garbage collector: ownerReferences in all three propagation policies."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from devcluster.status import StatusError
from devcluster.storage.metadata import FOREGROUND, ORPHAN, DeleteOptions, without_finalizer
from devcluster.storage.objects import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from devcluster.schemas.kinds import Kind
    from devcluster.storage.objects import Objects
    from devcluster.storage.store import Change, Item

Place = tuple[str, str, str]
"""(bucket, namespace, name)."""
Body = dict[str, Any]
_DONE: Final = {404, 409}


class GarbageCollector:
    """Deletes objects without a remaining owner, and carries out orphan and foreground deletions.

    Writes queue objects to check; `run_once` checks each again.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects, self._store = objects, objects.store
        self._dependents: dict[str, set[Place]] = defaultdict(set)
        self._places: dict[str, Place] = {}
        # Dictionaries, not sets: the order of events is the order of work.
        self.pending: dict[Place, None] = {}
        for bucket in self._store.buckets():
            for item in self._store.items(bucket):
                self._add((bucket, *item.key), item.body)
        self._store.listeners.append(self._on_change)

    def run_once(self) -> None:
        """Work until nothing is left to look at."""
        while self.pending:
            place = next(iter(self.pending))
            del self.pending[place]
            item = self._store.get(*place)
            if item is None:
                continue
            try:
                self._process(place, item)
            except StatusError as error:
                if error.code not in _DONE:
                    raise

    def _on_change(self, change: Change) -> None:
        place = (change.bucket, *change.item.key)
        if change.previous is not None:
            self._forget(place, change.previous.body)
        if change.type != "DELETED":
            self._add(place, change.item.body)
            return
        uid = change.item.body["metadata"]["uid"]
        self.pending.update(dict.fromkeys(sorted(self._dependents.get(uid, ()))))

    def _add(self, place: Place, body: Body) -> None:
        metadata = body["metadata"]
        self._places[metadata["uid"]] = place
        for owner in metadata.get("ownerReferences") or ():
            self._dependents[owner["uid"]].add(place)
        if metadata.get("ownerReferences") or _is_waiting(body):
            self.pending[place] = None

    def _forget(self, place: Place, body: Body) -> None:
        self._places.pop(body["metadata"]["uid"], None)
        for owner in body["metadata"].get("ownerReferences") or ():
            found = self._dependents[owner["uid"]]
            found.discard(place)
            if not found:
                del self._dependents[owner["uid"]]
            if owner["uid"] in self._places:
                # Its owner may have waited for just this object.
                self.pending[self._places[owner["uid"]]] = None

    def _process(self, place: Place, item: Item) -> None:
        kind = self._kind_of(item.body)
        if kind is None:
            return
        if item.body["metadata"].get("deletionTimestamp"):
            finalizers = item.body["metadata"].get("finalizers") or []
            if ORPHAN in finalizers:
                self._orphan(kind, item)
            elif FOREGROUND in finalizers:
                self._delete_dependents_first(kind, item)
        elif item.body["metadata"].get("ownerReferences"):
            self._judge(place, kind, item)

    def _orphan(self, kind: Kind, item: Item) -> None:
        uid = item.body["metadata"]["uid"]
        for place in sorted(self._dependents.get(uid, ())):
            dependent = self._store.get(*place)
            if dependent is not None:
                self._change(dependent, lambda body: _without_owners(body, {uid}))
        self._drop_finalizer(kind, item, ORPHAN)

    def _delete_dependents_first(self, kind: Kind, item: Item) -> None:
        uid = item.body["metadata"]["uid"]
        blocked = False
        for place in sorted(self._dependents.get(uid, ())):
            dependent = self._store.get(*place)
            if dependent is None:
                continue
            owners = dependent.body["metadata"]["ownerReferences"]
            blocked = blocked or any(
                o["uid"] == uid and o.get("blockOwnerDeletion") for o in owners
            )
            dependent_kind = self._kind_of(dependent.body)
            if dependent_kind is not None and not _is_going(dependent.body):
                self._judge(place, dependent_kind, dependent)
        blocked = blocked and any(
            o["uid"] == uid and o.get("blockOwnerDeletion")
            for place in self._dependents.get(uid, ())
            if (current := self._store.get(*place)) is not None
            for o in current.body["metadata"].get("ownerReferences") or ()
        )
        if not blocked:
            self._drop_finalizer(kind, item, FOREGROUND)

    def _judge(self, place: Place, kind: Kind, item: Item) -> None:
        """Delete an object none of whose owners lives; strip owners that are gone."""
        solid, gone, waiting = 0, set[str](), set[str]()
        for reference in item.body["metadata"]["ownerReferences"]:
            known, owner = self._find_owner(kind, item, reference)
            if not known:
                return  # an owner of a kind that is not served: unknown
            if owner is None:
                gone.add(reference["uid"])
            elif _is_waiting(owner) and FOREGROUND in owner["metadata"]["finalizers"]:
                waiting.add(reference["uid"])
            else:
                solid += 1
        if solid:
            if gone or waiting:
                self._change(item, lambda body: _without_owners(body, gone | waiting))
            return
        has_dependents = bool(self._dependents.get(item.body["metadata"]["uid"]))
        policy = "Foreground" if waiting and has_dependents else _own_policy(item.body)
        uid = item.body["metadata"]["uid"]
        namespace, name = place[1:]
        self._objects.delete(kind, namespace, name, DeleteOptions(uid=uid, propagation=policy))

    def _find_owner(self, kind: Kind, item: Item, reference: Body) -> tuple[bool, Body | None]:
        """Return whether the reference can be judged, and the owner where it is there."""
        owner_kind = self._objects.registry.find_kind(reference["apiVersion"], reference["kind"])
        if owner_kind is None or (owner_kind.namespaced and not kind.namespaced):
            return False, None
        namespace = item.key[0] if owner_kind.namespaced else ""
        owner = self._store.get(owner_kind.resource_name, namespace, reference["name"])
        if owner is None or owner.body["metadata"]["uid"] != reference["uid"]:
            return True, None
        return True, owner.body

    def _drop_finalizer(self, kind: Kind, item: Item, finalizer: str) -> None:
        drop = partial(without_finalizer, finalizer)
        self._objects.update(Target(kind, *item.key), drop)

    def _change(self, item: Item, change: Callable[[Body], Body]) -> None:
        kind = self._kind_of(item.body)
        if kind is not None:
            self._objects.update(Target(kind, *item.key), change)

    def _kind_of(self, body: Body) -> Kind | None:
        return self._objects.registry.find_kind(body["apiVersion"], body["kind"])


def _is_going(body: Body) -> bool:
    return bool(body["metadata"].get("deletionTimestamp"))


def _is_waiting(body: Body) -> bool:
    """Return whether an object that is being deleted waits for the collector."""
    finalizers = body["metadata"].get("finalizers") or ()
    return _is_going(body) and (ORPHAN in finalizers or FOREGROUND in finalizers)


def _own_policy(body: Body) -> str:
    finalizers = body["metadata"].get("finalizers") or ()
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"


def _without_owners(body: Body, uids: set[str]) -> Body:
    metadata = body["metadata"]
    remaining = [o for o in metadata.get("ownerReferences") or () if o["uid"] not in uids]
    if remaining:
        metadata["ownerReferences"] = remaining
    else:
        metadata.pop("ownerReferences", None)
    return body
