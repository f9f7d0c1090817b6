"""domain: the parts of a pod that metering reads, decoded straight from the API's JSON."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  # msgspec reads the annotations
from typing import Final, TypeAlias

import msgspec

from ipuhub.recording.shapes import ObjectMeta

Amounts: TypeAlias = dict[str, str | int | float]


class _Shape(msgspec.Struct, rename="camel", gc=False):
    """Unknown fields are skipped; a missing one has its default."""


class OwnerReference(_Shape):
    """Who an object belongs to."""

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
    """What a container, or a whole pod, asks for."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class Container(_Shape):
    """A container; `restart_policy` Always makes an init container a sidecar."""

    resources: Resources | None = None
    restart_policy: str | None = None


class PodSpec(_Shape):
    """A pod's wish."""

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
    """At most one of them; none means waiting."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Shape):
    """What became of a container."""

    state: ContainerState | None = None


class Condition(_Shape):
    """One condition of a pod."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class PodStatus(_Shape):
    """What became of a pod."""

    phase: str = ""
    reason: str | None = None
    start_time: datetime | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


NO_SPEC: Final = msgspec.Raw(b"{}")


class Pod(_Shape):
    """A pod. Its wish stays as it was sent: it hardly ever changes, and is decoded once."""

    metadata: PodMeta
    spec: msgspec.Raw = NO_SPEC
    status: PodStatus | None = None
