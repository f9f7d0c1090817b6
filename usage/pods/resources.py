"""domain: the size of a pod: its requests by the rules of the Kubernetes scheduler.

Also the fields of a pod that metering reads, decoded from the API's JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003  # msgspec reads the annotations
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from ipuhub.quantities import LARGEST, InvalidQuantity, thousandths, units
from ipuhub.recording.shapes import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Amounts: TypeAlias = dict[str, str | int | float]


class _Shape(msgspec.Struct, rename="camel", gc=False):
    """A decoded object: unknown fields are skipped, a missing field has its default."""


class OwnerReference(_Shape):
    """The owner of an object."""

    api_version: str = ""
    kind: str = ""
    uid: str = ""
    controller: bool | None = None


class PodMeta(ObjectMeta, rename="camel", gc=False):
    """A pod's metadata."""

    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Resources(_Shape):
    """The requests and limits of a container or of a whole pod."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class Container(_Shape):
    """A container; `restart_policy` Always makes an init container a sidecar."""

    resources: Resources | None = None
    restart_policy: str | None = None


class PodSpec(_Shape):
    """The spec of a pod."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Amounts | None = None
    resources: Resources | None = None
    node_name: str | None = None


class Running(_Shape):
    """A container that runs."""

    started_at: datetime | None = None


class Terminated(_Shape):
    """A container that ended; a node that was lost leaves no times."""

    exit_code: int = 0
    reason: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(_Shape):
    """The state of a container: at most one field is set; none means waiting."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Shape):
    """The status of a container."""

    state: ContainerState | None = None


class Condition(_Shape):
    """One condition of a pod."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class PodStatus(_Shape):
    """The status of a pod."""

    phase: str = ""
    reason: str | None = None
    start_time: datetime | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


NO_SPEC: Final = msgspec.Raw(b"{}")


class Pod(_Shape):
    """A pod. Its spec stays as it was sent: it hardly ever changes, and is decoded once."""

    metadata: PodMeta
    spec: msgspec.Raw = NO_SPEC
    status: PodStatus | None = None


GPU_RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu", "gpu.intel.com/*")
IPU_PREFIX: Final = "graphcore.ai/ipu"
MICRO_IPUS: Final = 1_000_000
_MOST_IPUS: Final = LARGEST // MICRO_IPUS
# Parts and properties of an Intel GPU, no further GPUs.
_NO_GPUS: Final = ("millicores", "memory.max", "tiles", "monitoring")


@dataclass(frozen=True, slots=True)
class Held:
    """Exact amounts: millicores, bytes, accelerators by resource name, whole IPUs requested."""

    cpu_millicores: int = 0
    memory_bytes: int = 0
    accelerators: dict[str, int] = field(default_factory=dict)
    ipus: int = 0

    @property
    def gpus(self) -> int:
        """All accelerators together."""
        return sum(self.accelerators.values())


@dataclass(frozen=True, slots=True)
class PodRequests:
    """The spec of a pod: its size, its node, and which amounts are invalid."""

    held: Held
    node: str
    problems: tuple[str, ...]


_SPEC: Final = msgspec.json.Decoder(PodSpec)


# A pod's changes show the same spec again and again, within minutes; each spec is some 2 KB.
@lru_cache(maxsize=512)
def requests_of(spec: bytes, gpu_resources: tuple[str, ...] = GPU_RESOURCES) -> PodRequests:
    """Decode a pod's spec. Raises ValueError if it is invalid."""
    try:
        decoded = _SPEC.decode(spec)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"the spec cannot be read: {error}") from error
    problems: list[str] = []
    held = held_by(decoded, problems, gpu_resources)
    return PodRequests(held, decoded.node_name or "", tuple(problems))


def held_by(
    spec: PodSpec, problems: list[str], gpu_resources: Sequence[str] = GPU_RESOURCES
) -> Held:
    """Return the size of a pod of `spec`. An invalid amount counts as 0 and is listed in
    `problems`."""
    totals = _Totals(spec, problems)
    accelerators: dict[str, int] = {}
    ipus = 0
    for name in sorted(totals.names - {"cpu", "memory"}):
        if name.startswith(IPU_PREFIX):
            ipus = min(ipus + totals.of(name, units), _MOST_IPUS)
        elif is_gpu(name, gpu_resources) and (amount := totals.of(name, units)):
            accelerators[name] = amount
    if sum(accelerators.values()) > LARGEST:
        problems.append("the accelerators together do not fit 64 bits: none is counted")
        accelerators = {}
    return Held(totals.of("cpu", thousandths), totals.of("memory", units), accelerators, ipus)


def is_gpu(name: str, gpu_resources: Sequence[str]) -> bool:
    """Return whether a resource counts GPUs, by exact names and prefixes that end in `*`."""
    for pattern in gpu_resources:
        if pattern.endswith("*"):
            if name.startswith(pattern[:-1]) and not name.endswith(_NO_GPUS):
                return True
        elif name == pattern:
            return True
    return False


class _Totals:
    """Sums of one pod, resource by resource."""

    def __init__(self, spec: PodSpec, problems: list[str]) -> None:
        self._problems = problems
        self._containers = [_wanted(container.resources) for container in spec.containers or ()]
        self._init = [
            (_wanted(container.resources), _is_sidecar(container))
            for container in spec.init_containers or ()
        ]
        self._overhead: Amounts = spec.overhead or {}
        self._pod = _wanted(spec.resources)
        self.names: set[str] = set(self._overhead) | set(self._pod)
        self.names.update(*self._containers, *(amounts for amounts, _ in self._init))

    def of(self, name: str, parse: Callable[[str | float], int]) -> int:
        """The larger of what runs together and what any step of the start needs, plus overhead.

        Sidecars run from their place in the start on. Requests of the whole pod go before.
        """

        def amount(amounts: Amounts) -> int:
            text = amounts.get(name)
            if text is None:
                return 0
            try:
                return parse(text)
            except InvalidQuantity as error:
                self._problems.append(f"{name}: {error}")
                return 0

        if name in self._pod:
            total = amount(self._pod)
        else:
            sidecars = peak = 0
            for amounts, is_sidecar in self._init:
                step = amount(amounts)
                peak = max(peak, sidecars + step)
                sidecars += step if is_sidecar else 0
            total = max(peak, sidecars + sum(amount(container) for container in self._containers))
        total += amount(self._overhead)
        if total > LARGEST:
            self._problems.append(f"{name}: the sum does not fit 64 bits")
            return 0
        return total


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _wanted(resources: Resources | None) -> Amounts:
    """Requests; limits where a request is missing, as the API server fills them in."""
    if resources is None:
        return {}
    if not resources.limits:
        return resources.requests or {}
    return {**resources.limits, **(resources.requests or {})}
