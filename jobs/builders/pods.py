"""domain: the worker pods, the common parts of all pods of a job, and the input of all builders."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from jobs.ipujob.names import (
    ANNOTATION_CREATED_BY,
    ANNOTATION_END,
    ANNOTATION_FINGERPRINT,
    ANNOTATION_USAGE,
    API_VERSION,
    KIND,
    LAST_APPLIED,
    ROLE_WORKER,
    annotations_of,
    common_labels,
    launcher_name,
    metadata,
    pod_labels,
    worker_name,
)
from jobs.ipujob.podstandards import ANNOTATIONS
from jobs.ipujob.privileges import ADDED_CAPABILITY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ipuhub.partition import Partition, PodKey
    from jobs.ipujob.names import JobKey, Manifest
    from jobs.ipujob.spec import JobSpec

MICRO_IPUS = 1_000_000
_NOT_INHERITED = ("ipuhub.io/", *(prefix for control in ANNOTATIONS for prefix in control.fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """The operator's settings about pods."""

    host_network: bool = True
    launcher_image: str = "localhost/ipuhub-launcher"
    launcher_image_pull_policy: str = "IfNotPresent"
    launcher_pull_secrets: tuple[str, ...] = ()
    vipu_timeout_seconds: int = 120
    launcher_wait_seconds: float = 0.0
    mpi_interfaces: str = ""
    scheduler_name: str = ""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """One parsed job and its place. `group`: the group that its usage counts for. `fingerprint`:
    what the pods say they were made from (`jobs.operator.effectivespec`)."""

    key: JobKey
    job: Manifest
    spec: JobSpec
    group: str = ""
    options: PodOptions = field(default_factory=PodOptions)
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class PodPlace:
    """The place of a pod in its job: its instance, attempt and the partition it works on."""

    instance: int
    attempt: int
    partition: Partition


def child_metadata(key: JobKey, name: str) -> Manifest:
    """Return metadata of an object that belongs to the job and is deleted with it."""
    return {
        "name": name,
        "namespace": key.namespace,
        "labels": common_labels(key),
        "ownerReferences": [owner_reference(key)],
    }


def owner_reference(key: JobKey) -> Manifest:
    """The reference that lets Kubernetes collect the object when the job is gone."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": key.name,
        "uid": key.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def inherited_annotations(job: Manifest) -> dict[str, str]:
    """Return the job's annotations that its pods get.

    Left out are kubectl's bookkeeping, IPUHub's own annotations, and those that the kubelet obeys:
    they belong in the pod template, where they are checked.
    """
    return {
        key: value
        for key, value in annotations_of(job).items()
        if key != LAST_APPLIED and not key.startswith(_NOT_INHERITED)
    }


def usage_annotation(context: BuildContext, place: PodPlace, micro_ipus: int) -> dict[str, str]:
    """Return the stamp by which usage is accounted; `micro_ipus` are millionths of an IPU."""
    stamp: dict[str, str | int] = {
        "component": "ipujob",
        "component_name": context.key.name,
        "group": context.group or context.key.namespace,
        "instance_type": f"ipu-{context.spec.partition_size}",
        "partition": place.partition.id,
        "ipus": micro_ipus,
    }
    created_by = metadata(context.job).get("annotations", {}) or {}
    if created_by.get(ANNOTATION_CREATED_BY):
        stamp["user"] = created_by[ANNOTATION_CREATED_BY]
    return {ANNOTATION_USAGE: json.dumps(stamp, sort_keys=True, separators=(",", ":"))}


def micro_ipus_of(size: int, workers: int, position: int) -> int:
    """Return one worker's share of a partition of `size` IPUs, in millionths.

    The workers with the lowest numbers get the remainder, so that the shares add up exactly.
    """
    share, rest = divmod(size * MICRO_IPUS, workers)
    return share + (1 if position < rest else 0)


DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
MPI_VOLUME = "ipuhub-mpi"
MPI_FOLDER = "/etc/mpi"
SCRIPT = "kubexec.sh"
END_FILE = "end"
KUBECTL_VOLUME = "ipuhub-kubectl"
VIPU_VOLUME: Final = "ipuhub-vipu"
VIPU_FOLDER: Final = "/etc/ipuhub/vipu"
CA, CERTIFICATE, PRIVATE_KEY = "ca.crt", "tls.crt", "tls.key"
USER_ID, ACCESS_KEY = "user-id", "access-key"
# What `vipu` reads. Graphcore has not published what Poplar shows a secure V-IPU.
FROM_SECRET: Final = {"VIPU_CLI_API_USER_ID": USER_ID, "VIPU_CLI_API_ACCESS_KEY": ACCESS_KEY}
FILES: Final = {
    "VIPU_CLI_CA": CA,
    "VIPU_CLI_CERTIFICATE": CERTIFICATE,
    "VIPU_CLI_KEY": PRIVATE_KEY,
}


def sleep_command() -> list[str]:
    """Return a command that sleeps until it gets a signal to end.

    It ends with success at once on SIGTERM, and within seconds after the file appears (see
    `mpi_volume`). A bare `sleep` as process 1 ignores the signal, which takes the pod's whole grace
    period.
    """
    # Without a dollar: a kubelet reads `$(NAME)` and `$$` in commands before any shell does.
    watch = f"until [ -s {MPI_FOLDER}/{END_FILE} ]; do sleep 2; done"
    return ["sh", "-c", f'trap "exit 0" TERM; ({watch}) & wait']


def mpi_volume(config_map: str, items: list[Manifest], *, sleeps: bool) -> Manifest:
    """Return the volume at `MPI_FOLDER`: files of the job's ConfigMap.

    For a pod that sleeps it has one more file, which shows the pod's annotation `ipuhub.io/end`.
    The kubelet keeps it up to date: without it, telling a pod anything needs the right to run
    commands in it or to delete it.
    """
    files: Manifest = {"configMap": {"name": config_map, "items": items}}
    if not sleeps:
        return {"name": MPI_VOLUME} | files
    field = {"fieldPath": f"metadata.annotations['{ANNOTATION_END}']"}
    end = {"downwardAPI": {"items": [{"path": END_FILE, "fieldRef": field}]}}
    return {"name": MPI_VOLUME, "projected": {"sources": [files, end]}}


def pod_metadata(
    context: BuildContext, place: PodPlace, *, name: str, role: str, micro_ipus: int
) -> Manifest:
    """Labels and annotations: the job's, then the template's, then the operator's own."""
    template = context.spec.template.get("metadata") or {}
    labels = pod_labels(context.key, role, place.instance, place.attempt)
    own = {ANNOTATION_FINGERPRINT: context.fingerprint}
    given = {k: v for k, v in (template.get("annotations") or {}).items() if k != ANNOTATION_END}
    if context.spec.sleeps(role):
        own[ANNOTATION_END] = ""  # it will get the signal to end
    return {
        "name": name,
        "namespace": context.key.namespace,
        "labels": (template.get("labels") or {}) | labels,
        "annotations": inherited_annotations(context.job)
        | given
        | usage_annotation(context, place, micro_ipus)
        | own,
        "ownerReferences": [owner_reference(context.key)],
    }


def build_pod(metadata: Manifest, spec: Manifest) -> Manifest:
    """Return the pod. `kubectl logs` and `exec` choose its first container, in which the job runs,
    unless the user's annotation names another."""
    if len([*spec["containers"], *(spec.get("initContainers") or ())]) > 1:
        metadata["annotations"].setdefault(DEFAULT_CONTAINER, spec["containers"][0]["name"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_spec(context: BuildContext, place: PodPlace) -> Manifest:
    """Return a copy of the template's spec, with the operator's values for unset fields."""
    spec: Manifest = copy.deepcopy(context.spec.template["spec"])
    spec["restartPolicy"] = "Never"  # restarting is the operator's decision
    spec.setdefault("hostNetwork", context.options.host_network)
    if spec["hostNetwork"]:
        spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    else:
        spec.pop("hostNetwork")
    spec["nodeSelector"] = dict(place.partition.node_selector) | (spec.get("nodeSelector") or {})
    if context.options.scheduler_name:
        spec.setdefault("schedulerName", context.options.scheduler_name)
    for container in spec["containers"]:
        _allow_ipus(container)
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    return spec


def add_environment(container: Manifest, additions: Mapping[str, str]) -> None:
    """Appends the variables that the container does not set itself."""
    given = container.get("env") or []
    present = {variable.get("name") for variable in given}
    added = [
        {"name": name, "value": value} for name, value in additions.items() if name not in present
    ]
    container["env"] = [*given, *added]


def ipu_environment(context: BuildContext, place: PodPlace) -> dict[str, str]:
    """Return the variables by which Poplar finds the partition, and PopDist's totals in the alpha
    shape."""
    host, _, port = place.partition.controller.rpartition(":")
    environment = {
        "IPUOF_VIPU_API_HOST": host,
        "IPUOF_VIPU_API_PORT": port,
        "IPUOF_VIPU_API_PARTITION_ID": place.partition.id,
        "IPUOF_VIPU_API_TIMEOUT": str(context.options.vipu_timeout_seconds),
    }
    if context.spec.model_replicas is not None:
        environment["POPDIST_NUM_TOTAL_REPLICAS"] = str(context.spec.model_replicas)
        environment["POPDIST_NUM_IPUS_PER_REPLICA"] = str(context.spec.ipus_per_replica)
    return environment


def add_volume(spec: Manifest, volume: Manifest) -> None:
    """Adds a volume to a pod spec."""
    spec["volumes"] = [*(spec.get("volumes") or []), volume]


def add_mounts(container: Manifest, mounts: Iterable[Manifest]) -> None:
    """Adds mounts to a container."""
    container["volumeMounts"] = [*(container.get("volumeMounts") or []), *mounts]


def _allow_ipus(container: Manifest) -> None:
    """IPU memory is locked, which needs IPC_LOCK. A template that drops it by name, or has it
    already, keeps its word."""
    security = container.get("securityContext") or {}
    capabilities = security.get("capabilities") or {}
    added, dropped = capabilities.get("add") or [], capabilities.get("drop") or []
    has_it = security.get("privileged") is True or {ADDED_CAPABILITY, "ALL"} & {*added}
    if not has_it and ADDED_CAPABILITY not in dropped:
        capabilities = capabilities | {"add": [*added, ADDED_CAPABILITY]}
        container["securityContext"] = security | {"capabilities": capabilities}


def secret_name(job: str, key_id: str) -> str:
    """The Secret of one key, of its own name so that pods never start with a key that has ended.

    The default of IPUHUB_JOB_SECRETS lets no template name it.
    """
    return f"vipu-{job}-{key_id}"


def build_key_secret(job: JobKey, key: PodKey) -> Manifest:
    """Return the Secret, which is deleted with the job."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": child_metadata(job, secret_name(job.name, key.id)),
        "type": "Opaque",
        "immutable": True,
        "stringData": {
            USER_ID: key.user_id,
            ACCESS_KEY: key.access_key,
            CA: key.ca,
            CERTIFICATE: key.certificate,
            PRIVATE_KEY: key.private_key,
        },
    }


def add_key(spec: Manifest, containers: list[Manifest], job: str, partition: Partition) -> None:
    """Give containers of a pod the key to their partition.

    Variables that a container sets itself stay.
    """
    name = secret_name(job, partition.pod_key)
    items = [{"key": file, "path": file} for file in FILES.values()]
    add_volume(spec, {"name": VIPU_VOLUME, "secret": {"secretName": name, "items": items}})
    host, _, port = partition.controller.rpartition(":")
    plain = {"VIPU_CLI_API_HOST": host, "VIPU_CLI_API_PORT": port}
    paths = {variable: f"{VIPU_FOLDER}/{file}" for variable, file in FILES.items()}
    for container in containers:
        add_environment(container, plain | paths)
        given = {variable.get("name") for variable in container["env"]}
        container["env"] += [
            {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}
            for variable, key in FROM_SECRET.items()
            if variable not in given
        ]
        add_mounts(container, [{"name": VIPU_VOLUME, "mountPath": VIPU_FOLDER, "readOnly": True}])


def build_worker(context: BuildContext, place: PodPlace, worker: int) -> Manifest:
    """Return worker pod number `worker` of the job.

    In a job with a launcher its first container sleeps until the launcher starts processes in it;
    in a job without a launcher it runs the template's own command.
    """
    job = context.spec
    spec = pod_spec(context, place)
    for container in spec["containers"]:
        add_environment(container, ipu_environment(context, place))
    if place.partition.pod_key:
        add_key(spec, spec["containers"], context.key.name, place.partition)
    if job.has_launcher:
        main = spec["containers"][0]
        main["command"] = sleep_command()
        main.pop("args", None)
        _mount_script(context, spec, main)
    share = micro_ipus_of(
        job.partition_size, job.workers_per_instance, worker - job.workers_of(place.instance).start
    )
    name = worker_name(context.key.name, worker)
    metadata = pod_metadata(context, place, name=name, role=ROLE_WORKER, micro_ipus=share)
    return build_pod(metadata, spec)


def _mount_script(context: BuildContext, spec: Manifest, main: Manifest) -> None:
    """Open MPI looks for the remote-shell script on every host, also where it never calls it."""
    items = [{"key": SCRIPT, "path": SCRIPT, "mode": 0o555}]
    add_volume(spec, mpi_volume(launcher_name(context.key.name), items, sleeps=True))
    add_mounts(main, [{"name": MPI_VOLUME, "mountPath": MPI_FOLDER, "readOnly": True}])
