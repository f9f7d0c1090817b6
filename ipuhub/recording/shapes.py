"""domain: identities of objects, kinds of faults, and checkpoints of watches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from datetime import datetime

CHECKPOINT_TABLE: Final = "ipuhub_watchcheckpoint"
GAP_TABLE: Final = "ipuhub_watchgap"
FAULT_TABLE: Final = "ipuhub_recordfault"
"""Tables that every app may use in its SQL, as described in `ipuhub.models`."""


class ObjectMeta(msgspec.Struct, rename="camel", gc=False):
    """The part of an object's metadata that every recorder needs; extend it for more."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """The identity of an object or a row."""

    uid: str
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that could not be taken as it stood: `code` for machines, `message` for people."""

    subject: Subject
    code: str
    message: str
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The stored state of a watch: its last committed position, and whose epoch it is."""

    epoch: int
    cluster_uid: str = ""
    resource_version: str = ""
    selection: str = ""
    position_at: datetime | None = None
    namespace: str = ""
    """The only namespace that was watched; empty: all of them."""

    @property
    def is_fresh(self) -> bool:
        """Return whether nothing has ever been recorded."""
        return not self.resource_version


def reason_to_list(checkpoint: Checkpoint, cluster_uid: str, revision: str, selection: str) -> str:
    """Say why a watch cannot go on from `checkpoint`; empty: it can.

    `revision` is the version of a list made now. A version below the checkpoint means that the
    server lost its data or was set back: a watch from a version in its future would stay silent.
    """
    if checkpoint.is_fresh:
        return "nothing was recorded before"
    if checkpoint.cluster_uid != cluster_uid:
        return "the API server belongs to another cluster"
    if checkpoint.selection != selection:
        return "the selection of what is recorded changed"
    if not is_reached(checkpoint.resource_version, revision):
        return "the API server is behind the record: it was restored or emptied"
    return ""


def is_reached(position: str, revision: str) -> bool:
    """Return whether a server at `revision` has come to `position`; no to what cannot be
    compared."""
    return position.isdecimal() and revision.isdecimal() and int(revision) >= int(position)
