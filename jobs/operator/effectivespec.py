"""domain: the spec that is in effect now: what is running can delay an edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipuhub.partition import Phase
from jobs.ipujob.conditions import JobState
from jobs.ipujob.fingerprint import changes, fingerprint_of, kept, kept_of_invalid, read_fingerprint
from jobs.operator.instancerecord import records_of

if TYPE_CHECKING:
    from jobs.ipujob.fingerprint import PodFingerprint
    from jobs.ipujob.manifests import Manifest
    from jobs.ipujob.spec import JobSpec
    from jobs.operator.instancerecord import InstanceRecord
    from jobs.operator.instances import Instance
    from jobs.operator.observed import Observed
    from jobs.operator.pods import PodView

_HELD = frozenset({Phase.RESERVING, Phase.CREATING, Phase.ACTIVE, Phase.ERROR})


@dataclass(frozen=True, slots=True)
class EffectiveSpec:
    """The spec in effect.

    `spec` applies to the job; new attempts of instances that have not started are made from
    `target`; `waiting` names the changes that wait for the next attempt.
    """

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
        fingerprints = [
            read_fingerprint(pod.fingerprint) for pod in instance.pods if pod.fingerprint
        ]
        wanted = fingerprint_of(self.target) if fingerprints else None
        return any(
            wanted and fingerprint and changes(fingerprint, wanted) for fingerprint in fingerprints
        )


def effective_spec(observed: Observed, written: JobSpec) -> EffectiveSpec:
    """Return the spec in effect: that of what runs or has ended; otherwise the written spec."""
    fingerprints = _fingerprints(observed)
    fixed = next((fingerprint for record, fingerprint in fingerprints if _is_fixed(record)), None)
    if not fingerprints:
        return EffectiveSpec(written, written)
    old = fixed or fingerprints[0][1]
    changed = changes(old, fingerprint_of(written))
    if not changed:
        return EffectiveSpec(written, written)
    spec = kept(written, old)
    return EffectiveSpec(spec, spec if fixed else written, _sentence(changed))


def effective_spec_of_invalid(observed: Observed, written: Manifest) -> JobSpec | None:
    """Return the spec in effect of a job with an invalid spec; None if no pod shows one."""
    fingerprints = _fingerprints(observed)
    if not fingerprints:
        return None
    records = records_of(observed.status())
    wanted = [record for record in records if record.state != JobState.SUSPENDED]
    return kept_of_invalid(written, fingerprints[0][1], len(wanted) or 1, observed.limits)


def strays_of(observed: Observed) -> list[PodView]:
    """Return pods of past attempts; pods of a later attempt belong to its operator."""
    attempts = {record.index: record.attempt for record in records_of(observed.status())}
    return [pod for pod in observed.pods if pod.attempt < attempts.get(pod.instance, 0)]


def _fingerprints(observed: Observed) -> list[tuple[InstanceRecord | None, PodFingerprint]]:
    """Of the pods of current attempts."""
    records = {record.index: record for record in records_of(observed.status())}
    found = []
    for pod in observed.pods:
        record = records.get(pod.instance)
        fingerprint = read_fingerprint(pod.fingerprint) if pod.fingerprint else None
        if fingerprint is not None and pod.attempt == (record.attempt if record else 0):
            found.append((record, fingerprint))
    return found


def _is_fixed(record: InstanceRecord | None) -> bool:
    return record is not None and (record.was_running or record.is_settled)


def _sentence(changed: list[str]) -> str:
    named = ", ".join(changed)
    return f"Changed while the job runs: {named}. Suspend and resume the job to apply the changes"
