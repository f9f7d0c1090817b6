"""The announcements of the next attempt in a status, compared with the operator's actions."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jobs.ipujob.conditions import OF_PARTITION
from jobs.ipujob.names import LABEL_INSTANCE, LABEL_JOB_UID
from jobs.ipujob.rules import USUAL

if TYPE_CHECKING:
    from tests.fakes.kube import FakeKube
    from tests.fakes.partitions import FakePartitions

MOST_IDLE_STEPS = 60  # two minutes: a lost event is made up for after one


class Announcements:
    """Attempts made are at most the attempts announced: none begins before its pause is over,
    unless the partition that the pause is for works again, and no partition lies ready during a
    long pause."""

    def __init__(self, kube: FakeKube, partitions: FakePartitions) -> None:
        self._kube = kube
        self._partitions = partitions
        self._read = 0
        self._tried = 0
        self._announced: dict[tuple[str, int, int], dict[str, Any]] = {}
        self._idle: Counter[tuple[str, int]] = Counter()

    def check(self, now: datetime) -> None:
        """Raises AssertionError for what has gone wrong since the last call."""
        for change in self._kube.changes[self._read :]:
            if change.plural == "ipujobs":
                uid, status = change.manifest["metadata"]["uid"], change.manifest.get("status")
                for entry in (status or {}).get("instances") or ():
                    key = (uid, entry["index"], entry["attempt"])
                    self._announced.setdefault(key, entry)
        self._read = len(self._kube.changes)
        for one in self._partitions.tries[self._tried :]:
            self._check_try(one.holder, one.attempt, now, is_healthy=one.was_active)
        self._tried = len(self._partitions.tries)
        for holder, record in self._partitions.records.items():
            self._check_idle(holder, record.attempt, now, is_ready=record.phase == "active")

    def _check_try(
        self, holder: tuple[str, int], attempt: int, now: datetime, *, is_healthy: bool
    ) -> None:
        entry = self._announced.get((*holder, attempt))
        assert entry is not None or attempt == 0, f"attempt {attempt} was not announced"
        begins = _begins(entry or {})
        is_for_partition = ((entry or {}).get("lastExit") or {}).get("reason") in OF_PARTITION
        early = begins is not None and now < begins
        assert not early or (is_for_partition and is_healthy), (
            f"attempt {attempt} of {holder} is made at {now}, announced for {begins}"
        )

    def _check_idle(
        self, holder: tuple[str, int], attempt: int, now: datetime, *, is_ready: bool
    ) -> None:
        entries = [self._announced.get((*holder, n)) for n in (attempt, attempt + 1)]
        begins = [at for entry in entries if entry and (at := _begins(entry)) is not None]
        left = max((at - now).total_seconds() for at in begins) if begins else 0.0
        if is_ready and left > USUAL.hold_seconds and not self._is_used(holder):
            self._idle[holder] += 1
        else:
            self._idle[holder] = 0
        assert self._idle[holder] <= MOST_IDLE_STEPS, f"{holder} holds a partition in a long pause"

    def _is_used(self, holder: tuple[str, int]) -> bool:
        for pod in self._kube.present_pods():
            labels = pod["metadata"]["labels"]
            whose = labels.get(LABEL_JOB_UID), int(labels.get(LABEL_INSTANCE) or 0)
            if whose == holder and pod["status"]["phase"] not in {"Succeeded", "Failed"}:
                return True
        return False


def _begins(entry: dict[str, Any]) -> datetime | None:
    text = entry.get("restartAt")
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) if text else None
