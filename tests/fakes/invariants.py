"""What must hold in every world at any time, whatever goes wrong."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from jobs.names import LABEL_ATTEMPT, LABEL_INSTANCE, LABEL_JOB_UID, LABEL_ROLE

if TYPE_CHECKING:
    from tests.fakes.kube import Change, FakeKube
    from tests.fakes.partitions import FakePartitions

RANKS = {"Suspended": 0, "Restarting": 0, "Pending": 0, "Running": 1, "Completed": 2, "Failed": 2}
FINISHED = {"Completed", "Failed"}


class Invariants:
    """Reads the log of a world as it grows. That no partition is taken from a living pod is
    checked by the partitions themselves, at the call."""

    def __init__(self, kube: FakeKube, partitions: FakePartitions) -> None:
        self._kube = kube
        self._partitions = partitions
        self._read = 0
        self._status: dict[str, dict[str, Any]] = {}
        self._starts: Counter[tuple[str, str, str]] = Counter()
        self._started: set[str] = set()

    def check(self) -> None:
        """Raises AssertionError for what has gone wrong since the last call."""
        for change in self._kube.changes[self._read :]:
            if change.plural == "ipujobs":
                self._check_job(change)
            elif change.plural == "pods":
                self._check_pod(change)
        self._read = len(self._kube.changes)
        self._check_history()

    def _check_job(self, change: Change) -> None:
        uid = change.manifest["metadata"]["uid"]
        status = change.manifest.get("status") or {}
        self._check_monotone(self._status.get(uid) or {}, status)
        self._status[uid] = status

    def _check_monotone(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        if old.get("launcherStatus") in FINISHED:
            assert new["launcherStatus"] == old["launcherStatus"], "a finished job lives again"
        assert new.get("restartCount", 0) >= old.get("restartCount", 0), "restarts are forgotten"
        after = {entry["index"]: entry for entry in new.get("instances") or ()}
        for was in old.get("instances") or ():
            entry = after.get(was["index"])
            assert entry is not None, f"instance {was['index']} is forgotten"
            assert entry["attempt"] >= was["attempt"], f"back to an earlier attempt: {was} {entry}"
            assert entry.get("restarts", 0) >= was.get("restarts", 0), f"{was} {entry}"
            if entry["attempt"] == was["attempt"]:
                ranks = RANKS[was["state"]], RANKS[entry["state"]]
                assert ranks[0] <= ranks[1], f"back within an attempt: {was} {entry}"

    def _check_pod(self, change: Change) -> None:
        """At most one launcher's command is started per job and attempt."""
        meta, status = change.manifest["metadata"], change.manifest["status"]
        labels = meta["labels"]
        is_first = status["phase"] == "Running" and meta["uid"] not in self._started
        if labels[LABEL_ROLE] != "launcher" or not is_first:
            return
        self._started.add(meta["uid"])
        attempt = labels[LABEL_JOB_UID], labels[LABEL_INSTANCE], labels[LABEL_ATTEMPT]
        self._starts[attempt] += 1
        assert self._starts[attempt] == 1, f"the command has started twice: {attempt}"

    def _check_history(self) -> None:
        """One partition per instance at a time: made, cleaned, given back, made again."""
        held: set[tuple[str, int]] = set()
        for verb, uid, instance in self._partitions.history:
            if verb == "create":
                assert (uid, instance) not in held, "a second partition"
                held.add((uid, instance))
            elif verb == "release":
                assert (uid, instance) in held, "released twice"
                held.remove((uid, instance))

    def starts(self) -> int:
        """How often a launcher's command has started."""
        return sum(self._starts.values())
