"""glue: the Kubernetes user of a user, by the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.conf import settings

from ipuhub.variables.actions import RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LONGEST: Final = 1024


def listed_name(username: str) -> str:
    """Return the Kubernetes user that the settings list for a user; empty: none."""
    name: str = settings.ACTIONS_USERS.get(username, "")
    return name


def single_sign_on_name(username: str, identities: Sequence[tuple[str, str]]) -> str:
    """Return the Kubernetes user of someone with these identities (issuer, subject); empty: none.

    With two identities it would be open which of them is meant.
    """
    if len(identities) != 1:
        return ""
    issuer, subject = identities[0]
    name: str = settings.ACTIONS_SINGLE_SIGN_ON.format(
        subject=subject, issuer=issuer, username=username
    )
    return name if is_usable(name) else ""


def cluster_groups(groups: Iterable[str]) -> tuple[str, ...]:
    """Return the groups in Kubernetes of someone with these groups of single sign-on."""
    template: str = settings.ACCESS_GROUPS
    named = {template.replace("{group}", group) for group in groups} if template else set()
    return tuple(sorted(name for name in named if is_usable(name)))


def is_usable(name: str) -> bool:
    """Return whether a name may stand for a user or group: it is a header's value, and no
    component's."""
    return (
        0 < len(name) <= _LONGEST
        and name == name.strip()
        and name.isprintable()
        and not name.startswith(RESERVED)
    )
