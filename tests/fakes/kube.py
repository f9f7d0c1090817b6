"""An in-memory API server with a scheduler, a kubelet and a garbage collector, for one process."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Any

from ipuhub.kube.errors import AlreadyExists, Conflict, NotFound
from ipuhub.kube.types import ListResult
from jobs.caches import BY_JOB, BY_UID, Caches, by_job
from jobs.names import LABEL_ATTEMPT, LABEL_ROLE
from jobs.resources import IPUJOBS, RESOURCE_OF

if TYPE_CHECKING:
    from collections.abc import Callable

    Exit = int | Callable[[int], int | None] | None

Manifest = dict[str, Any]


class Killed(BaseException):
    """The operator dies here."""


class FakeCache:
    """A cache that is always current."""

    def __init__(self, kube: FakeKube, plural: str) -> None:
        self._kube = kube
        self._plural = plural

    @property
    def resource_version(self) -> str:
        return str(self._kube.version)

    def get(self, namespace: str, name: str) -> Manifest | None:
        return copy.deepcopy(self._kube.objects.get((self._plural, namespace, name)))

    def by_index(self, index: str, value: str) -> list[Manifest]:
        if index == BY_UID:
            return [m for m in self.all() if m["metadata"]["uid"] == value]
        assert index == BY_JOB
        return [m for m in self.all() if value in by_job(m)]

    def all(self) -> list[Manifest]:
        return [
            copy.deepcopy(m)
            for (plural, _, _), m in self._kube.objects.items()
            if plural == self._plural
        ]


class FakeKube:
    """Objects by (plural, namespace, name). `on_write` is called after each write took effect;
    it may raise `Killed`. `faults` maps (verb, plural) to errors to raise, in order. With `is_fast`
    a launcher runs in the same step as its workers."""

    def __init__(self) -> None:
        self.version = 0
        self.objects: dict[tuple[str, str, str], Manifest] = {}
        self.calls: Counter[tuple[str, str]] = Counter()
        self.faults: dict[tuple[str, str], list[Exception]] = {}
        self.on_write: Callable[[], None] = lambda: None
        self.main_starts: Counter[tuple[str, str]] = Counter()
        self.is_fast = False
        self._uids = 0

    def caches(self) -> Caches:
        return Caches(
            jobs=FakeCache(self, IPUJOBS.plural),
            children={kind: FakeCache(self, r.plural) for kind, r in RESOURCE_OF.items()},
            namespaces=FakeCache(self, "namespaces"),
        )

    # --- what the operator calls ---------------------------------------------------------------

    async def get(self, resource: Any, name: str, namespace: str | None = None) -> Manifest:
        self._count("get", resource.plural)
        return copy.deepcopy(self._find(resource.plural, namespace or "", name))

    async def list(
        self, resource: Any, namespace: str | None = None, *, label_selector: str = ""
    ) -> ListResult:
        self._count("list", resource.plural)
        key, _, value = label_selector.partition("=")
        found = [
            copy.deepcopy(m)
            for (plural, where, _), m in self.objects.items()
            if (plural, where) == (resource.plural, namespace)
            and m["metadata"].get("labels", {}).get(key) == value
        ]
        return ListResult(found, str(self.version))

    async def create(self, resource: Any, body: Manifest) -> Manifest:
        self._count("create", resource.plural)
        made = self.put(resource.plural, body)
        self.on_write()
        return made

    async def patch(
        self,
        resource: Any,
        name: str,
        body: Manifest,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Manifest:
        self._count("patch", resource.plural)
        found = self._find(resource.plural, namespace or "", name)
        meta = body.get("metadata", {})
        for field in ("resourceVersion", "uid"):
            if meta.get(field) not in {None, found["metadata"][field]}:
                raise Conflict(409, "Conflict", "the object has been modified")
        part = {"status": body["status"]} if subresource == "status" else body
        _merge(found, copy.deepcopy(part))
        self._bump(found)
        self._collect(resource.plural, found)
        self.on_write()
        return copy.deepcopy(found)

    async def delete(
        self, resource: Any, name: str, namespace: str | None = None, *, uid: str | None = None
    ) -> Manifest:
        self._count("delete", resource.plural)
        found = self._find(resource.plural, namespace or "", name)
        if uid not in {None, found["metadata"]["uid"]}:
            raise Conflict(409, "Conflict", "the UID in the precondition does not match")
        self.mark_deleted(resource.plural, found)
        self.on_write()
        return copy.deepcopy(found)

    # --- what users and the cluster do ---------------------------------------------------------

    def put(self, plural: str, body: Manifest) -> Manifest:
        meta = body["metadata"]
        place = (plural, meta.get("namespace", ""), meta["name"])
        if place in self.objects:
            raise AlreadyExists(409, "AlreadyExists", f'{plural} "{meta["name"]}" already exists')
        made = copy.deepcopy(body)
        self._uids += 1
        made["metadata"].setdefault("uid", f"uid-{self._uids}")
        if plural == "pods":
            made["status"] = {"phase": "Pending"}
        self._bump(made)
        self.objects[place] = made
        return copy.deepcopy(made)

    def add_job(self, job: Manifest) -> str:
        job = copy.deepcopy(job)
        job["metadata"].pop("uid", None)
        return str(self.put("ipujobs", job)["metadata"]["uid"])

    def job(self, name: str) -> Manifest | None:
        return self.objects.get(("ipujobs", "default", name))

    def delete_job(self, name: str) -> None:
        self.mark_deleted("ipujobs", self._find("ipujobs", "default", name))

    def pods(self) -> list[Manifest]:
        return [m for (plural, _, _), m in self.objects.items() if plural == "pods"]

    def mark_deleted(self, plural: str, found: Manifest) -> None:
        found["metadata"].setdefault("deletionTimestamp", "2026-03-01T12:00:00Z")
        self._bump(found)
        self._collect(plural, found)

    def edit_job(self, name: str, **fields: Any) -> None:
        """Change the spec as `kubectl edit` does."""
        found = self._find("ipujobs", "default", name)
        found["spec"].update(fields)
        found["metadata"]["generation"] = found["metadata"].get("generation", 1) + 1
        self._bump(found)

    def delete_pod(self, name: str) -> None:
        """What a user's `kubectl delete pod` does."""
        self.mark_deleted("pods", self._find("pods", "default", name))

    def tick(self, *, launcher_exit: Exit = 0, worker_exit: Exit = None) -> None:
        """One step of every pod's life; None as an exit code: it goes on running. A function is
        asked for the code of an attempt."""
        workers = [p for p in self.pods() if p["metadata"]["labels"][LABEL_ROLE] == "worker"]
        launchers = [p for p in self.pods() if p["metadata"]["labels"][LABEL_ROLE] == "launcher"]
        ready = all(p["status"]["phase"] != "Pending" for p in workers)
        for pod in workers:
            self._tick(pod, may_start=True, code=worker_exit)
        if self.is_fast:
            ready = all(p["status"]["phase"] != "Pending" for p in workers)
        for pod in launchers:
            self._tick(pod, may_start=ready, code=launcher_exit)

    def _tick(self, pod: Manifest, *, may_start: bool, code: Exit) -> None:
        phase = pod["status"]["phase"]
        attempt = pod["metadata"]["labels"][LABEL_ATTEMPT]
        if callable(code):
            code = code(int(attempt))
        if pod["metadata"].get("deletionTimestamp"):
            self._remove("pods", pod)
        elif phase == "Pending":
            pod["spec"]["nodeName"] = "node-0"
            if may_start:
                self.main_starts[
                    pod["metadata"]["uid"], f"{pod['metadata']['name']}/{attempt}"
                ] += 1
                pod["status"] = _running(pod)
        elif phase == "Running" and pod["spec"].get("activeDeadlineSeconds") == 1:
            pod["status"] = {"phase": "Failed", "reason": "DeadlineExceeded"}
        elif phase == "Running" and code is not None:
            pod["status"] = _exited(pod, code)
        self._bump(pod)

    # --- inside --------------------------------------------------------------------------------

    def _count(self, verb: str, plural: str) -> None:
        self.calls[verb, plural] += 1
        waiting = self.faults.get((verb, plural))
        if waiting:
            raise waiting.pop(0)

    def _find(self, plural: str, namespace: str, name: str) -> Manifest:
        found = self.objects.get((plural, namespace, name))
        if found is None:
            raise NotFound(404, "NotFound", f'{plural} "{name}" not found')
        return found

    def _bump(self, manifest: Manifest) -> None:
        self.version += 1
        manifest["metadata"]["resourceVersion"] = str(self.version)

    def _collect(self, plural: str, found: Manifest) -> None:
        """Removes what may go, and then what it owned."""
        meta = found["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and plural != "pods":
            self._remove(plural, found)

    def _remove(self, plural: str, found: Manifest) -> None:
        meta = found["metadata"]
        self.objects.pop((plural, meta.get("namespace", ""), meta["name"]), None)
        for (owned_plural, _, _), manifest in list(self.objects.items()):
            owners = manifest["metadata"].get("ownerReferences") or ()
            if any(owner["uid"] == meta["uid"] for owner in owners):
                self.mark_deleted(owned_plural, manifest)


def _running(pod: Manifest) -> Manifest:
    states = [{"name": c["name"], "state": {"running": {}}} for c in pod["spec"]["containers"]]
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": states,
    }


def _exited(pod: Manifest, code: int) -> Manifest:
    ended = {"terminated": {"exitCode": code, "startedAt": "2026-03-01T12:00:00Z"}}
    states = [{"name": c["name"], "state": ended} for c in pod["spec"]["containers"]]
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": states}


def _merge(target: Manifest, patch: Manifest) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(target.get(key), dict):
                target[key] = {}
            _merge(target[key], value)
        else:
            target[key] = value
