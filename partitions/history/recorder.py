"""io: records partitions from the tracker and capacity from the proxy in PostgreSQL."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ipuhub.kube.resources import CONFIG_MAPS
from ipuhub.kube.watch import Scope
from ipuhub.partition import Phase
from ipuhub.recording.recorder import Fault, Subject
from ipuhub.recording.shapes import CHECKPOINT_TABLE, GAP_TABLE
from partitions.errors import UnreadableEntry
from partitions.history.capacity import Capacity
from partitions.proxy.tracker import decode_entry
from partitions.proxy.trackerstore import LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from psycopg import Cursor

    from ipuhub.recording.recorder import VanishedObjects
    from partitions.proxy.lifecycle import TrackerEntry


@dataclass(frozen=True, slots=True)
class UnreadableText:
    """A value that is no entry: a newer version wrote it, or a person."""

    key: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShardRow:
    """The contents of one ConfigMap: entries, and unreadable keys. A deleted ConfigMap has none."""

    uid: str
    namespace: str
    name: str
    entries: tuple[TrackerEntry, ...] = ()
    unreadable: tuple[UnreadableText, ...] = ()

    @property
    def keys(self) -> list[str]:
        """Every key that is there, read or not: none of these has vanished."""
        return [entry.key for entry in self.entries] + [broken.key for broken in self.unreadable]


def shard_of(config_map: Mapping[str, Any], *, is_deleted: bool = False) -> ShardRow:
    """Decode a ConfigMap; never raises, whatever it contains."""
    meta = config_map.get("metadata") or {}
    uid, namespace, name = (str(meta.get(part, "")) for part in ("uid", "namespace", "name"))
    if is_deleted:
        return ShardRow(uid, namespace, name)
    entries, unreadable = [], []
    for key, text in (config_map.get("data") or {}).items():
        try:
            entries.append(decode_entry(key, text))
        except UnreadableEntry as error:
            unreadable.append(UnreadableText(key, str(text), str(error)))
    return ShardRow(uid, namespace, name, tuple(entries), tuple(unreadable))


def tombstones(entries: tuple[TrackerEntry, ...]) -> list[str]:
    """Return the keys of released holdings that wait for an acknowledgement."""
    return [entry.key for entry in entries if entry.phase is Phase.RELEASED and not entry.recorded]


VANISHED = "Vanished"


class Owner(NamedTuple):
    """The group and user that a job's partitions count for.

    An empty user is unknown; an unverified user is only claimed.
    """

    group: str
    user: str
    user_verified: bool = False


# An end that was only concluded is taken back when the entry is there after all; a tombstone's
# times are final. Rows that would not change are not written.
_LIFETIME = """
INSERT INTO partitions_partitionlifetime AS known (
    key, cluster_uid, shard, job_uid, namespace, job_name, instance, attempt, partition, controller,
    size, phase, reason, message, "group", "user", user_verified, reserved_at, active_at,
    released_at, estimated, uncertainty_seconds, updated_at)
VALUES (
    %(key)s, %(cluster_uid)s, %(shard)s, %(uid)s, %(namespace)s, %(name)s, %(instance)s,
    %(attempt)s, %(id)s, %(controller)s, %(size)s, %(phase)s, %(reason)s, %(message)s,
    %(group)s, %(user)s, %(user_verified)s, %(reserved_at)s, %(active_at)s, %(released_at)s,
    %(estimated)s, 0, %(now)s)
ON CONFLICT (key) DO UPDATE SET
    shard = excluded.shard,
    attempt = excluded.attempt,
    partition = excluded.partition,
    controller = excluded.controller,
    size = excluded.size,
    phase = excluded.phase,
    reason = excluded.reason,
    message = excluded.message,
    "group" = CASE WHEN excluded."group" = excluded.namespace
                   THEN known."group" ELSE excluded."group" END,
    "user" = CASE WHEN excluded."user" = '' THEN known."user" ELSE excluded."user" END,
    user_verified = CASE WHEN excluded."user" = ''
                         THEN known.user_verified ELSE excluded.user_verified END,
    active_at = COALESCE(known.active_at, excluded.active_at),
    -- Another attempt may stand elsewhere: a partition that is gone is made again.
    machines = CASE WHEN (known.attempt, known.partition, known.controller)
                         = (excluded.attempt, excluded.partition, excluded.controller)
                    THEN known.machines ELSE '{}'::jsonb END,
    released_at = excluded.released_at,
    estimated = excluded.estimated,
    uncertainty_seconds = 0,
    updated_at = excluded.updated_at
WHERE (known.released_at IS NULL OR known.estimated)
  AND (known.shard, known.attempt, known.partition, known.controller, known.size, known.phase,
       known.reason, known.message, known.active_at, known.released_at, known.estimated)
   IS DISTINCT FROM
      (excluded.shard, excluded.attempt, excluded.partition, excluded.controller, excluded.size,
       excluded.phase, excluded.reason, excluded.message,
       COALESCE(known.active_at, excluded.active_at), excluded.released_at, excluded.estimated)
"""
_CLOSE = """
UPDATE partitions_partitionlifetime SET
    phase = %(released)s,
    reason = %(reason)s,
    message = %(message)s,
    released_at = GREATEST(reserved_at, active_at, %(now)s),
    estimated = true,
    uncertainty_seconds = GREATEST(0, ceil(extract(
        epoch FROM %(now)s - GREATEST(updated_at, %(since)s::timestamptz)))),
    updated_at = %(now)s
WHERE cluster_uid = %(cluster_uid)s AND released_at IS NULL
"""
_CLOSE_KEYS = _CLOSE + "AND shard = %(shard)s AND key <> ALL(%(present)s)"
_CLOSE_SHARDS = _CLOSE + "AND shard <> ALL(%(present)s)"
_GONE = (
    "The entry disappeared from the tracker without a tombstone. The time is when the recorder "
    "noticed it."
)
_RECORDED = """
SELECT key FROM partitions_partitionlifetime
WHERE key = ANY(%(keys)s) AND released_at IS NOT NULL AND NOT estimated
"""
# Two recorders may look at the same moment: one row for one change.
_CAPACITY_LOCK = "SELECT pg_advisory_xact_lock(hashtext('partitions_capacitychange'))"
_LAST_CAPACITY = """
SELECT DISTINCT ON (controller) controller, total, free, cordoned, faulty, reachable
FROM partitions_capacitychange ORDER BY controller, at DESC
"""
_CAPACITY = """
INSERT INTO partitions_capacitychange (controller, at, total, free, cordoned, faulty, reachable)
VALUES (%(controller)s, %(at)s, %(total)s, %(free)s, %(cordoned)s, %(faulty)s, %(reachable)s)
ON CONFLICT (controller, at) DO NOTHING
"""
CAPACITY_WATCH = "capacity"
_CAPACITY_GAP = f"""
INSERT INTO {GAP_TABLE} (watch, began_at, ended_at, cause)
SELECT name, position_at, %(now)s, %(cause)s FROM {CHECKPOINT_TABLE}
WHERE name = %(watch)s AND position_at < %(now)s - make_interval(secs => %(silence)s)
"""  # noqa: S608  # no value is pasted in
_CAPACITY_SEEN = f"""
INSERT INTO {CHECKPOINT_TABLE} AS known
  (name, cluster_uid, resource_version, selection, epoch, position_at)
VALUES (%(watch)s, '', '', '', 0, %(now)s)
ON CONFLICT (name) DO UPDATE SET position_at = GREATEST(known.position_at, excluded.position_at)
"""  # noqa: S608
_SILENT = (
    "The V-IPU controllers were not polled: the prober, the proxy or PostgreSQL was unavailable."
)


def store_shards(
    cursor: Cursor[Any],
    shards: Iterable[ShardRow],
    owners: Mapping[str, Owner],
    *,
    cluster_uid: str,
    since: datetime | None,
    now: datetime,
) -> None:
    """Write the content of ConfigMaps, each as last seen; an entry that is gone from a map was
    there at `since`.

    The same maps again change nothing. `owners` is by job UID; a job without a record yet counts
    for its namespace until its partition changes again.
    """
    latest = {shard.uid: shard for shard in shards}
    entries = [(shard, entry) for shard in latest.values() for entry in shard.entries]
    common = {"cluster_uid": cluster_uid, "now": now}
    if entries:
        values = [_entry_values(shard, entry, owners) | common for shard, entry in entries]
        cursor.executemany(_LIFETIME, values)
    for shard in latest.values():
        missing = {"shard": shard.uid, "present": shard.keys}
        cursor.execute(_CLOSE_KEYS, _closing(cluster_uid, since, now) | missing)


def close_lost_shards(cursor: Cursor[Any], absence: VanishedObjects) -> int:
    """End, estimated, the holdings of maps that a full list no longer shows; how many."""
    values = _closing(absence.cluster_uid, absence.seen_until, absence.now)
    return cursor.execute(_CLOSE_SHARDS, values | {"present": [*absence.present]}).rowcount


def recorded_of(cursor: Cursor[Any], keys: Sequence[str]) -> list[str]:
    """The keys among `keys` whose release is stored, with the tracker's own times."""
    cursor.execute(_RECORDED, {"keys": [*keys]})
    return [found[0] for found in cursor.fetchall()]


def store_capacity(
    cursor: Cursor[Any],
    changes_since: Callable[[Mapping[str, Capacity]], Sequence[Capacity]],
    now: datetime,
) -> int:
    """Write the changes that `changes_since` finds against the last rows; return how many rows."""
    cursor.execute(_CAPACITY_LOCK)
    cursor.execute(_LAST_CAPACITY)
    known = {found[0]: Capacity(*found) for found in cursor.fetchall()}
    changes = changes_since(known)
    for change in changes:
        cursor.execute(_CAPACITY, asdict(change) | {"at": now})
    return len(changes)


def note_capacity_seen(cursor: Cursor[Any], now: datetime, silence_seconds: float) -> None:
    """Record that the controllers were polled at `now`; a longer silence before it is a gap."""
    values = {"watch": CAPACITY_WATCH, "now": now, "cause": _SILENT, "silence": silence_seconds}
    cursor.execute(_CAPACITY_GAP, values)
    cursor.execute(_CAPACITY_SEEN, values)


def _closing(cluster_uid: str, since: datetime | None, now: datetime) -> dict[str, Any]:
    return {
        "cluster_uid": cluster_uid,
        "released": Phase.RELEASED.value,
        "reason": VANISHED,
        "message": _GONE,
        "now": now,
        "since": since,
    }


def _entry_values(
    shard: ShardRow, entry: TrackerEntry, owners: Mapping[str, Owner]
) -> dict[str, Any]:
    values: dict[str, Any] = {
        name: getattr(entry, name)
        for name in (
            "key",
            "uid",
            "namespace",
            "name",
            "instance",
            "attempt",
            "id",
            "controller",
            "size",
            "message",
            "reserved_at",
            "active_at",
        )
    }
    # What is lost is held no more; its tombstone has the last word, as after every such end.
    is_lost = entry.released_at is None and entry.lost_at is not None
    values |= {"released_at": entry.released_at or entry.lost_at, "estimated": is_lost}
    owner = owners.get(entry.uid, Owner(entry.namespace, ""))
    values |= {"phase": entry.phase.value, "reason": str(entry.reason)}
    return values | {"shard": shard.uid} | owner._asdict()


class PartitionRecorder:
    """Records the holdings of partitions that the tracker `name` in `namespace` shows.

    `owners_of` finds the owners of jobs. The caller sets callbacks: `known_until` gives the time of
    the last committed position; `released` is called after a commit with unacknowledged tombstones,
    `active` after a commit with active partitions.
    """

    name = "tracker"
    manifest: type[Any] = dict

    def __init__(
        self,
        namespace: str,
        name: str,
        owners_of: Callable[[Cursor[Any], Sequence[tuple[str, str]]], Mapping[str, Owner]],
    ) -> None:
        self.scope = Scope(CONFIG_MAPS, namespace, f"{LABEL}={name}")
        self.selection = f"{namespace}/{name}"
        self.known_until: Callable[[], datetime | None] = lambda: None
        self.released: Callable[[], None] = lambda: None
        self.active: Callable[[], None] = lambda: None
        self._owners_of = owners_of

    def read(
        self,
        kind: str,
        manifest: Any,
        faults: list[Fault],
        at: datetime,  # noqa: ARG002  # its entries have their own times
        since: datetime | None = None,  # noqa: ARG002
    ) -> ShardRow:
        """Read a ConfigMap; what is no entry is a fault of its key."""
        shard = shard_of(manifest, is_deleted=kind == "DELETED")
        for broken in shard.unreadable:
            subject = Subject(broken.key, shard.namespace, shard.name)
            faults.append(Fault(subject, "unreadable-entry", broken.reason, broken.text))
        return shard

    def subject(self, row: ShardRow) -> Subject:
        """Name the ConfigMap of a row."""
        return Subject(row.uid, row.namespace, row.name)

    def write(
        self, cursor: Cursor[Any], rows: Sequence[ShardRow], cluster_uid: str, at: datetime
    ) -> None:
        """Write the holdings, and end those that are gone from their map."""
        jobs = {entry.uid: entry.namespace for row in rows for entry in row.entries}
        owners = self._owners_of(cursor, [*jobs.items()]) if jobs else {}
        since = self.known_until()
        store_shards(cursor, rows, owners, cluster_uid=cluster_uid, since=since, now=at)

    def unrecorded(self, cursor: Cursor[Any], rows: Sequence[ShardRow]) -> int:  # noqa: ARG002
        """Return all entries: a ConfigMap outlives its content, so equal versions prove nothing."""
        return len(rows)

    def vanish(self, cursor: Cursor[Any], absence: VanishedObjects) -> int:
        """End the holdings of ConfigMaps that are gone."""
        return close_lost_shards(cursor, absence)

    async def committed(self, rows: Sequence[ShardRow]) -> None:
        """Call `released` if the proxy can drop tombstones, and `active` if places of partitions
        can be requested."""
        if any(tombstones(row.entries) for row in rows):
            self.released()
        if any(entry.phase is Phase.ACTIVE for row in rows for entry in row.entries):
            self.active()
