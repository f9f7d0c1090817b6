"""domain: the log of a container that nobody runs: an annotation, or a line per state."""

from __future__ import annotations

from typing import Any, Final

from devcluster.status import bad_request

LOG_ANNOTATION: Final = "sim/log"


def choose_container(pod: dict[str, Any], container: str) -> str:
    """Return the name of the container that is meant (empty: the only one). StatusError 400."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [c["name"] for c in spec["containers"]]
    initial = [c["name"] for c in spec.get("initContainers") or []]
    annotations = pod["metadata"].get("annotations") or {}
    if not container:
        container = annotations.get("kubectl.kubernetes.io/default-container", "")
    if not container and len(names) > 1:
        raise bad_request(
            f"a container name must be specified for pod {name}, choose one of: "
            f"[{' '.join(names)}]"
            + (f" or one of the init containers: [{' '.join(initial)}]" if initial else "")
        )
    container = container or names[0]
    if container not in names + initial:
        raise bad_request(f"container {container} is not valid for pod {name}")
    return container


def check_started(pod: dict[str, Any], container: str) -> None:
    """Refuse the log of a container that never ran. StatusError 400."""
    state = _state(pod, container)
    if "waiting" in state or not state:
        reason = state.get("waiting", {}).get("reason", "ContainerCreating")
        name = pod["metadata"]["name"]
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')


def container_log(pod: dict[str, Any], container: str) -> str:
    """Return the log of a container of `pod` (empty: the only one). StatusError 400.

    The annotation `sim/log` is the log of the pod's first container; `sim/log.<name>` that of
    the container of that name.
    """
    container = choose_container(pod, container)
    check_started(pod, container)
    annotations = pod["metadata"].get("annotations") or {}
    given = annotations.get(f"{LOG_ANNOTATION}.{container}")
    if given is None and container == pod["spec"]["containers"][0]["name"]:
        given = annotations.get(LOG_ANNOTATION)
    if given is not None:
        return given if given.endswith("\n") or not given else f"{given}\n"
    return _generated(container, _state(pod, container))


def is_over(pod: dict[str, Any], container: str) -> bool:
    """Whether the container (empty: the first) has ended for good."""
    container = container or pod["spec"]["containers"][0]["name"]
    return "terminated" in _state(pod, container)


def _state(pod: dict[str, Any], container: str) -> dict[str, Any]:
    status = pod.get("status") or {}
    known = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    states = [entry.get("state") or {} for entry in known if entry["name"] == container]
    return states[0] if states else {}


def _generated(container: str, state: dict[str, Any]) -> str:
    ended = state.get("terminated")
    started = (ended or state["running"]).get("startedAt", "")
    lines = [f"{started} {container}: started"]
    if ended is not None:
        code, moment = ended.get("exitCode", 0), ended.get("finishedAt", "")
        lines.append(f"{moment} {container}: ended with exit code {code}")
    return "".join(f"{line}\n" for line in lines)
