"""domain: reads existing partitions from the tracker of Graphcore's operator.

Its layout was never published. So its text is only searched for the ids of partitions that a V-IPU
controller lists. The owner follows from the id, which that operator made of the job's name,
namespace and instance (`p-<job>-<namespace>-<instance>`), and from the existing jobs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from partitions.errors import UnreadableEntry
from partitions.proxy.drift import Claim
from partitions.proxy.tracker import decode_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from partitions.proxy.drift import UntrackedPartition
    from partitions.proxy.lifecycle import TrackerEntry

    Manifest = Mapping[str, Any]

_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Finding:
    """A key of the original tracker, and what is to be done about it.

    `stranger`: the partition to adopt, for its claim; None: nothing, and `why` says why not.
    `is_settled`: nothing is left to do.
    """

    key: str
    reason: str = ""
    stranger: UntrackedPartition | None = None
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """The existing objects: partitions without an entry, entries that hold a partition, and
    jobs."""

    strangers: tuple[UntrackedPartition, ...]
    entries: tuple[TrackerEntry, ...]
    jobs: tuple[Manifest, ...]


def is_ours(key: str, text: str) -> bool:
    """Return whether a value is an entry of our own tracker."""
    try:
        decode_entry(key, text)
    except UnreadableEntry:
        return False
    return True


def findings(data: Mapping[str, str], known: Known) -> Iterator[Finding]:
    """Yield a finding for each key; a key that names several partitions has several."""
    for key, text in sorted(data.items()):
        if not is_ours(key, text):
            yield from _of_key(key, text, known)


def _of_key(key: str, text: str, known: Known) -> Iterator[Finding]:
    words = {word.rstrip(".-_") for word in _WORD.findall(f"{key} {text}")}
    named = [each for each in known.strangers if each.id in words]
    held = [entry for entry in known.entries if entry.id in words]
    for entry in held:
        whose = f"{entry.namespace}/{entry.name}"
        yield Finding(key, f"{entry.id} is in the tracker already, for {whose}", is_settled=True)
    for stranger in named:
        yield _judged(key, stranger, [each for each in named if each.id == stranger.id], known)
    if not named and not held:
        yield Finding(key, "it names no partition that a V-IPU controller has")


def _judged(
    key: str, stranger: UntrackedPartition, same: list[UntrackedPartition], known: Known
) -> Finding:
    where = f"{stranger.id} on {stranger.controller}"
    if len(same) > 1:
        return Finding(key, f"{where}: {len(same)} controllers have a partition of this id")
    claims = [*_claims(stranger.id, known.jobs)]
    if len(claims) != 1:
        fits = ", ".join(f"{claim.namespace}/{claim.name}" for claim, _ in claims)
        reason = f"its id fits several jobs ({fits})" if fits else "no IPUJob fits its id"
        return Finding(key, f"{where}: {reason}")
    claim, size = claims[0]
    whose = f"{claim.namespace}/{claim.name}"
    if size != stranger.size:
        return Finding(key, f"{where} has {stranger.size} IPUs, but {whose} asks for {size}")
    for entry in known.entries:
        if (entry.uid, entry.instance) == (claim.uid, claim.instance):
            return Finding(key, f"{where}: {whose} holds {entry.id} by now")
    return Finding(key, f"{where} belongs to {whose}", replace(stranger, claim=claim))


def _claims(partition: str, jobs: Iterable[Manifest]) -> Iterator[tuple[Claim, int]]:
    """Yield each job that could have an instance with this id, with the size that it requests."""
    for job in jobs:
        meta, spec = job["metadata"], job.get("spec") or {}
        before = f"p-{meta['name']}-{meta['namespace']}-"
        tail = partition.removeprefix(before)
        instances = _number(spec.get("jobInstances"), 1)
        if tail != partition and tail.isdecimal() and int(tail) < instances:
            claim = Claim(meta["uid"], meta["namespace"], meta["name"], int(tail), 0)
            yield claim, _size(spec)


def _size(spec: Mapping[str, Any]) -> int:
    """Return how many IPUs an instance asks for, in the words of either version of the spec."""
    if spec.get("ipusPerJobInstance") is not None:
        return _number(spec["ipusPerJobInstance"], 0)
    return _number(spec.get("modelReplicas"), 1) * _number(spec.get("ipusPerModelReplica"), 1)


def _number(value: Any, default: int) -> int:
    """Return a number of a spec, which may be text."""
    text = str(default if value is None else value)
    return int(text) if text.isdecimal() else 0
