"""domain: which questions the monitor asks of the API server, and what the answers mean."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

FEW: Final = 20
"""Up to so many pods of one namespace are asked for by name; for more it is listed."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A running pod's row as it was read: nothing was heard of the pod for too long."""

    uid: str
    namespace: str
    name: str
    updated_at: datetime
    seen_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of one namespace: about each suspect by name, or for a list of all pods."""

    namespace: str
    suspects: tuple[Suspect, ...]

    @property
    def is_list(self) -> bool:
        """Whether a list is less work than single questions."""
        return len(self.suspects) > FEW


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server showed: the UIDs that are `present` of the pods of `question`.

    They were there at `asked_at` at least. All others were gone at `at`, when all answers were
    there, and at the latest at the server's version `revision`.
    """

    question: Question
    present: frozenset[str]
    revision: str
    asked_at: datetime
    at: datetime

    @property
    def there(self) -> list[Suspect]:
        """The suspects that are alive."""
        return [one for one in self.question.suspects if one.uid in self.present]

    @property
    def gone(self) -> list[Suspect]:
        """The suspects that are not: another pod of the same name is no proof of life."""
        return [one for one in self.question.suspects if one.uid not in self.present]


def questions_for(suspects: Iterable[Suspect]) -> list[Question]:
    """One question for each namespace that has suspects; no other namespace is asked about."""
    ordered = sorted(suspects, key=lambda one: (one.namespace, one.name, one.uid))
    return [
        Question(namespace, tuple(members))
        for namespace, members in groupby(ordered, key=lambda one: one.namespace)
    ]


@dataclass(frozen=True, slots=True)
class WatchState:
    """How far the prober has recorded pods; epoch 0: it never has."""

    epoch: int = 0
    cluster_uid: str = ""
    resource_version: str = ""
    namespace: str = ""
    position_at: datetime | None = None


def is_probers(watch: WatchState, answer: Answer, cluster_uid: str, stale_seconds: float) -> bool:
    """Whether the prober is about to record the ends of what is gone by `answer`.

    It is at work (its position is fresh), follows this namespace of this cluster, and has not yet
    come to the version at which the pods were gone. A position beyond that version means that the
    end was missed: nobody else will close the row.
    """
    if watch.position_at is None or watch.cluster_uid != cluster_uid:
        return False
    if watch.namespace not in {"", answer.question.namespace}:
        return False
    if (answer.at - watch.position_at).total_seconds() > stale_seconds:
        return False
    versions = (watch.resource_version, answer.revision)
    if not all(version.isdecimal() for version in versions):
        return True
    return int(watch.resource_version) < int(answer.revision)
