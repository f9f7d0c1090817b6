"""domain: the row of a pod's state, and how a later row changes an earlier row."""

from __future__ import annotations

from copy import copy
from datetime import datetime  # noqa: TC003  # msgspec reads the annotations
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from usage.pods.annotations import ANNOTATION, NAMESPACE, OPERATORS_COMPONENT
from usage.pods.lifetimes import BY_LIST

if TYPE_CHECKING:
    from usage.pods.annotations import Claim
    from usage.pods.lifetimes import Lifetime
    from usage.pods.resources import PodMeta, PodRequests

MICRO_IPUS: Final = 1_000_000
MONITOR: Final = "monitor"
GUESSED: Final = (BY_LIST, MONITOR)
"""Sources of ends that a pod seen again takes back."""


class JobOwner(NamedTuple):
    """The owner of a recorded job, and the namespace in which its pods are."""

    namespace: str
    group: str
    user: str
    user_verified: bool


class PodRow(msgspec.Struct, gc=False):
    """A row of `PodLifetime`, field by column. `is_known_only`: it only updates an existing row.

    With the claim `operator` the record of its job still decides; `asked_micro_ipus` is the pod's
    own request. The first block of fields is fixed by the first sighting, except that a claim can
    follow later; the rest follows the pod until its exact end is known.
    """

    uid: str
    namespace: str
    pod_name: str
    claim: str
    component: str
    component_name: str
    group: str
    user: str
    user_verified: bool
    instance_type: str
    job_uid: str
    role: str
    instance: int | None
    attempt: int | None
    partition: str
    cpu_millicores: int
    memory_bytes: int
    gpus: int
    accelerators: dict[str, int]
    micro_ipus: int
    created_at: datetime
    node: str
    phase: str
    reason: str
    exit_code: int | None
    scheduled_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    end_source: str
    estimated: bool
    uncertainty_seconds: int
    skew_seconds: int = 0
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    claimed_component: str = ""
    stamp: dict[str, Any] | None = None
    asked_micro_ipus: int = 0
    is_known_only: bool = False


CLAIMED: Final = (
    "claim",
    "component",
    "component_name",
    "group",
    "user",
    "user_verified",
    "instance_type",
    "job_uid",
    "role",
    "instance",
    "attempt",
    "partition",
    "micro_ipus",
    "claimed_component",
    "stamp",
)
"""Columns that a claim brings with it."""

STAMPED: Final = ("job_uid", "role", "instance", "attempt", "partition", "micro_ipus")
"""The part of a stamp that is kept until the record of its job exists."""

FIXED: Final = (*PodRow.__struct_fields__[:21], "labels", "claimed_component", "stamp")
"""Columns of the first sight."""

COLUMNS: Final = PodRow.__struct_fields__[:-3]
"""All that is recorded of a pod: what the API shows of it."""


def row_of(
    meta: PodMeta, claim: Claim, requests: PodRequests, lifetime: Lifetime, at: datetime
) -> PodRow:
    """Return the row of a pod; `at` replaces a missing creation time."""
    held, end = requests.held, lifetime.end
    return PodRow(
        meta.uid,
        meta.namespace,
        meta.name,
        claim.claim,
        claim.component,
        claim.component_name,
        claim.group,
        claim.user,
        False,  # the record of a job says whether its user is
        claim.instance_type,
        claim.job_uid,
        claim.role,
        claim.instance,
        claim.attempt,
        claim.partition,
        held.cpu_millicores,
        held.memory_bytes,
        held.gpus,
        held.accelerators,
        # The stamp says what of a partition is a pod's; requests for the same are no second
        # partition.
        held.ipus * MICRO_IPUS if claim.micro_ipus is None else claim.micro_ipus,
        meta.creation_timestamp or at,
        requests.node,
        lifetime.phase,
        lifetime.reason.replace("\0", "\ufffd"),
        lifetime.exit_code,
        lifetime.scheduled_at,
        lifetime.started_at,
        end.at if end else None,
        end.source if end else "",
        end.estimated if end else False,
        end.uncertainty_seconds if end else 0,
        end.skew_seconds if end else 0,
        claimed_component=claim.claimed_component,
        asked_micro_ipus=held.ipus * MICRO_IPUS,
    )


def with_confirmed_stamp(row: PodRow, owner: JobOwner) -> PodRow:
    """Return the row of a pod with a confirmed stamp, owned as the record of its job says."""
    new = copy(row)
    new.group, new.user, new.user_verified = owner.group, owner.user, owner.user_verified
    return new


def with_unconfirmed_stamp(row: PodRow) -> PodRow:
    """Return the row of a pod with an unconfirmed stamp.

    It counts as a claim, belongs to no job, and holds only the IPUs of its own request. The row
    keeps the stamp and the operator's component for later.
    """
    new = copy(row)
    if new.component == OPERATORS_COMPONENT:
        new.component, new.claimed_component = "", OPERATORS_COMPONENT
    new.stamp = {name: getattr(row, name) for name in STAMPED}
    new.claim, new.job_uid, new.role, new.partition = ANNOTATION, "", "", ""
    new.instance = new.attempt = None
    new.micro_ipus = row.asked_micro_ipus
    return new


def merged(rows: list[PodRow]) -> list[PodRow]:
    """Return one row per pod, as if `rows` had been written one after the other."""
    known: dict[str, PodRow] = {}
    for row in rows:
        earlier = known.get(row.uid)
        known[row.uid] = row if earlier is None else _later(earlier, row)
    return [*known.values()]


def _later(known: PodRow, new: PodRow) -> PodRow:
    """Return `known` changed by `new`, by the rules of the SQL in `usage.pods.recorder`."""
    if known.is_known_only and not new.is_known_only:
        return new
    return _followed(copy(known), new)


def _followed(known: PodRow, new: PodRow) -> PodRow:
    if new.is_known_only or known.claim != NAMESPACE or new.claim == NAMESPACE:
        claimed = known
    else:
        claimed = new
    for name in (*CLAIMED, "asked_micro_ipus") if claimed is new else ():
        setattr(known, name, getattr(new, name))
    if known.finished_at is not None and not known.estimated:
        return known
    known.node = known.node or new.node
    known.scheduled_at = known.scheduled_at or new.scheduled_at
    times = [instant for instant in (known.started_at, new.started_at) if instant is not None]
    known.started_at = min(times, default=None)
    if not takes_end(known, new):
        return known
    for name in ("phase", "reason", "exit_code", *END):
        setattr(known, name, getattr(new, name))
    return known


END: Final = (
    "finished_at",
    "end_source",
    "estimated",
    "uncertainty_seconds",
    "skew_seconds",
)


def takes_end(known: PodRow, new: PodRow) -> bool:
    """Return whether the state of `new` replaces the state of `known`, which has no exact end."""
    if known.finished_at is None or known.end_source in GUESSED:
        return True
    return new.finished_at is not None and not new.estimated
