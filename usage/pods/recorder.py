"""io: the recorder of pod lifetimes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipuhub.kube.resources import PODS
from ipuhub.kube.watch import Scope
from ipuhub.recording.recorder import Fault, Subject
from usage.pods.annotations import (
    RESERVED,
    InvalidAnnotation,
    annotation_of,
    by_namespace,
    claim_of,
    kept_labels,
)
from usage.pods.lifetimes import BY_LIST, last_seen, lifetime_of
from usage.pods.resources import GPU_RESOURCES, Pod, requests_of
from usage.pods.rows import CLAIMED, END, FIXED, merged, row_of
from usage.pods.stamps import check_stamps, no_job_owners

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from psycopg import Cursor

    from ipuhub.kube.namespaces import ChosenNamespaces
    from ipuhub.recording.recorder import VanishedObjects
    from usage.pods.annotations import Claim
    from usage.pods.resources import PodMeta
    from usage.pods.rows import PodRow
    from usage.pods.stamps import RecordedJobs

_STATE: Final = ("phase", "reason", "exit_code", *END)
_FOLLOWED: Final = ("node", "scheduled_at", "started_at", *_STATE)
_TYPES: Final = {
    **dict.fromkeys(("instance", "attempt", "exit_code"), "integer"),
    **dict.fromkeys(("cpu_millicores", "memory_bytes", "gpus", "micro_ipus"), "bigint"),
    **dict.fromkeys(("uncertainty_seconds", "skew_seconds"), "bigint"),
    **dict.fromkeys(("accelerators", "labels", "stamp"), "jsonb"),
    **dict.fromkeys(("estimated", "user_verified"), "boolean"),
    **dict.fromkeys(("created_at", "scheduled_at", "started_at", "finished_at"), "timestamptz"),
}


def _quoted(names: Sequence[str], prefix: str = "") -> str:
    return ", ".join(f'{prefix}"{name}"' for name in names)


_COLUMNS: Final = (*FIXED, *_FOLLOWED)
_GIVEN: Final = ", ".join(f'"{name}" {_TYPES.get(name, "text")}' for name in _COLUMNS)
# An exact end is final. An estimated end gives way to an exact end; an end that only a list or the
# monitor concluded gives way to whatever the pod shows of itself. A claim follows where was none.
_IS_OPEN: Final = "(known.finished_at IS NULL OR known.estimated)"
_TAKES_END: Final = f"""({_IS_OPEN} AND (known.finished_at IS NULL
    OR known.end_source IN ('relist', 'monitor')
    OR (new.finished_at IS NOT NULL AND NOT new.estimated)))"""
_TAKES_CLAIM: Final = "(known.claim = 'namespace' AND new.claim <> 'namespace')"


def _becomes(new: str, *, with_claim: bool) -> str:
    """Assignments of an update of `known`."""

    def chosen(condition: str, names: Sequence[str]) -> list[str]:
        return [
            f'"{name}" = CASE WHEN {condition} THEN new."{name}" ELSE known."{name}" END'
            for name in names
        ]

    scheduled_at = "COALESCE(known.scheduled_at, new.scheduled_at)"
    started_at = "LEAST(known.started_at, new.started_at)"
    parts = [
        *(chosen(_TAKES_CLAIM, CLAIMED) if with_claim else ()),
        *chosen(_TAKES_END, _STATE),
        f"node = CASE WHEN known.node = '' AND {_IS_OPEN} THEN new.node ELSE known.node END",
        f"scheduled_at = CASE WHEN {_IS_OPEN} THEN {scheduled_at} ELSE known.scheduled_at END",
        f"started_at = CASE WHEN {_IS_OPEN} THEN {started_at} ELSE known.started_at END",
        "updated_at = %(at)s",
    ]
    return ", ".join(parts).replace("new.", f"{new}.")


_STATE_DIFFERS: Final = f"""(({_TAKES_END} AND ({_quoted(_STATE, "known.")})
        IS DISTINCT FROM ({_quoted(_STATE, "new.")}))
    OR ({_IS_OPEN} AND ((known.node = '' AND new.node <> '')
        OR (known.scheduled_at IS NULL AND new.scheduled_at IS NOT NULL)
        OR LEAST(known.started_at, new.started_at) IS DISTINCT FROM known.started_at)))"""

_UPSERT: Final = f"""
INSERT INTO usage_podlifetime AS known
    ({_quoted(_COLUMNS)}, cluster_uid, updated_at)
SELECT {_quoted(_COLUMNS)}, %(cluster_uid)s, %(at)s
FROM jsonb_to_recordset(%(rows)s::jsonb) AS given ({_GIVEN})
ON CONFLICT (uid) DO UPDATE SET {_becomes("excluded", with_claim=True)}
WHERE {_TAKES_CLAIM.replace("new.", "excluded.")} OR {_STATE_DIFFERS.replace("new.", "excluded.")}
"""  # noqa: S608  # names of columns only
_FOLLOW: Final = f"""
UPDATE usage_podlifetime AS known SET {_becomes("new", with_claim=False)}
FROM jsonb_to_recordset(%(rows)s::jsonb) AS new ({_GIVEN})
WHERE known.uid = new.uid AND {_STATE_DIFFERS}
"""  # noqa: S608  # names of columns only
_SEEN: Final = last_seen("%(seen_until)s", "%(watched)s")
_VANISHED: Final = f"""
UPDATE usage_podlifetime AS known SET
    finished_at = GREATEST(scheduled_at, {_SEEN}), end_source = %(source)s,
    estimated = true, updated_at = %(now)s,
    uncertainty_seconds = GREATEST(0, ceil(extract(epoch FROM %(now)s - {_SEEN})))
WHERE finished_at IS NULL AND cluster_uid = %(cluster_uid)s
  AND uid NOT IN (SELECT unnest(%(present)s::text[]))
  AND %(listed)s IN ('', namespace)
"""  # noqa: S608  # text of this program
_KNOWN: Final = "SELECT count(*) FROM usage_podlifetime WHERE uid = ANY(%s)"
_RESERVED_SAYS: Final = (
    f"pods may not claim the component {' or '.join(sorted(RESERVED))}; the claim is kept as "
    "claimed_component"
)


@dataclass(frozen=True, slots=True)
class PodSelection:
    """The recorded pods: those in `namespaces` (empty: all), annotated pods or all pods.

    `chosen` chooses the namespaces instead, by their current labels. `labels`: the keys of pod
    labels to record. Without `has_ipu_requests`, requests for IPUs by name count as none: nodes
    then show IPUs only for information.
    """

    namespaces: frozenset[str] = frozenset()
    all_pods: bool = False
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    labels: tuple[str, ...] = ()
    chosen: ChosenNamespaces | None = None
    has_ipu_requests: bool = True

    def covers(self, namespace: str) -> bool:
        """Return whether new pods of `namespace` are recorded."""
        if self.chosen is not None:
            return self.chosen.covers(namespace)
        return not self.namespaces or namespace in self.namespaces


class PodRecorder:
    """Records pods in `usage_podlifetime`. `recorded` returns the jobs whose stamps are trusted."""

    name = "pods"
    manifest = Pod

    def __init__(
        self, selection: PodSelection | None = None, recorded: RecordedJobs = no_job_owners
    ) -> None:
        self._selected = selected = selection or PodSelection()
        self._recorded = recorded
        only = next(iter(selected.namespaces)) if len(selected.namespaces) == 1 else None
        self.scope = Scope(PODS, namespace=only)
        if selected.chosen is not None:
            where = f"namespaces with {selected.chosen.selector}"
        else:
            where = ", ".join(sorted(selected.namespaces)) or "all namespaces"
        self.selection = f"{'all' if selected.all_pods else 'annotated'} pods of {where}"

    def read(
        self,
        kind: str,
        manifest: Pod,
        faults: list[Fault],
        at: datetime,
        since: datetime | None = None,
    ) -> PodRow | None:
        """Return the row of a pod; of an unselected pod only if its end can end a known row."""
        meta, selected = manifest.metadata, self._selected
        if not meta.uid:
            raise ValueError("the pod has no uid")
        text = annotation_of(meta)
        # What was recorded once is followed to its end, whatever is selected since.
        is_known_only = not selected.covers(meta.namespace) or (
            text is None and not selected.all_pods
        )
        lifetime = lifetime_of(manifest, is_deleted=kind == "DELETED", at=at, since=since)
        if is_known_only and lifetime.end is None:
            return None
        claim = by_namespace(meta) if is_known_only else _claim(meta, text, faults)
        requests = requests_of(bytes(manifest.spec), selected.gpu_resources)
        if not selected.has_ipu_requests:
            requests = replace(requests, held=replace(requests.held, ipus=0))
        row = row_of(meta, claim, requests, lifetime, at)
        row.is_known_only = is_known_only
        row.labels = kept_labels(meta.labels, selected.labels)
        if requests.problems and not is_known_only:
            faults.append(Fault(self.subject(row), "quantity", "; ".join(requests.problems)))
        return row

    def subject(self, row: PodRow) -> Subject:
        """Return the identity of a row."""
        return Subject(row.uid, row.namespace, row.pod_name)

    def write(
        self, cursor: Cursor[Any], rows: Sequence[PodRow], cluster_uid: str, at: datetime
    ) -> None:
        """Write pods; the same again, or anything after an exact end, changes nothing."""
        latest = merged([*rows])
        for sql, is_known_only in ((_UPSERT, False), (_FOLLOW, True)):
            # In one order, so that two writers never wait for each other.
            chosen = [row for row in latest if row.is_known_only is is_known_only]
            if chosen:
                chosen.sort(key=lambda row: row.uid)
                given = chosen if is_known_only else check_stamps(cursor, chosen, self._recorded)
                text = msgspec.json.encode(given).decode()
                cursor.execute(sql, {"rows": text, "cluster_uid": cluster_uid, "at": at})

    def unrecorded(self, cursor: Cursor[Any], rows: Sequence[PodRow]) -> int:
        """Return how many of the pods came since the last record."""
        uids = {row.uid for row in rows if not row.is_known_only}
        (known,) = cursor.execute(_KNOWN, [[*uids]]).fetchone() or (0,)
        return len(uids) - int(known)

    def vanish(self, cursor: Cursor[Any], absence: VanishedObjects) -> int:
        """End pods that are gone, at their last sighting: estimated."""
        values = {
            "present": [*absence.present],
            "cluster_uid": absence.cluster_uid,
            "seen_until": absence.seen_until,
            "now": absence.now,
            "source": BY_LIST,
            "watched": absence.watched,
            # A list of all namespaces shows every pod, whatever of it is recorded.
            "listed": self.scope.namespace or "",
        }
        cursor.execute(_VANISHED, values)
        return cursor.rowcount

    async def committed(self, rows: Sequence[PodRow]) -> None:
        """Do nothing: no component waits for pods."""


def _claim(meta: PodMeta, text: str | None, faults: list[Fault]) -> Claim:
    subject = Subject(meta.uid, meta.namespace, meta.name)
    try:
        claim = claim_of(meta, text)
    except InvalidAnnotation as error:
        faults.append(Fault(subject, "usage-annotation", str(error), text or ""))
        return by_namespace(meta)
    if claim.claimed_component:
        faults.append(Fault(subject, "reserved-component", _RESERVED_SAYS, text or ""))
    return claim
