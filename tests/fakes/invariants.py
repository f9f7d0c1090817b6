"""Invariants that must hold in every world at any time, whatever goes wrong."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from jobs.ipujob.names import (
    ANNOTATION_END,
    LABEL_ATTEMPT,
    LABEL_INSTANCE,
    LABEL_JOB_UID,
    LABEL_ROLE,
)

if TYPE_CHECKING:
    from tests.fakes.kube import Change, FakeKube
    from tests.fakes.partitions import FakePartitions

RANKS = {"Suspended": 0, "Restarting": 0, "Pending": 0, "Running": 1, "Completed": 2, "Failed": 2}
FINISHED = {"Completed", "Failed"}


class Invariants:
    """Reads the log of a world as it grows. That no partition is taken from a living pod is
    checked by the partitions themselves, at the call. `is_orderly`: no call fails, so that
    launchers are ended before their workers (a step that fails does not hold up the next)."""

    def __init__(self, kube: FakeKube, partitions: FakePartitions) -> None:
        self._kube = kube
        self._partitions = partitions
        self._read = 0
        self._status: dict[str, dict[str, Any]] = {}
        self._starts: Counter[tuple[str, str, str]] = Counter()
        self._started: set[str] = set()
        self._has_key: set[str] = set()
        self.keys_used = 0
        self._pods: dict[str, dict[str, Any]] = {}
        self.is_orderly = True

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
        if change.is_gone:
            self._check_nothing_left(uid)
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

    def _check_nothing_left(self, uid: str) -> None:
        """The finalizer goes last."""
        pods = [pod["metadata"]["name"] for pod in self._pods.values() if _job_of(pod) == uid]
        assert not pods, f"the job has gone before {pods}"

    def _check_pod(self, change: Change) -> None:
        uid = change.manifest["metadata"]["uid"]
        before = self._pods.pop(uid, None)
        if not change.is_gone:
            self._pods[uid] = change.manifest
            self._check_start(change)
            self._check_key(change)
        is_new_end = _is_ending(change.manifest) and not (before and _is_ending(before))
        if self.is_orderly and is_new_end and uid not in self._kube.taken:
            self._check_order(change.manifest)

    def _check_order(self, ending: dict[str, Any]) -> None:
        """A launcher gets its signal to end before its workers do."""
        labels = ending["metadata"]["labels"]
        if labels[LABEL_ROLE] == "launcher" or _job_of(ending) not in self._status:
            return
        same = [labels[name] for name in (LABEL_JOB_UID, LABEL_INSTANCE, LABEL_ATTEMPT)]
        for pod in self._pods.values():
            other = pod["metadata"]["labels"]
            if [other[name] for name in (LABEL_JOB_UID, LABEL_INSTANCE, LABEL_ATTEMPT)] == same:
                ends = _is_ending(pod) or pod["status"]["phase"] in {"Succeeded", "Failed"}
                assert other[LABEL_ROLE] == "worker" or ends, "workers end before their launcher"

    def _check_start(self, change: Change) -> None:
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

    def _check_key(self, change: Change) -> None:
        """Whatever begins to run can use the key that it was given."""
        meta = change.manifest["metadata"]
        if change.manifest["status"]["phase"] != "Running" or meta["uid"] in self._has_key:
            return
        self._has_key.add(meta["uid"])
        for container in change.manifest["spec"]["containers"]:
            for variable in container.get("env") or ():
                if variable["name"] == "VIPU_CLI_API_ACCESS_KEY":
                    self.keys_used += 1
                    ref = variable["valueFrom"]["secretKeyRef"]
                    secret = self._kube.objects["secrets", meta["namespace"], ref["name"]]
                    holder = _job_of(change.manifest), int(meta["labels"][LABEL_INSTANCE])
                    valid = self._partitions.valid_keys[holder]
                    given = secret["stringData"][ref["key"]]
                    assert given == valid.access_key, "a pod starts with a key that has ended"

    def _check_history(self) -> None:
        """One partition per instance at a time: made, cleaned, given back or lost, made again."""
        held: set[tuple[str, int]] = set()
        for verb, uid, instance in self._partitions.history:
            if verb == "create":
                assert (uid, instance) not in held, "a second partition"
                held.add((uid, instance))
            elif verb == "release":
                assert (uid, instance) in held, "released twice"
                held.remove((uid, instance))
            elif verb == "lose":
                held.remove((uid, instance))

    def starts(self) -> int:
        """Return the number of starts of a launcher's command."""
        return sum(self._starts.values())


def _job_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"][LABEL_JOB_UID])


def _is_ending(pod: dict[str, Any]) -> bool:
    """Return whether a pod has a request to end, and has not ended by itself."""
    if pod["status"]["phase"] in {"Succeeded", "Failed"}:
        return False
    meta = pod["metadata"]
    end = meta.get("deletionTimestamp") or meta.get("annotations", {}).get(ANNOTATION_END)
    return bool(end) or pod["spec"].get("activeDeadlineSeconds") == 1
