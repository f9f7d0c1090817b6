"""domain: the administrator's rules for every job, and the operator's time limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jobs.ipujob.privileges import NOBODYS
from jobs.ipujob.spec import UNLIMITED

if TYPE_CHECKING:
    from jobs.ipujob.privileges import Privileges
    from jobs.ipujob.spec import SessionLimits


@dataclass(frozen=True, slots=True)
class Patience:
    """`most_losses`: attempts in a row that may end through no fault of the job (0: no limit).
    `hold_seconds`: a pause that is longer gives the partition back. `start_seconds`: how long an
    attempt that cannot start keeps its partition. `ready_seconds`: how long an attempt whose pods
    are there keeps it without starting, for whatever reason."""

    most_losses: int = 50
    hold_seconds: float = 60.0
    start_seconds: float = 600.0
    ready_seconds: float = 1800.0


USUAL: Final = Patience()
RESYNC_SECONDS: Final = 600.0
"""The operator looks at each job at least so often, whatever watches report."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The administrator's rules: session limits, privileges, when to give up, and the namespaces of
    jobs (empty: all)."""

    limits: SessionLimits = UNLIMITED
    privileges: Privileges = NOBODYS
    patience: Patience = USUAL
    namespaces: frozenset[str] = frozenset()

    def concern(self, namespace: str) -> bool:
        """Return whether jobs of this namespace are ours."""
        return not self.namespaces or namespace in self.namespaces


USUAL_RULES: Final = Rules()
