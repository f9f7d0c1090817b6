"""domain: what launcher and worker pods have in common."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from jobs.builders.context import (
    inherited_annotations,
    owner_reference,
    usage_annotation,
)
from jobs.madeof import ANNOTATION_MADE_OF, made_of
from jobs.names import pod_labels
from jobs.privileges import ADDED_CAPABILITY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobs.builders.context import (
        BuildContext,
        PodPlace,
    )
    from jobs.manifests import Manifest

MPI_VOLUME = "ipuhub-mpi"
KUBECTL_VOLUME = "ipuhub-kubectl"


def sleep_command(duration: str) -> list[str]:
    """A command that waits and ends at once on SIGTERM: a bare `sleep` as process 1 ignores the
    signal and costs the pod's whole grace period."""
    return ["sh", "-c", f'trap "exit 0" TERM; sleep {duration} & wait']


def pod_metadata(
    context: BuildContext, place: PodPlace, *, name: str, role: str, micro_ipus: int
) -> Manifest:
    """Labels and annotations: the job's, then the template's, then the operator's own."""
    template = context.spec.template.get("metadata") or {}
    labels = pod_labels(context.key, role, place.instance, place.attempt)
    return {
        "name": name,
        "namespace": context.key.namespace,
        "labels": (template.get("labels") or {}) | labels,
        "annotations": inherited_annotations(context.job)
        | (template.get("annotations") or {})
        | usage_annotation(context, place, micro_ipus)
        | {ANNOTATION_MADE_OF: made_of(context.spec).to_text()},
        "ownerReferences": [owner_reference(context.key)],
    }


def pod_spec(context: BuildContext, place: PodPlace) -> Manifest:
    """A copy of the template's spec with the operator's values where it says nothing."""
    spec: Manifest = copy.deepcopy(context.spec.template["spec"])
    spec["restartPolicy"] = "Never"  # restarting is the operator's decision
    spec.setdefault("hostNetwork", context.options.host_network)
    if spec["hostNetwork"]:
        spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    else:
        spec.pop("hostNetwork")
    spec["nodeSelector"] = dict(place.partition.node_selector) | (spec.get("nodeSelector") or {})
    for container in spec["containers"]:
        _allow_ipus(container)
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    return spec


def add_environment(container: Manifest, additions: Mapping[str, str]) -> None:
    """Appends the variables that the container does not set itself."""
    environment = container.setdefault("env", [])
    present = {variable.get("name") for variable in environment}
    environment += [
        {"name": name, "value": value} for name, value in additions.items() if name not in present
    ]


def ipu_environment(context: BuildContext, place: PodPlace) -> dict[str, str]:
    """How Poplar finds the partition, and PopDist's totals in the alpha shape."""
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
