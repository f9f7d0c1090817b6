"""Pods that start and end in real time, and a check of their recorded lifetimes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.fakes.podstream import STEPS, Truth, pod_of, uid_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping, Sequence

    from tests.fakes.podstream import PodStream

    Row = Mapping[str, Any]


@dataclass
class LiveStream:
    """Lets pods live and go in real time, and remembers when they did."""

    server: PodStream
    scheduled: dict[int, datetime] = field(default_factory=dict)
    ended: dict[int, datetime] = field(default_factory=dict)
    added: dict[int, datetime] = field(default_factory=dict)
    deleted: dict[int, datetime] = field(default_factory=dict)

    def step(self, number: int, step: str) -> None:
        now = datetime.now(UTC)
        if step == "ADDED":
            self.added[number] = now
        elif step == "DELETED":
            self.deleted[number] = now
        elif step == "RUNNING":
            self.scheduled[number] = now
        elif step == "ENDED":
            self.ended[number] = now
        begun = self.scheduled.get(number, now).replace(microsecond=0)
        ended = self.ended.get(number, now).replace(microsecond=0)  # as Kubernetes cuts it
        truth, padding = Truth(uid_of(number), begun, ended), self.server.padding
        manifest = pod_of(number, step, padding=padding, truth=truth)
        self.server.put(step if step in {"ADDED", "DELETED"} else "MODIFIED", manifest)

    async def run(self, pods: range, steps: int, gate: asyncio.Semaphore) -> None:
        """`steps` portions, each when `gate` lets it pass."""
        work = [
            (number, step)
            for first in range(pods.start, pods.stop, 100)
            for step in STEPS
            for number in range(first, min(first + 100, pods.stop))
        ]
        size = -(-len(work) // steps)
        for first in range(0, len(work), size):
            await gate.acquire()
            for number, step in work[first : first + size]:
                self.step(number, step)
            await self.server.tell()


def compare(
    stream: LiveStream, pods: range, rows: Iterable[Row], gaps: Sequence[Row]
) -> Counter[str]:
    """Check the row of each of `pods` against its life; count the sources of their ends.

    What is estimated is off by no more than it says, and ended in a stored gap; only a pod whose
    whole life lies in a stored gap may have no row.
    """

    def is_in_a_gap(begin: datetime, end: datetime) -> bool:
        return any(gap["began_at"] <= begin and end <= gap["ended_at"] for gap in gaps)

    by_uid = {row["uid"]: row for row in rows}
    found: Counter[str] = Counter()
    for number in pods:
        row = by_uid.get(uid_of(number))
        if row is None:
            is_hidden = is_in_a_gap(stream.added[number], stream.deleted[number])
            assert is_hidden, f"pod {number} has no row, and lived outside of every gap"
            found["inside a gap"] += 1
            continue
        ended = stream.ended[number]
        assert row["finished_at"] is not None, number
        begun = stream.scheduled[number].replace(microsecond=0)
        assert row["scheduled_at"] in {begun, None}, number
        if row["estimated"]:
            off = abs((row["finished_at"] - ended).total_seconds())
            assert off <= row["uncertainty_seconds"], (number, off, row)
            assert is_in_a_gap(ended, ended), f"pod {number} is estimated, and ended in no gap"
        else:
            assert row["scheduled_at"] == begun
            assert row["finished_at"] == ended.replace(microsecond=0), number
        found[f"{row['end_source']}{' estimated' if row['estimated'] else ''}"] += 1
    return found
