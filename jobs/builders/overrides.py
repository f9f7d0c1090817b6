"""domain: what a job's pod template says and its pods do not get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.builders.launcher import DROPPED_FROM_CONTAINER, DROPPED_FROM_POD
from jobs.ipujob.names import ANNOTATION_USAGE, ROLE_WORKER, JobKey, pod_labels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobs.ipujob.manifests import Manifest
    from jobs.ipujob.spec import JobSpec

OWN_LABELS = frozenset(pod_labels(JobKey("", "", ""), ROLE_WORKER, 0, 0))
_CONTAINERS = ("initContainers", "ephemeralContainers")


def overrides(spec: JobSpec) -> str:
    """What of the template is not used as written, in one sentence; empty: all is."""
    found = [*_metadata(spec.template.get("metadata") or {}), *_of_pods(spec.template["spec"])]
    if spec.has_launcher:
        found += [*_of_workers(spec.template["spec"]), *_of_launcher(spec.template["spec"])]
    return f"Not used as the template says: {'; '.join(found)}" if found else ""


def _metadata(template: Manifest) -> Iterator[str]:
    own = sorted(OWN_LABELS & {*(template.get("labels") or ())})
    if own:
        yield f"labels {', '.join(own)}, which the operator sets"
    if ANNOTATION_USAGE in (template.get("annotations") or {}):
        yield f"annotation {ANNOTATION_USAGE}, which the operator sets"


def _of_pods(pod: Manifest) -> Iterator[str]:
    policy = pod.get("restartPolicy")
    if policy not in {None, "Never"}:
        yield f"restartPolicy {policy} is Never (spec.restartPolicy restarts the job)"


def _of_workers(pod: Manifest) -> Iterator[str]:
    main = pod["containers"][0]
    said = [field for field in ("command", "args") if main.get(field)]
    if said:
        yield f"workers sleep instead of running {' and '.join(said)} of container {main['name']}"


def _of_launcher(pod: Manifest) -> Iterator[str]:
    main, *others = pod["containers"]
    parts = [_named(kind, pod[kind]) for kind in _CONTAINERS if pod.get(kind)]
    parts += [_named("containers", others)] if others else []
    rest = [field for field in DROPPED_FROM_POD if field not in _CONTAINERS]
    parts += [f"{field} of the pod" for field in rest if pod.get(field)]
    dropped = [f for f in DROPPED_FROM_CONTAINER if main.get(f) and f != "args"]
    parts += [f"{', '.join(dropped)} of container {main['name']}"] if dropped else []
    if parts:
        yield f"the launcher goes without {', '.join(parts)}"
    account = pod.get("serviceAccountName") or pod.get("serviceAccount")
    if account:
        yield f"the launcher's serviceAccountName is its own, not {account}"
    if pod.get("automountServiceAccountToken") is False:
        yield "the launcher gets its service account's token all the same"


def _named(kind: str, containers: list[Manifest]) -> str:
    return f"{kind} {', '.join(str(one.get('name')) for one in containers)}"
