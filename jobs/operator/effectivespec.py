"""domain: the spec by which a job is brought up and judged now, which what runs may hold back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipuhub.partition import Phase
from jobs.ipujob.conditions import JobState
from jobs.ipujob.fingerprint import changes, kept, kept_of_invalid, made_of, read_stamp
from jobs.operator.instancerecord import records_of

if TYPE_CHECKING:
    from jobs.ipujob.fingerprint import MadeOf
    from jobs.ipujob.manifests import Manifest
    from jobs.ipujob.spec import JobSpec
    from jobs.operator.instancerecord import InstanceRecord
    from jobs.operator.instances import Instance
    from jobs.operator.observed import Observed
    from jobs.operator.pods import PodView

_HELD = frozenset({Phase.RESERVING, Phase.CREATING, Phase.ACTIVE, Phase.ERROR})


@dataclass(frozen=True, slots=True)
class InForce:
    """`spec` is what the job is judged by; `target` what new attempts of instances that have not
    started are made of; `waiting` names the changes that wait for the next attempt."""

    spec: JobSpec
    target: JobSpec
    waiting: str = ""

    def is_outdated(self, instance: Instance) -> bool:
        """Whether an instance that has not started was made of something else than `target`."""
        if instance.is_settled or instance.has_started:
            return False
        partition = instance.partition
        size = self.target.partition_size
        if (
            partition is not None
            and partition.phase in _HELD
            and partition.attempt == instance.attempt
            and partition.size not in {0, size}
        ):
            return True
        stamps = [read_stamp(pod.stamp) for pod in instance.pods if pod.stamp]
        wanted = made_of(self.target) if stamps else None
        return any(wanted and stamp and changes(stamp, wanted) for stamp in stamps)


def in_force(observed: Observed, written: JobSpec) -> InForce:
    """What runs, or has ended well or badly, decides; else what the spec says."""
    stamps = _stamps(observed)
    fixed = next((stamp for record, stamp in stamps if _is_fixed(record)), None)
    if not stamps:
        return InForce(written, written)
    old = fixed or stamps[0][1]
    changed = changes(old, made_of(written))
    if not changed:
        return InForce(written, written)
    spec = kept(written, old)
    return InForce(spec, spec if fixed else written, _sentence(changed))


def in_force_of_invalid(observed: Observed, written: Manifest) -> JobSpec | None:
    """By what a job with an invalid spec is judged; None: it has no pods that tell."""
    stamps = _stamps(observed)
    if not stamps:
        return None
    records = records_of(observed.status())
    wanted = [record for record in records if record.state != JobState.SUSPENDED]
    return kept_of_invalid(written, stamps[0][1], len(wanted) or 1, observed.limits)


def strays_of(observed: Observed) -> list[PodView]:
    """Pods of attempts that are over; a later attempt's belong to who knows of it."""
    attempts = {record.index: record.attempt for record in records_of(observed.status())}
    return [pod for pod in observed.pods if pod.attempt < attempts.get(pod.instance, 0)]


def _stamps(observed: Observed) -> list[tuple[InstanceRecord | None, MadeOf]]:
    """Of the pods of current attempts."""
    records = {record.index: record for record in records_of(observed.status())}
    found = []
    for pod in observed.pods:
        record = records.get(pod.instance)
        stamp = read_stamp(pod.stamp) if pod.stamp else None
        if stamp is not None and pod.attempt == (record.attempt if record else 0):
            found.append((record, stamp))
    return found


def _is_fixed(record: InstanceRecord | None) -> bool:
    return record is not None and (record.was_running or record.is_settled)


def _sentence(changed: list[str]) -> str:
    named = ", ".join(changed)
    return f"Changed while the job runs: {named}; suspend and resume the job to apply it"
