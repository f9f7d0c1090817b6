"""io: finds objects made before usage was recorded, and prints the kubectl commands that annotate
them.

The commands are PrimeHub Usage's: a comment, the command, an empty line. You read them before you
run them; nothing is run here. PrimeHub's commands fail on an object without annotations and always
name the namespace `hub`. These name the object's namespace, and merge if there is no map to add to.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ipuhub.kube.errors import Forbidden, NotFound
from ipuhub.kube.resources import NAMESPACES, PODS, Resource
from usage.pods.annotations import ANNOTATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ipuhub.kube.blocking import BlockingKubeClient

if TYPE_CHECKING:
    Manifest = Mapping[str, Any]
KEY: Final = "primehub.io/usage"
GROUP_LABEL: Final = "ipuhub.io/group"
_CREATED_BY: Final = "ipuhub.io/created-by"
_SYSTEM: Final = frozenset({"kube-system", "kube-public", "kube-node-lease"})
_RESTARTS: Final = ", it might restart pods if anything have changed"


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects of a cluster. With `everything`, also objects that no known product made."""

    pods: Sequence[Manifest] = ()
    deployments: Sequence[Manifest] = ()
    ipujobs: Sequence[Manifest] = ()
    phjobs: Sequence[Manifest] = ()
    phdeployments: Sequence[Manifest] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    everything: bool = False

    def group_of(self, namespace: str) -> str:
        """The group that a namespace counts for."""
        return self.groups.get(namespace) or namespace


@dataclass(frozen=True, slots=True)
class LegacyPatch:
    """An object without the annotation, and its annotation; `doubts`: what to check first."""

    title: str
    resource: str
    namespace: str
    name: str
    usage: Mapping[str, str]
    has_annotations: bool
    doubts: tuple[str, ...] = ()

    @property
    def patch_type(self) -> str:
        """The kind of patch: an `add` fails where there are no annotations."""
        return "json" if self.has_annotations else "merge"

    @property
    def body(self) -> Any:
        """The patch."""
        text = json.dumps(dict(self.usage))
        above = ["spec", "template"] if self.resource == "deployment" else []
        if self.has_annotations:
            path = "/".join(["", *above, "metadata", "annotations", KEY.replace("/", "~1")])
            return [{"op": "add", "path": path, "value": text}]
        merged: dict[str, Any] = {KEY: text}
        for name in ("annotations", "metadata", *reversed(above)):
            merged = {name: merged}
        return merged

    @property
    def command(self) -> str:
        """The command, safe for a shell whatever the values are."""
        where, name = shlex.quote(self.namespace), shlex.quote(self.name)
        body = shlex.quote(json.dumps(self.body))
        patch = f"patch {self.resource} {name} --type='{self.patch_type}' -p {body}"
        return f"kubectl -n {where} {patch}"

    @property
    def text(self) -> str:
        """Comments, the command, and an empty line."""
        restarts = _RESTARTS if self.resource == "deployment" else ""
        comments = [f"# patch {self.title}: {self.name}{restarts}"]
        comments += [f"# look at this: {doubt}" for doubt in self.doubts]
        return "\n".join([*map(_one_line, comments), self.command, "", ""])

    @property
    def record(self) -> dict[str, Any]:
        """The same for a program."""
        return {
            "title": self.title,
            "resource": self.resource,
            "namespace": self.namespace,
            "name": self.name,
            "usage": dict(self.usage),
            "patchType": self.patch_type,
            "patch": self.body,
            "command": self.command,
            "doubts": list(self.doubts),
        }


def legacy_patches(world: ClusterObjects) -> Iterator[LegacyPatch]:
    """Yield a patch for each object without the annotation: pods, their IPUJobs, Deployments."""
    phjobs = {_key(each): each for each in world.phjobs}
    ipujobs = {_key(each): each for each in world.ipujobs}
    touched: set[tuple[str, str]] = set()
    for pod in world.pods:
        if _is_annotated(_annotations(pod)):
            continue
        owner = _owner(pod)
        key = (_meta(pod).get("namespace", ""), owner.get("name", ""))
        if owner.get("kind") == "PhJob" and key in phjobs:
            yield _of_phjob(pod, phjobs[key])
        elif owner.get("kind") == "IPUJob" and key in ipujobs:
            touched.add(key)
            yield _of_ipujob("ipujob pod", "pod", pod, ipujobs[key], world)
        elif (_meta(pod).get("labels") or {}).get("component") == "singleuser-server":
            yield _of_jupyter(pod, world)
        elif world.everything and not owner and _is_users(pod):
            yield _of_namespace("pod", pod, world, _annotations(pod))
    for key in sorted(touched):
        if not _is_annotated(_annotations(ipujobs[key])):
            yield _of_ipujob("ipujob", "ipujob", ipujobs[key], ipujobs[key], world)
    yield from _of_deployments(world)


def _of_deployments(world: ClusterObjects) -> Iterator[LegacyPatch]:
    owners = {_key(each): each for each in world.phdeployments}
    for deployment in world.deployments:
        annotations = _template_annotations(deployment)
        if _is_annotated(annotations):
            continue
        owner = _owner(deployment)
        key = (_meta(deployment).get("namespace", ""), owner.get("name", ""))
        if owner.get("kind") == "PhDeployment" and key in owners:
            spec = owners[key].get("spec") or {}
            predictor: Manifest = next(iter(spec.get("predictors") or ()), {})
            values = (spec.get("groupName"), spec.get("userName"), predictor.get("instanceType"))
            title = "phdeployment deployment"
            yield _patch(title, deployment, ("deployment", key[1]), values, annotations)
        elif world.everything and not owner and _is_users(deployment):
            yield _of_namespace("deployment", deployment, world, annotations)


def _of_phjob(pod: Manifest, phjob: Manifest) -> LegacyPatch:
    spec = phjob.get("spec") or {}
    values = (spec.get("groupName"), spec.get("userName"), spec.get("instanceType"))
    component = ("job", str(_meta(phjob).get("name", "")))
    return _patch("phjob pod", pod, component, values, _annotations(pod))


def _of_jupyter(pod: Manifest, world: ClusterObjects) -> LegacyPatch:
    annotations = _annotations(pod) or {}
    names = ("launch_group_name", "user_name", "instance_type")
    group, user, kind = (annotations.get(f"auditing.{name}") for name in names)
    component = ("jupyter", str(_meta(pod).get("name", "")))
    values = (group or world.group_of(_meta(pod).get("namespace", "")), user, kind)
    found = _patch("jupyter pod", pod, component, values, annotations or None)
    if group and user and kind:
        return found
    doubt = "auditing.* annotations are missing; the group may be only its namespace's"
    return _doubted(found, doubt)


def _of_ipujob(
    title: str, resource: str, target: Manifest, job: Manifest, world: ClusterObjects
) -> LegacyPatch:
    meta = _meta(job)
    user = (meta.get("annotations") or {}).get(_CREATED_BY)
    values = (world.group_of(meta.get("namespace", "")), user, _ipu_type(job.get("spec") or {}))
    # PrimeHub's word for it: `ipujob` is what only the operator stamps.
    component = ("job", str(meta.get("name", "")))
    found = _patch(title, target, component, values, _annotations(target), resource)
    return found if user else _doubted(found, "nothing says whose job it is: user is empty")


def _of_namespace(
    resource: str, target: Manifest, world: ClusterObjects, annotations: Mapping[str, str] | None
) -> LegacyPatch:
    meta = _meta(target)
    values = (world.group_of(meta.get("namespace", "")), None, None)
    found = _patch(resource, target, (resource, str(meta.get("name", ""))), values, annotations)
    return _doubted(found, "nothing says whose it is: it counts for its namespace's group")


def _patch(
    title: str,
    target: Manifest,
    component: tuple[str, str],
    values: tuple[object, object, object],
    annotations: Mapping[str, str] | None,
    resource: str = "",
) -> LegacyPatch:
    meta = _meta(target)
    group, user, instance_type = (str(value or "") for value in values)
    usage = {
        "component": component[0],
        "component_name": component[1],
        "group": group,
        "user": user,
        "instance_type": instance_type,
    }
    kind = resource or ("deployment" if title.endswith("deployment") else "pod")
    name, namespace = str(meta.get("name", "")), str(meta.get("namespace", ""))
    return LegacyPatch(title, kind, namespace, name, usage, annotations is not None)


def _doubted(patch: LegacyPatch, doubt: str) -> LegacyPatch:
    return LegacyPatch(
        patch.title,
        patch.resource,
        patch.namespace,
        patch.name,
        patch.usage,
        patch.has_annotations,
        (*patch.doubts, doubt),
    )


def _ipu_type(spec: Manifest) -> str:
    """The size of a job's partition, as the operator writes it: `ipu-4`."""
    per_instance = spec.get("ipusPerJobInstance")
    parts = (spec.get("modelReplicas", 1), spec.get("ipusPerModelReplica", 1))
    try:
        ipus = int(per_instance) if per_instance is not None else int(parts[0]) * int(parts[1])
    except (TypeError, ValueError):
        return ""
    return f"ipu-{ipus}"


def _meta(manifest: Manifest) -> dict[str, Any]:
    return manifest.get("metadata") or {}


def _key(manifest: Manifest) -> tuple[str, str]:
    return _meta(manifest).get("namespace", ""), _meta(manifest).get("name", "")


def _annotations(manifest: Manifest) -> dict[str, str] | None:
    found: dict[str, str] | None = _meta(manifest).get("annotations")
    return found


def _template_annotations(deployment: Manifest) -> dict[str, str] | None:
    return _annotations((deployment.get("spec") or {}).get("template") or {})


def _is_annotated(annotations: Iterable[str] | None) -> bool:
    return any(key in (annotations or ()) for key in ANNOTATIONS)


def _is_users(manifest: Manifest) -> bool:
    return _meta(manifest).get("namespace") not in _SYSTEM


def _owner(manifest: Manifest) -> dict[str, Any]:
    """The first owner: PrimeHub's are not always marked as controllers."""
    owners: list[dict[str, Any]] = _meta(manifest).get("ownerReferences") or []
    return owners[0] if owners else {}


def _one_line(text: str) -> str:
    """Return text that stays one comment line, whatever it contains."""
    return "".join(each if each.isprintable() else " " for each in text)


_DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
_IPUJOBS: Final = Resource("graphcore.ai", "v1alpha1", "ipujobs", "IPUJob")
_PHJOBS: Final = Resource("primehub.io", "v1alpha1", "phjobs", "PhJob")
_PHDEPLOYMENTS: Final = Resource("primehub.io", "v1alpha1", "phdeployments", "PhDeployment")


def read_world(
    client: BlockingKubeClient,
    namespace: str | None,
    note: Callable[[str], None],
    *,
    everything: bool,
) -> ClusterObjects:
    """Read the objects in `namespace` (None: the whole cluster).

    Kinds that are not installed are noted. Raises ApiError if the API server forbids reading an
    installed kind.
    """

    def listed(resource: Resource) -> list[Any]:
        try:
            return client.run(client.client.list, resource, namespace).items
        except NotFound:
            kind = f"{resource.plural}.{resource.group}"
            note(f"{kind} are not installed here: none are looked for.")
            return []

    return ClusterObjects(
        pods=listed(PODS),
        deployments=listed(_DEPLOYMENTS),
        ipujobs=listed(_IPUJOBS),
        phjobs=listed(_PHJOBS),
        phdeployments=listed(_PHDEPLOYMENTS),
        groups=_groups(client, note),
        everything=everything,
    )


def _groups(client: BlockingKubeClient, note: Callable[[str], None]) -> dict[str, str]:
    try:
        namespaces = client.run(client.client.list, NAMESPACES).items
    except Forbidden:
        note("Namespaces may not be read: each counts as its own group.")
        return {}
    found = {}
    for each in namespaces:
        labels = each["metadata"].get("labels") or {}
        found[each["metadata"]["name"]] = labels.get(GROUP_LABEL, "")
    return found
