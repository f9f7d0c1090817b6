"""An in-memory API server with a scheduler, a kubelet and a garbage collector, for one process."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ipuhub.kube.errors import AlreadyExists, Conflict, NotFound
from ipuhub.kube.resources import ListResult
from jobs.ipujob.names import (
    ANNOTATION_END,
    IPUJOBS,
    LABEL_ATTEMPT,
    LABEL_ROLE,
    RESOURCE_OF,
    format_time,
    worker_name,
)
from jobs.ipujob.storedstatus import with_read_status
from jobs.launcher.main import awaited, closed_because
from jobs.operator.observer import BY_JOB, BY_NODE, BY_UID, Caches, by_job, by_node, by_uid
from tests.fakes.jsoncopy import copied, merge
from tests.fakes.podstates import closed_gate, containers, environment, exited, unschedulable
from tests.fakes.refusing import Refusing

if TYPE_CHECKING:
    from collections.abc import Callable

    Exit = int | Callable[[int], int | None] | None

Manifest = dict[str, Any]
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Killed(BaseException):
    """The operator dies here."""


@dataclass(frozen=True, slots=True)
class Change:
    """One watch event: an object as it is after a write; `is_gone`: as it was last."""

    version: int
    at: datetime
    plural: str
    manifest: Manifest
    is_gone: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """Namespace and name."""
        meta = self.manifest["metadata"]
        return meta.get("namespace", ""), meta["name"]


class FakeCache:
    """A cache that is always current."""

    def __init__(self, kube: FakeKube, plural: str) -> None:
        self._kube = kube
        self._plural = plural
        self._trim = with_read_status if plural == IPUJOBS.plural else dict[str, Any]

    @property
    def resource_version(self) -> str:
        return str(self._kube.version)

    def get(self, namespace: str, name: str) -> Manifest | None:
        found = self._kube.objects.get((self._plural, namespace, name))
        return None if found is None else self._trim(copied(found))

    def by_index(self, index: str, value: str) -> list[Manifest]:
        values_of = {BY_UID: by_uid, BY_JOB: by_job, BY_NODE: by_node}[index]
        return [self._trim(copied(m)) for m in self._stored() if value in values_of(m)]

    def all(self) -> list[Manifest]:
        return [self._trim(copied(m)) for m in self._stored()]

    def _stored(self) -> list[Manifest]:
        return [m for place, m in self._kube.objects.items() if place[0] == self._plural]


class FakeKube:
    """Objects by (plural, namespace, name). `faults` maps (verb, plural) to errors to raise, in
    order. With `is_fast` a launcher runs in the same step as its workers; with `is_full` no pod
    finds a node, with `unready` none that starts is Ready, and why. `changes` has every state of
    every object, in order; `now` stamps them."""

    def __init__(self) -> None:
        self.version = 0
        self.objects: dict[tuple[str, str, str], Manifest] = {}
        self.calls: Counter[tuple[str, str]] = Counter()
        self.faults: dict[tuple[str, str], list[Exception]] = {}
        self.main_starts: Counter[tuple[str, str]] = Counter()
        self.is_fast = False
        self.is_full = False
        self.unready = ""
        self.changes: list[Change] = []
        self.taken: set[str] = set()  # UIDs of pods that others than the operator have ended
        self.lost: set[str] = set()  # UIDs of pods whose node hears nothing any more
        self.strangers: set[str] = set()  # UIDs of pods that live as somebody else says
        self.refusing = Refusing()
        self.status_fields: frozenset[str] | None = None  # what a foreign CRD keeps; None: all
        self.namespace = "default"  # where the stories' jobs are
        self.now: Callable[[], datetime] = lambda: NOON
        self._uids = 0

    def caches(self) -> Caches:
        return Caches(
            jobs=FakeCache(self, IPUJOBS.plural),
            children={kind: FakeCache(self, r.plural) for kind, r in RESOURCE_OF.items()},
            namespaces=FakeCache(self, "namespaces"),
            nodes=FakeCache(self, "nodes"),
        )

    # --- what the operator calls ---------------------------------------------------------------

    async def get(self, resource: Any, name: str, namespace: str | None = None) -> Manifest:
        self._count("get", resource.plural)
        return copied(self._find(resource.plural, namespace or "", name))

    async def list(
        self, resource: Any, namespace: str | None = None, *, label_selector: str = ""
    ) -> ListResult:
        self._count("list", resource.plural)
        key, _, value = label_selector.partition("=")
        found = [
            copied(m)
            for (plural, where, _), m in self.objects.items()
            if (plural, where) == (resource.plural, namespace)
            and m["metadata"].get("labels", {}).get(key) == value
        ]
        return ListResult(found, str(self.version))

    async def create(self, resource: Any, body: Manifest) -> Manifest:
        self._count("create", resource.plural)
        self.refusing.judge_create(resource.plural, body["metadata"]["name"], len(self.pods()))
        return self.put(resource.plural, body)

    async def try_create(self, resource: Any, body: Manifest) -> Manifest:
        """A dry run."""
        self._count("try", resource.plural)
        self.refusing.judge_create(resource.plural, body["metadata"]["name"], len(self.pods()))
        return copied(body)

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
        self.refusing.judge_patch(resource.plural, subresource)
        found = self._find(resource.plural, namespace or "", name)
        meta = body.get("metadata", {})
        for field in ("resourceVersion", "uid"):
            if meta.get(field) not in {None, found["metadata"][field]}:
                raise Conflict(409, "Conflict", "the object has been modified")
        part = {"status": body["status"]} if subresource == "status" else body
        before = copied(found)
        merge(found, copied(part))
        if subresource == "status" and self.status_fields is not None:
            for dropped in found["status"].keys() - self.status_fields:
                del found["status"][dropped]
        if found != before:
            self._bump(resource.plural, found)
        self._collect(resource.plural, found)
        return copied(found)

    async def delete(
        self, resource: Any, name: str, namespace: str | None = None, *, uid: str | None = None
    ) -> Manifest:
        self._count("delete", resource.plural)
        found = self._find(resource.plural, namespace or "", name)
        if uid not in {None, found["metadata"]["uid"]}:
            raise Conflict(409, "Conflict", "the UID in the precondition does not match")
        self.mark_deleted(resource.plural, found)
        return copied(found)

    # --- what users and the cluster do ---------------------------------------------------------

    def put(self, plural: str, body: Manifest) -> Manifest:
        meta = body["metadata"]
        place = (plural, meta.get("namespace", ""), meta["name"])
        if place in self.objects:
            raise AlreadyExists(409, "AlreadyExists", f'{plural} "{meta["name"]}" already exists')
        made = copied(body)
        self._uids += 1
        made["metadata"].setdefault("uid", f"uid-{self._uids}")
        if plural == "pods":
            made["metadata"]["creationTimestamp"] = format_time(self.now())
            made["status"] = {"phase": "Pending"}
        self._bump(plural, made)
        self.objects[place] = made
        return copied(made)

    def add_job(self, job: Manifest) -> str:
        job = copied(job)
        job["metadata"].pop("uid", None)
        return str(self.put("ipujobs", job)["metadata"]["uid"])

    def job(self, name: str) -> Manifest | None:
        return self.objects.get(("ipujobs", self.namespace, name))

    def delete_job(self, name: str) -> None:
        self.mark_deleted("ipujobs", self._find("ipujobs", self.namespace, name))

    def pods(self) -> list[Manifest]:
        return [m for (plural, _, _), m in self.objects.items() if plural == "pods"]

    def present_pods(self) -> list[Manifest]:
        """The pods that exist at this moment."""
        return self.pods()

    def mark_deleted(self, plural: str, found: Manifest) -> None:
        if not found["metadata"].get("deletionTimestamp"):
            found["metadata"]["deletionTimestamp"] = format_time(self.now())
            self._bump(plural, found)
        self._collect(plural, found)

    def edit_job(self, name: str, **fields: Any) -> None:
        """Change the spec as `kubectl edit` does."""
        found = self._find("ipujobs", self.namespace, name)
        found["spec"].update(fields)
        found["metadata"]["generation"] = found["metadata"].get("generation", 1) + 1
        self._bump("ipujobs", found)

    def delete_pod(self, name: str) -> None:
        """Do as a user's `kubectl delete pod`."""
        pod = self._find("pods", self.namespace, name)
        self.taken.add(pod["metadata"]["uid"])
        self.mark_deleted("pods", pod)

    def lose_pod(self, name: str) -> None:
        """Lose its node: the node controller deletes the pod, and no kubelet ends it."""
        self.lost.add(self._find("pods", self.namespace, name)["metadata"]["uid"])
        self.delete_pod(name)

    def force_delete_pod(self, name: str) -> None:
        """Do as `kubectl delete pod --force`, or as the deletion of a lost node."""
        self._remove("pods", self._find("pods", self.namespace, name))

    def put_foreign(self, plural: str, name: str) -> None:
        """Store an object of another owner."""
        self.put(plural, {"metadata": {"name": name, "namespace": self.namespace}})

    def remove_foreign(self, plural: str, name: str) -> None:
        """Its owner deletes it."""
        self.mark_deleted(plural, self._find(plural, self.namespace, name))

    def set_quota(self, most_pods: int | None) -> None:
        """An administrator sets how many pods there may be, or lifts that."""
        self.refusing.most_pods = most_pods

    def set_webhook_away(self, *, away: bool) -> None:
        """The webhooks die, or come back."""
        self.refusing.is_webhook_away = away

    def end_namespace(self) -> None:
        """Do as `kubectl delete namespace`: everything in it is deleted, in no order."""
        self.refusing.is_ending = True
        meta = {"name": self.namespace, "deletionTimestamp": format_time(self.now())}
        self.put("namespaces", {"metadata": meta})
        for (plural, where, _), manifest in list(self.objects.items()):
            if where == self.namespace:
                self.taken.add(manifest["metadata"]["uid"])
                self.mark_deleted(plural, manifest)

    def evict_pod(self, name: str, reason: str = "Evicted") -> None:
        """Do to a pod what a node does that is short of memory, or gone."""
        pod = self._find("pods", self.namespace, name)
        ran = exited(pod, 137) if pod["status"]["phase"] == "Running" else {}
        pod["status"] = ran | {"phase": "Failed", "reason": reason}
        self._bump("pods", pod)

    def tick(self, *, launcher_exit: Exit = 0, worker_exit: Exit = None) -> None:
        """Run one step of every pod's life; None as an exit code: it keeps running. A function
        returns the exit code of an attempt."""
        self._collect_orphans()
        mine = [p for p in self.pods() if p["metadata"]["uid"] not in self.strangers]
        workers = [p for p in mine if p["metadata"]["labels"][LABEL_ROLE] == "worker"]
        launchers = [p for p in mine if p["metadata"]["labels"][LABEL_ROLE] == "launcher"]
        ready = [pod for pod in launchers if self._is_ready(pod)]
        for pod in workers:
            self._tick(pod, may_start=True, code=worker_exit)
        if self.is_fast:
            ready = [pod for pod in launchers if self._is_ready(pod)]
        for pod in launchers:
            self._tick(pod, may_start=pod in ready, code=launcher_exit)

    def _is_ready(self, launcher: Manifest) -> bool:
        """Return whether the init container of a launcher may end, by its own rule."""
        if launcher["status"]["phase"] != "Pending":
            return True
        variables = environment(launcher)
        names = [
            worker_name(variables["IPUHUB_JOB"], n) for n in range(int(variables["IPUHUB_WORKERS"]))
        ]
        return not awaited(names, self.pods(), int(variables["IPUHUB_ATTEMPT"]))

    def _closed(self, pod: Manifest) -> str:
        """Return the reason for which the init container of a launcher keeps its command from
        starting."""
        variables = environment(pod)
        if not variables:
            return ""
        job = self.objects.get(("ipujobs", variables["IPUHUB_NAMESPACE"], variables["IPUHUB_JOB"]))
        instance, attempt = int(variables["IPUHUB_INSTANCE"]), int(variables["IPUHUB_ATTEMPT"])
        return closed_because(job, variables["IPUHUB_JOB_UID"], instance, attempt)

    def _tick(self, pod: Manifest, *, may_start: bool, code: Exit) -> None:
        phase = pod["status"]["phase"]
        attempt = pod["metadata"]["labels"][LABEL_ATTEMPT]
        if callable(code):
            code = code(int(attempt))
        if pod["metadata"]["uid"] in self.lost:
            return
        if pod["metadata"].get("deletionTimestamp"):
            self._remove("pods", pod)
            return
        before = (pod["spec"].get("nodeName"), pod["status"])
        if phase == "Pending" and not self.is_full:
            pod["spec"]["nodeName"] = "node-0"
            pod["status"] = {"phase": "Pending"}
            if self._closed(pod):
                pod["status"] = {"phase": "Failed", "initContainerStatuses": [closed_gate()]}
            elif may_start:
                self.main_starts[
                    pod["metadata"]["uid"], f"{pod['metadata']['name']}/{attempt}"
                ] += 1
                pod["status"] = self._running(pod)
        elif phase == "Pending" and not pod["spec"].get("nodeName"):
            pod["status"] = unschedulable()
        elif phase == "Running" and pod["metadata"].get("annotations", {}).get(ANNOTATION_END):
            pod["status"] = exited(pod, 0)
        elif phase == "Running" and pod["spec"].get("activeDeadlineSeconds") == 1:
            pod["status"] = {"phase": "Failed", "reason": "DeadlineExceeded"}
        elif phase == "Running" and code is not None:
            pod["status"] = exited(pod, code)
        if before != (pod["spec"].get("nodeName"), pod["status"]):
            self._bump("pods", pod)

    def _running(self, pod: Manifest) -> Manifest:
        running = {"startedAt": format_time(self.now())} if self.now() != NOON else {}
        states = [{"name": c["name"], "state": {"running": running}} for c in containers(pod)]
        unready = {"status": "False", "message": self.unready} if self.unready else {}
        return {
            "phase": "Running",
            "startTime": format_time(self.now()),
            "conditions": [{"type": "Ready", "status": "True"} | unready],
            "containerStatuses": states,
        }

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

    def _bump(self, plural: str, manifest: Manifest, *, is_gone: bool = False) -> None:
        self.version += 1
        manifest["metadata"]["resourceVersion"] = str(self.version)
        seen = copied(manifest)
        self.changes.append(Change(self.version, self.now(), plural, seen, is_gone))

    def _collect_orphans(self) -> None:
        """Do as the garbage collector to an object whose owner went before it was made."""
        alive = {m["metadata"]["uid"] for m in self.objects.values()}
        for (plural, _, _), manifest in list(self.objects.items()):
            owners = manifest["metadata"].get("ownerReferences")
            if owners and not any(owner["uid"] in alive for owner in owners):
                self.taken.add(manifest["metadata"]["uid"])
                self.mark_deleted(plural, manifest)

    def _collect(self, plural: str, found: Manifest) -> None:
        """Removes what may go, and then what it owned."""
        meta = found["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and plural != "pods":
            self._remove(plural, found)

    def _remove(self, plural: str, found: Manifest) -> None:
        meta = found["metadata"]
        if self.objects.pop((plural, meta.get("namespace", ""), meta["name"]), None) is None:
            return
        self._bump(plural, found, is_gone=True)
        for (owned_plural, _, _), manifest in list(self.objects.items()):
            owners = manifest["metadata"].get("ownerReferences") or ()
            if any(owner["uid"] == meta["uid"] for owner in owners):
                self.mark_deleted(owned_plural, manifest)
