"""io: what a plan takes effect on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from jobs.operator.measures import KEEPS_NOTHING
from jobs.operator.statuskeeper import StatusKeeper

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ipuhub.kube.client import KubeClient
    from jobs.ipujob.manifests import Manifest
    from jobs.operator.caches import Caches
    from jobs.operator.expectations import Expectations
    from jobs.operator.measures import Measures
    from jobs.operator.partitions import PartitionFacts
    from jobs.ports import Partitions


class Recorder(Protocol):
    """Tells about a job in Events; never raises."""

    async def record(
        self,
        regarding: Manifest,
        *,
        type: Literal["Normal", "Warning"],  # noqa: A002  # the API's word
        reason: str,
        message: str,
    ) -> None:
        """One Event."""
        ...


@dataclass(frozen=True, slots=True)
class Effects:
    """Where a plan takes effect."""

    client: KubeClient
    partitions: Partitions
    recorder: Recorder
    caches: Caches
    facts: PartitionFacts
    expectations: Expectations
    now: Callable[[], datetime]
    measures: Measures = KEEPS_NOTHING
    keeper: StatusKeeper = field(default_factory=StatusKeeper)
