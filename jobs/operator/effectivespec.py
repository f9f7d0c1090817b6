"""domain: the spec that is currently in effect: running pods can delay an edit.

Webhooks refuse edits of the pods of a running job, but while they are down such an edit gets
through. Running pods keep the spec that they were created from until the next attempt, after a
restart or a resume. So each pod carries a fingerprint of its spec.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ipuhub.partition import Phase
from jobs.ipujob.conditions import CHANGED, JobState
from jobs.ipujob.fields import FIELDS, whole_number
from jobs.ipujob.spec import (
    LARGEST_PARTITION,
    JobSpec,
    plain_values,
    restart_policy,
    with_defaults,
)
from jobs.ipujob.validation import MOST_WORKERS, valid_policies
from jobs.operator.instancerecord import records_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobs.ipujob.names import Manifest
    from jobs.ipujob.spec import SessionLimits
    from jobs.operator.instancerecord import InstanceRecord
    from jobs.operator.observed import Instance, Observed
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
        """Return whether an instance that has not started was made of something else than
        `target`."""
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
    """Return the spec in effect: the spec of running or ended pods, otherwise the written spec."""
    fingerprints = _fingerprints(observed)
    fixed = next((fingerprint for record, fingerprint in fingerprints if _is_fixed(record)), None)
    if not fingerprints:
        return EffectiveSpec(written, written)
    old = fixed or fingerprints[0][1]
    changed = changes(old, fingerprint_of(written))
    if not changed:
        return EffectiveSpec(written, written)
    spec = merged_with_running(written, old)
    return EffectiveSpec(spec, spec if fixed else written, _sentence(changed))


def effective_spec_of_invalid(observed: Observed, written: Manifest) -> JobSpec | None:
    """Return the spec in effect of a job with an invalid spec; None if no pod has a fingerprint."""
    fingerprints = _fingerprints(observed)
    if not fingerprints:
        return None
    records = records_of(observed.status())
    wanted = [record for record in records if record.state != JobState.SUSPENDED]
    return merged_if_invalid(written, fingerprints[0][1], len(wanted) or 1, observed.limits)


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
    return f"{CHANGED}: {named}. Suspend and resume the job to apply the changes"


INTERACTIVE = "interactive"
_STUB = {"spec": {"containers": [{"name": "main", "image": "kept"}]}}
_FIELDS = {
    "size": "the partition's size",
    "workers": "the number of workers",
    "slots": "modelReplicasPerWorker",
    "launcher": "launcher",
    "template": "workers.template",
}


@dataclass(frozen=True, slots=True)
class PodFingerprint:
    """A fingerprint: `size` in IPUs and `workers` of one instance, and digests.

    `launcher` and `template` are digests; `launcher` is empty without a launcher. `ttl` is an
    interactive job's.
    """

    size: int
    workers: int
    slots: int
    launcher: str
    template: str
    ttl: int | None = None

    def to_text(self) -> str:
        """As the pods carry it."""
        return _text_of(self)


@lru_cache(maxsize=4096)  # every pass asks for it, and equal jobs share it
def _text_of(fingerprint: PodFingerprint) -> str:
    return json.dumps(asdict(fingerprint), sort_keys=True, separators=(",", ":"))


def fingerprint_of(spec: JobSpec) -> PodFingerprint:
    """Return the fingerprint of pods made from `spec`."""
    launcher = ""
    if spec.launcher_command is not None:
        launcher = _digest([spec.launcher_command, spec.launcher_env])
    return PodFingerprint(
        size=spec.partition_size,
        workers=spec.workers_per_instance,
        slots=spec.slots,
        launcher=INTERACTIVE if spec.is_interactive else launcher,
        template=_digest(spec.template),
        ttl=spec.ttl_seconds,
    )


@lru_cache(maxsize=4096)
def read_fingerprint(text: str) -> PodFingerprint | None:
    """Return the fingerprint of a pod; None if it is missing or not one that the operator writes.

    Everyone with the right to edit a pod can edit its annotation: a billion workers would take all
    memory.
    """
    try:
        found = json.loads(text)
        size, workers, slots = (whole_number(found[name]) for name in ("size", "workers", "slots"))
        texts = found["launcher"], found["template"]
        ttl = whole_number(found.get("ttl"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if (
        size is None
        or workers is None
        or slots is None
        or not all(isinstance(text, str) for text in texts)
    ):
        return None
    if size > LARGEST_PARTITION or workers > MOST_WORKERS:
        return None
    return PodFingerprint(size, max(workers, 1), max(slots, 1), *texts, ttl=ttl)


def changes(old: PodFingerprint, new: PodFingerprint) -> list[str]:
    """Return the names of the differences; an interactive job's ttl applies at once."""
    return [words for field, words in _FIELDS.items() if getattr(old, field) != getattr(new, field)]


def merged_with_running(written: JobSpec, old: PodFingerprint) -> JobSpec:
    """Return the spec of a running job: the spec that its pods were made from, with the allowed
    edits."""
    command: tuple[str, ...] | None = None
    ttl = None
    if old.launcher == INTERACTIVE:
        ttl = written.ttl_seconds or old.ttl or 1
    elif old.launcher:
        command = written.launcher_command or ()
    return replace(
        written,
        partition_size=old.size,
        workers_per_instance=old.workers,
        slots=old.slots,
        launcher_command=command,
        ttl_seconds=ttl,
        instances=1 if old.launcher else written.instances,
    )


def merged_if_invalid(
    written: Mapping[str, Any], old: PodFingerprint, instances: int, limits: SessionLimits
) -> JobSpec:
    """Return the spec for a running job whose spec became invalid.

    It has the fields that the pods were made from, and the valid policies. A session longer than
    the limit ends at the limit, or with the ttl that it began with.
    """
    written_policies = {name: written[name] for name in FIELDS.while_running if name in written}
    policies = with_defaults(valid_policies(written_policies))
    spec = JobSpec(
        partition_size=old.size,
        instances=instances,
        workers_per_instance=old.workers,
        slots=old.slots,
        template=_STUB,
        ttl_seconds=_session_seconds(written, old.ttl or 1, limits),
        restart=restart_policy(policies),
        plain=plain_values(policies),
    )
    return merged_with_running(spec, old)


def _session_seconds(written: Mapping[str, Any], begun_with: int, limits: SessionLimits) -> int:
    interactive = written.get("interactive")
    wanted = whole_number(interactive.get("ttl")) if isinstance(interactive, dict) else None
    if wanted is None or wanted < 1:
        return begun_with
    return min(wanted, max(limits.allowed(wanted), begun_with))


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
