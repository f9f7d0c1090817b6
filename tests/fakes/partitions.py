"""An in-memory V-IPU Proxy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ipuhub.partition import KEY_WANTED, Partition, PodKey, Reason

SILENT = {
    "reason": Reason.CONTROLLER_UNAVAILABLE,
    "message": "no V-IPU controller answers: 127.0.0.1:8090",
}


class ProxyAwayError(Exception):
    """The proxy does not answer."""

    retryable = True


class StaleAttemptError(Exception):
    """A call for an attempt that is over."""

    retryable = False


@dataclass(frozen=True)
class Try:
    """One attempt that requested IPUs from V-IPU; `was_active`: the partition worked just
    before."""

    holder: tuple[str, int]
    attempt: int
    was_active: bool


class FakePartitions:
    """Partitions of a fleet of `ipus`; a new partition is `first_phase`. `calls` lists all calls,
    `history` every (verb, uid, instance) that changed something, `tries` the attempts that were
    begun. With `is_slow` making and removing take until the next `tick`. While `refuses` is set the
    controller makes and resets none, with these words, and while `refuses_removal` is set it
    removes none. While `is_silent` the controller does not answer: calls wait until it does. With
    `is_secure` pods need keys: `valid_keys` has the keys that V-IPU takes, by holder."""

    def __init__(self, ipus: int = 32, node_selector: dict[str, str] | None = None) -> None:
        self.ipus = ipus
        self.node_selector = node_selector or {}
        self.records: dict[tuple[str, int], Partition] = {}
        self.away = False
        self.is_slow = False
        self.first_phase = "active"
        self.refuses = ""
        self.refuses_removal = ""
        self.is_silent = False
        self.is_secure = False
        self.makes_keys = True
        self.keys = 0
        self.valid_keys: dict[tuple[str, int], PodKey] = {}
        self.tries: list[Try] = []
        self._made: set[tuple[str, int]] = set()
        self.calls: list[str] = []
        self.history: list[tuple[str, str, int]] = []

    @property
    def used(self) -> int:
        return sum(_ipus_of(r) for r in self.records.values())

    @property
    def is_moving(self) -> bool:
        return any(r.phase in {"creating", "releasing"} for r in self.records.values())

    def held(self) -> list[Partition]:
        return [r for r in self.records.values() if r.phase != "released"]

    def set_phase(self, uid: str, instance: int, phase: str, message: str = "") -> None:
        record = self.records[uid, instance]
        reason = "PartitionError" if phase == "error" else ""
        new = replace(record, phase=phase, reason=reason, message=message)
        self.records[uid, instance] = new

    def break_all(self, message: str) -> None:
        """Everything that is ACTIVE turns ERROR."""
        for (uid, instance), record in list(self.records.items()):
            if record.phase == "active":
                self.set_phase(uid, instance, "error", message)

    def restart_empty(self) -> None:
        """The controller answers, and has lost its state: all earlier partitions are missing. An
        ACTIVE partition is found lost, one that was being created is created, one that was being
        removed is gone."""
        self.is_silent = False
        for holder in list(self._made):
            self.history.append(("lose", *holder))
        self._made.clear()
        self.valid_keys.clear()
        for holder, record in list(self.records.items()):
            if record.phase == "active":
                gone = f"{record.controller} no longer knows partition {record.id}"
                lost = replace(record, phase="error", reason=Reason.PARTITION_LOST, message=gone)
                self.records[holder] = lost
            elif record.phase == "creating":
                self._make(holder, "creating" if self.is_slow else self.first_phase)
            elif record.phase == "releasing":
                self.records[holder] = replace(record, phase="released", reason="", message="")

    def _make(self, holder: tuple[str, int], phase: str) -> None:
        """The controller makes the partition, or resets the partition that is there."""
        self.history.append(("reset" if holder in self._made else "create", *holder))
        self._made.add(holder)
        self.records[holder] = replace(self.records[holder], phase=phase, reason="", message="")

    def tick(self) -> None:
        """Finishes what is under way."""
        if self.is_silent:
            return
        after = {"creating": "active", "releasing": "released"}
        for (uid, instance), record in list(self.records.items()):
            if self.is_slow and record.phase in after:
                if record.phase == "releasing":
                    self._unmake(uid, instance)
                self.records[uid, instance] = replace(record, phase=after[record.phase])

    async def list(self) -> list[Partition]:
        self._answer("list")
        return list(self.records.values())

    async def ensure(
        self, *, uid: str, namespace: str, name: str, instance: int, size: int, attempt: int
    ) -> Partition:
        self._answer("ensure")
        known = self.records.get((uid, instance))
        if known is not None and attempt < known.attempt:
            raise StaleAttemptError(f"attempt {known.attempt} is known, {attempt} comes too late")
        if known is not None and known.phase == "releasing":
            return known
        if known is not None and known.phase != "released" and known.attempt == attempt:
            return known
        held = _ipus_of(known) if known is not None else 0
        new = Partition(
            uid=uid,
            namespace=namespace,
            name=name,
            instance=instance,
            attempt=attempt,
            id=f"p-{name}-{namespace}-{instance}",
            size=size,
            phase="creating" if self.is_slow else self.first_phase,
            controller="127.0.0.1:8090",
            node_selector=self.node_selector,
            pod_key=KEY_WANTED if self.is_secure else "",
        )
        if self.is_silent and not held:
            return replace(new, id="", phase="waiting", **SILENT)
        free = self.ipus - self.used + held
        if size > free:
            message = f"{size} IPUs in one block are needed and not free now"
            return replace(
                new, id="", phase="waiting", reason="NoCapacity", message=message, free=free
            )
        holder = (uid, instance)
        was_active = known is not None and known.phase == "active"
        self.tries.append(Try(holder, attempt, was_active))
        if self.is_silent:
            self.records[holder] = replace(new, phase="creating", **SILENT)
        elif self.refuses:
            refusal = {"reason": "CreateRefused", "message": self.refuses}
            self.records[holder] = replace(new, phase="error", **refusal)
        else:
            self.records[holder] = new
            self._make(holder, new.phase)
        return self.records[holder]

    async def reset(self, uid: str, instance: int, attempt: int) -> Partition:
        self._answer("reset")
        self.records[uid, instance] = replace(self.records[uid, instance], attempt=attempt)
        self.history.append(("reset", uid, instance))
        return self.records[uid, instance]

    async def release(self, uid: str, instance: int) -> Partition | None:
        self._answer("release")
        known = self.records.get((uid, instance))
        if known is None:
            return None
        if self.refuses_removal and known.phase != "released":
            refusal = {"reason": "ReleaseRefused", "message": self.refuses_removal}
            self.records[uid, instance] = replace(known, phase="releasing", **refusal)
            return self.records[uid, instance]
        if self.is_silent and known.phase != "released":
            self.records[uid, instance] = replace(known, phase="releasing", **SILENT)
            return self.records[uid, instance]
        if self.is_slow and known.phase != "released":
            self.records[uid, instance] = replace(known, phase="releasing")
            return self.records[uid, instance]
        if known.phase != "released":
            self._unmake(uid, instance)
        self.records[uid, instance] = replace(known, phase="released")
        return self.records[uid, instance]

    async def make_key(self, uid: str, instance: int, attempt: int) -> PodKey | None:
        self._answer("make_key")
        record = self.records[uid, instance]
        if (record.phase, record.attempt, record.pod_key) != ("active", attempt, KEY_WANTED):
            raise StaleAttemptError("no key is wanted")
        if not self.makes_keys:
            self.records[uid, instance] = replace(record, pod_key="")
            return None
        self.keys += 1
        number = f"{self.keys:08x}"
        made = PodKey(id=number, user_id=f"partition/{record.id}", access_key=f"secret-{number}")
        self.valid_keys[uid, instance] = made
        return made

    async def store_key(self, uid: str, instance: int, attempt: int, key_id: str) -> Partition:
        self._answer("store_key")
        record = self.records[uid, instance]
        if record.attempt != attempt or self.valid_keys[uid, instance].id != key_id:
            raise StaleAttemptError(f"{key_id} is not the last key made")
        self.records[uid, instance] = replace(record, pod_key=key_id)
        return self.records[uid, instance]

    def _unmake(self, uid: str, instance: int) -> None:
        self.valid_keys.pop((uid, instance), None)
        if (uid, instance) in self._made:
            self.history.append(("release", uid, instance))
            self._made.discard((uid, instance))

    def _answer(self, call: str) -> None:
        if self.away:
            raise ProxyAwayError("connection refused")
        self.calls.append(call)


def _ipus_of(record: Partition) -> int:
    """The IPUs that a partition has: of a released or lost partition, none."""
    return 0 if record.phase == "released" or record.is_lost else record.size
