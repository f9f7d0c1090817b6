"""domain: what an administrator decides about every job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jobs.ipujob.patience import USUAL
from jobs.ipujob.privileges import NOBODYS
from jobs.ipujob.sessionlimits import UNLIMITED

if TYPE_CHECKING:
    from jobs.ipujob.patience import Patience
    from jobs.ipujob.privileges import Privileges
    from jobs.ipujob.sessionlimits import SessionLimits


@dataclass(frozen=True, slots=True)
class Rules:
    """How long sessions last, whose pods may have more than others, and when to give up."""

    limits: SessionLimits = UNLIMITED
    privileges: Privileges = NOBODYS
    patience: Patience = USUAL


USUAL_RULES: Final = Rules()
