"""A real API server, with the fake's scheduler and kubelet: they write what they decide to it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from ipuhub.kube.blocking import BlockingKubeClient
from ipuhub.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    ServerError,
)
from ipuhub.kube.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from ipuhub.kube.watch import Scope, Watch
from jobs.ipujob.names import IPUJOBS, LABEL_JOB_UID, RESOURCE_OF
from tests.fakes.kube import Change, FakeKube

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipuhub.kube.client import KubeClient
    from tests.fakes.kube import Manifest

RESOURCES = {one.plural: one for one in (IPUJOBS, *RESOURCE_OF.values())}
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
NODE = "chaos-node"
PROBE = {"chaos": "probe"}
PATIENCE_SECONDS = 90.0
FORCED = 0  # seconds of grace: what a kubelet deletes a pod with that has ended


class Observer:
    """Follows all jobs of a server and what belongs to them, for one world at a time."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._tasks: list[asyncio.Task[None]] = []
        self.world: ServerKube | None = None
        self.versions: dict[str, int] = {}

    async def start(self) -> None:
        for plural, resource in RESOURCES.items():
            label = "" if plural == "ipujobs" else LABEL_JOB_UID
            scope = Scope(resource, None, label)
            first = await self._client.list(scope.resource, label_selector=label)
            self.versions[plural] = int(first.resource_version)
            watch = Watch(self._client, scope, first.resource_version)
            self._tasks.append(asyncio.create_task(self._follow(plural, watch)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _follow(self, plural: str, watch: Watch) -> None:
        async for event in watch.events():
            if self.world is not None and event.type != "BOOKMARK":
                self.world.observe(plural, event.object, is_gone=event.type == "DELETED")
            self.versions[plural] = int(event.resource_version)


class Verbs(BlockingKubeClient):
    """The verbs of the client as ordinary calls."""

    def __getattr__(self, verb: str) -> Any:
        return partial(self.run, getattr(self.client, verb))


class ServerKube(FakeKube):
    """One namespace of a server. `objects` is what its watches have shown of it so far, and what
    the answers to own calls have; `latest` the newest version known to be written, by plural."""

    def __init__(self, client: Verbs, namespace: str) -> None:
        super().__init__()
        self.client = client
        self.namespace = namespace
        self.latest: dict[str, int] = {}
        self.now = lambda: datetime.now(UTC)
        self._ends: dict[str, int] = {}  # by UID: the version at which an object was seen to go

    # --- what it sees --------------------------------------------------------------------------

    def observe(self, plural: str, manifest: Manifest, *, is_gone: bool) -> None:
        """Takes in a watch event."""
        meta = manifest["metadata"]
        if meta.get("namespace") != self.namespace:
            return
        version = int(meta["resourceVersion"])
        self.changes.append(Change(version, self.now(), plural, _copy(manifest), is_gone))
        if is_gone:
            self._ends[meta["uid"]] = version
            place = plural, self.namespace, meta["name"]
            if self.objects.get(place, manifest)["metadata"]["uid"] == meta["uid"]:
                self.objects.pop(place, None)
        else:
            self._take(plural, manifest)

    def wrote(self, plural: str, answer: Manifest) -> None:
        """A write by another client, which the watches report."""
        version = str((answer.get("metadata") or {}).get("resourceVersion", ""))
        if version.isdigit():
            self.latest[plural] = max(int(version), self.latest.get(plural, 0))

    def ownerless(self) -> list[str]:
        """Return the objects that the garbage collector has still to take away."""
        alive = {m["metadata"]["uid"] for m in self.objects.values()}
        return [
            name
            for (_, _, name), manifest in self.objects.items()
            if (owners := manifest["metadata"].get("ownerReferences"))
            and not any(owner["uid"] in alive for owner in owners)
        ]

    def pods(self) -> list[Manifest]:
        return _copy(super().pods())

    def present_pods(self) -> list[Manifest]:
        found = self.client.list(PODS, self.namespace, label_selector=LABEL_JOB_UID)
        return found.items

    # --- what users and the cluster do ---------------------------------------------------------

    def put(self, plural: str, body: Manifest) -> Manifest:
        body = _copy(body)
        for stamp in ("resourceVersion", "creationTimestamp", "generation"):
            body["metadata"].pop(stamp, None)
        body["metadata"]["namespace"] = self.namespace
        if plural == "ipujobs":  # the server's own scheduler, if any, is to leave them alone
            body["spec"]["workers"]["template"]["spec"]["schedulerName"] = "chaos"
        return self._written(plural, self.client.create(RESOURCES[plural], body))

    def edit_job(self, name: str, **fields: Any) -> None:
        patch = {"spec": fields}
        self._written("ipujobs", self.client.patch(IPUJOBS, name, patch, self.namespace))

    def mark_deleted(self, plural: str, found: Manifest) -> None:
        meta = found["metadata"]
        with contextlib.suppress(NotFound):
            answer = self.client.delete(
                RESOURCES[plural], meta["name"], self.namespace, uid=meta["uid"]
            )
            self.wrote(plural, answer)

    def put_foreign(self, plural: str, name: str) -> None:
        """Without our label: no watch tells of it."""
        self.client.create(RESOURCES[plural], {"metadata": {"name": name}}, self.namespace)

    def remove_foreign(self, plural: str, name: str) -> None:
        self.client.delete(RESOURCES[plural], name, self.namespace)

    def set_quota(self, most_pods: int | None) -> None:
        if most_pods is None:
            self.client.delete(QUOTAS, "chaos", self.namespace)
            return
        body = {"metadata": {"name": "chaos"}, "spec": {"hard": {"pods": str(most_pods)}}}
        self.client.create(QUOTAS, body, self.namespace)
        self._until(lambda: self.client.get(QUOTAS, "chaos", self.namespace)["status"].get("hard"))

    def has_all_its_jobs(self) -> bool:
        """Return whether the jobs seen so far are there: a job goes with its last finalizer, under
        a version that no answer to a write tells, so that only the watch says so."""
        names = [name for plural, _, name in self.objects if plural == "ipujobs"]
        listed = self.client.request("GET", IPUJOBS.path(self.namespace))["items"]
        return set(names) <= {item["metadata"]["name"] for item in listed}

    def set_webhook_away(self, *, away: bool) -> None:
        if away:
            self.client.create(VALIDATING_WEBHOOKS, dead_webhook(self.namespace))
        else:
            self.client.delete(VALIDATING_WEBHOOKS, self.namespace)
        self._until(lambda: self._is_refused() == away)

    def _is_refused(self) -> bool:
        """Return whether the server heeds the rules of our dead webhook, as of now."""
        probe = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "probe", "labels": PROBE},
        }
        path = CONFIG_MAPS.path(self.namespace)
        try:
            self.client.request("POST", path, params={"dryRun": "All"}, body=probe)
        except ServerError:
            return True
        return False

    def end_namespace(self) -> None:
        self.refusing.is_ending = True
        self.taken |= {manifest["metadata"]["uid"] for manifest in self.objects.values()}
        self.client.delete(NAMESPACES, self.namespace)

    def is_over(self) -> bool:
        """Return whether the namespace has gone."""
        try:
            self.client.get(NAMESPACES, self.namespace)
        except NotFound:
            return True
        return False

    def _until(self, reached: Callable[[], Any]) -> None:
        """Servers take up to a second to heed a new rule."""
        patience = time.monotonic() + PATIENCE_SECONDS
        while not reached():
            assert time.monotonic() < patience, "the server does not heed a new rule"
            time.sleep(0.05)

    def _find(self, plural: str, namespace: str, name: str) -> Manifest:
        return _copy(super()._find(plural, namespace, name))

    def _bump(self, plural: str, manifest: Manifest, *, is_gone: bool = False) -> None:
        """Has the scheduler's and the kubelet's part of a pod written."""
        meta = manifest["metadata"]
        known = self.objects.get((plural, self.namespace, meta["name"]))
        if known is None or known["metadata"]["uid"] != meta["uid"]:
            return
        try:
            self._write(known, manifest)
        except (NotFound, Conflict, Invalid):
            return  # it has changed or gone: the next tick looks at it again

    def _write(self, known: Manifest, pod: Manifest) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if pod["spec"].get("nodeName") and not known["spec"].get("nodeName"):
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "uid": uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
            }
            self.client.create(PODS, binding, self.namespace, name=name, subresource="binding")
            known["spec"]["nodeName"] = NODE
        if any(known["status"].get(key) != value for key, value in pod["status"].items()):
            patch = {"metadata": {"uid": uid}, "status": pod["status"]}
            answer = self.client.patch(PODS, name, patch, self.namespace, subresource="status")
            self._written("pods", answer)

    def _remove(self, plural: str, found: Manifest) -> None:
        """A kubelet lets a pod go that has ended."""
        meta = found["metadata"]
        with contextlib.suppress(NotFound, Conflict):
            answer = self.client.delete(
                PODS, meta["name"], self.namespace, uid=meta["uid"], grace_period_seconds=FORCED
            )
            self.wrote(plural, answer)  # with the version of its end
        known = self.objects.get((plural, self.namespace, meta["name"]))
        if known is not None and known["metadata"]["uid"] == meta["uid"]:
            self._ends[meta["uid"]] = 0
            del self.objects[plural, self.namespace, meta["name"]]

    def _collect(self, plural: str, found: Manifest) -> None:
        """The server does it."""

    def _collect_orphans(self) -> None:
        """The server does it."""

    def _written(self, plural: str, answer: Manifest) -> Manifest:
        self.wrote(plural, answer)
        self._take(plural, answer)
        return answer

    def _take(self, plural: str, manifest: Manifest) -> None:
        meta = manifest["metadata"]
        if meta["uid"] in self._ends:
            return
        place = plural, self.namespace, meta["name"]
        known = self.objects.get(place)
        same = known is not None and known["metadata"]["uid"] == meta["uid"]
        if known is not None and same and _version(known) >= _version(manifest):
            return
        self.objects[place] = _copy(manifest)


def dead_webhook(namespace: str) -> Manifest:
    """Admission for each change of a job in a namespace, and for probes; nothing listens there."""

    def one(name: str, group: str, version: str, verb: str, plural: str) -> Manifest:
        return {
            "name": f"{name}.chaos.ipuhub.io",
            "clientConfig": {"url": "https://127.0.0.1:9/"},
            "namespaceSelector": {"matchLabels": {"chaos": namespace}},
            "rules": [
                {
                    "apiGroups": [group],
                    "apiVersions": [version],
                    "operations": [verb],
                    "resources": [plural],
                }
            ],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 2,
        }

    probes = one("probes", "", "v1", "CREATE", "configmaps")
    return {
        "apiVersion": VALIDATING_WEBHOOKS.api_version,
        "kind": VALIDATING_WEBHOOKS.kind,
        "metadata": {"name": namespace},
        "webhooks": [
            one("jobs", IPUJOBS.group, IPUJOBS.version, "UPDATE", "ipujobs"),
            probes | {"objectSelector": {"matchLabels": PROBE}},
        ],
    }


def _copy(whole: Any) -> Any:
    return orjson.loads(orjson.dumps(whole))  # ten times as fast as a deep copy


def _version(manifest: Manifest) -> int:
    return int(manifest["metadata"]["resourceVersion"])


def make_namespace(client: Verbs, name: str) -> None:
    client.create(NAMESPACES, {"metadata": {"name": name, "labels": {"chaos": name}}})


def is_complete(client: Verbs, namespace: str) -> bool:
    """Return whether pods can be made in a namespace: its default account is there and gives
    tokens."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = SERVICE_ACCOUNTS.path(namespace, "default", "token")
    try:
        answer = client.request("POST", path, body=body)
    except NotFound:
        return False
    return bool(answer["status"]["token"])


def make_node(client: Verbs) -> None:
    """The node on which all pods of these worlds run: it is alive as of now."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    with contextlib.suppress(AlreadyExists):
        client.create(NODES, node)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "reason": "KubeletReady"}
    client.patch(NODES, NODE, {"status": {"conditions": [ready]}}, subresource="status")


def remove(client: Verbs, namespace: str) -> None:
    """Takes a world's namespace away, whatever is left in it."""
    for job in client.list(IPUJOBS, namespace).items:
        name = job["metadata"]["name"]
        with contextlib.suppress(ApiError):
            client.patch(IPUJOBS, name, {"metadata": {"finalizers": None}}, namespace)
    for pod in client.list(PODS, namespace).items:
        with contextlib.suppress(NotFound):
            name = pod["metadata"]["name"]
            client.delete(PODS, name, namespace, grace_period_seconds=FORCED)
    for resource, name in ((VALIDATING_WEBHOOKS, namespace), (NAMESPACES, namespace)):
        with contextlib.suppress(NotFound, Conflict):
            client.delete(resource, name)
