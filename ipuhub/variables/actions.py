"""glue: settings of actions on jobs: whether they are enabled, and the Kubernetes user."""

from __future__ import annotations

import string
from typing import Final

from ipuhub.env import SettingError
from ipuhub.variables import ENV
from ipuhub.variables.access import ACCESS_GROUPS

ENV.read_by("Dashboard")
ACTIONS = ENV.switch(
    "IPUHUB_ACTIONS",
    False,
    doc="Whether the dashboard and the API change IPUJobs: suspend, resume, cancel, scale, run "
    "again, create. Each write impersonates the user's Kubernetes user, so Kubernetes RBAC decides "
    "what the user may do. The web process needs `impersonate` on `users`, and on the groups of "
    "IPUHUB_ACTIONS_GROUPS.",
)
_PAIRS = ENV.words(
    "IPUHUB_ACTIONS_USERS",
    [],
    doc="Kubernetes users of IPUHub users, as NAME=KUBERNETES, such as "
    "`admin=ops@lab.example`. A user without a Kubernetes user sees no actions. Names that begin "
    "with `system:` are not allowed.",
)
ACTIONS_SINGLE_SIGN_ON = ENV.text(
    "IPUHUB_ACTIONS_SINGLE_SIGN_ON",
    "",
    doc="Kubernetes user of people who sign in at a provider and are not in IPUHUB_ACTIONS_USERS. "
    "{subject}, {issuer} and {username} stand for their values: `{issuer}#{subject}` is what an "
    "API server takes by default (--oidc-username-claim=sub). Use {username} only if the provider "
    "never gives a name to another person. Empty: these users see no actions.",
)
ACTIONS_GROUPS = ENV.words(
    "IPUHUB_ACTIONS_GROUPS",
    [],
    doc="Groups in Kubernetes that writes carry, such as `oidc:research`, if the user "
    "was in them at the last single sign-on; IPUHUB_ACCESS_GROUPS names them. The web "
    "process needs `impersonate` on exactly these `groups`. Groups that begin with `system:` are "
    "not allowed. Empty: writes carry no groups.",
)
_FIELDS: Final = {"subject", "issuer", "username"}
RESERVED: Final = "system:"
"""Kubernetes keeps names with this prefix for its own components."""


def _read_pairs(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, _, kubernetes = (part.strip() for part in pair.partition("="))
        if not name or not kubernetes or kubernetes.startswith(RESERVED) or name in found:
            raise SettingError(
                f"IPUHUB_ACTIONS_USERS: {pair!r} must be NAME=KUBERNETES, each NAME once, and "
                f"KUBERNETES must not begin with {RESERVED!r}"
            )
        found[name] = kubernetes
    return found


def _check_format(text: str) -> None:
    try:
        fields = {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}
    except ValueError:
        fields = {text}
    if text and (not fields or not fields <= _FIELDS or text.startswith(RESERVED)):
        raise SettingError(
            f"IPUHUB_ACTIONS_SINGLE_SIGN_ON must contain {{subject}} or {{username}} and may "
            f"contain {{issuer}}; it must not begin with {RESERVED!r}: {text!r}"
        )
    if text and not fields & {"subject", "username"}:
        raise SettingError(
            f"IPUHUB_ACTIONS_SINGLE_SIGN_ON gives everyone the same Kubernetes user: {text!r} "
            "needs {subject} or {username}"
        )


def _check_groups(groups: list[str]) -> None:
    for group in groups:
        if group.startswith(RESERVED):
            raise SettingError(f"IPUHUB_ACTIONS_GROUPS: {group!r} must not begin with {RESERVED!r}")
    if groups and not ACCESS_GROUPS:
        raise SettingError(
            "IPUHUB_ACTIONS_GROUPS needs IPUHUB_ACCESS_GROUPS, which says how Kubernetes names the "
            "groups of single sign-on"
        )


ACTIONS_USERS = _read_pairs(_PAIRS)
_check_groups(ACTIONS_GROUPS)
_check_format(ACTIONS_SINGLE_SIGN_ON)
