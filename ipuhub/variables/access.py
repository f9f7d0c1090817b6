"""glue: settings of access: roles or Kubernetes RBAC, and tokens of ServiceAccounts."""

from __future__ import annotations

from ipuhub.env import SettingError
from ipuhub.roles import ADMIN, Grant, RoleError, parse_group_roles
from ipuhub.variables import ENV

ENV.read_by("Dashboard")
ACCESS = ENV.choice(
    "IPUHUB_ACCESS",
    "roles",
    ("roles", "kubernetes"),
    doc="What decides whose jobs a user sees. `roles`: the roles granted in IPUHub. `kubernetes`: "
    "the namespaces in which their Kubernetes user (IPUHUB_ACTIONS_USERS, "
    "IPUHUB_ACTIONS_SINGLE_SIGN_ON) may list IPUJobs. Administrators see everything either way, "
    "and accountants have their role.",
)
ACCESS_GROUPS = ENV.text(
    "IPUHUB_ACCESS_GROUPS",
    "",
    doc="The group in Kubernetes for a {group} of single sign-on, such as `oidc:{group}` (the API "
    "server's --oidc-groups-prefix). With IPUHUB_ACCESS=kubernetes these groups decide what a user "
    "sees, too; writes carry the groups in "
    "IPUHUB_ACTIONS_GROUPS. Each sign-in replaces the groups of a "
    "user. Groups that begin with system: never count. Empty: no groups count.",
)
ACCESS_CACHE_SECONDS = ENV.integer(
    "IPUHUB_ACCESS_CACHE_SECONDS",
    30,
    minimum=0,
    maximum=600,
    doc="How long an answer of Kubernetes about a user is used, in seconds. A right that is taken "
    "away in Kubernetes ends in IPUHub that much later.",
)
API_SERVICE_ACCOUNTS = ENV.switch(
    "IPUHUB_API_SERVICE_ACCOUNTS",
    False,
    doc="Whether the API accepts tokens of Kubernetes ServiceAccounts, to read. They see the "
    "namespaces in which they may list IPUJobs, or have a role of "
    "IPUHUB_API_SERVICE_ACCOUNT_ROLES.",
)
API_AUDIENCE = ENV.text(
    "IPUHUB_API_AUDIENCE",
    "ipuhub-api",
    doc="Audience that a ServiceAccount's token must have. A token for the API server itself is "
    "refused, so that it is never sent to IPUHub.",
)
_ACCOUNT_ROLES = ENV.words(
    "IPUHUB_API_SERVICE_ACCOUNT_ROLES",
    [],
    doc="Roles of ServiceAccounts, as NAMESPACE/NAME=ROLE (all namespaces) or "
    "NAMESPACE/NAME=ROLE:NAMESPACE, such as `monitoring/grafana=viewer`. Kubernetes is not asked "
    "what these accounts may list.",
)
if ACCESS_GROUPS and (
    ACCESS_GROUPS.count("{group}") != 1 or set("{}") & set(ACCESS_GROUPS.replace("{group}", ""))
):
    raise SettingError(
        "IPUHUB_ACCESS_GROUPS must have {group} once, such as oidc:{group}, not "
        f"{ACCESS_GROUPS!r}"
    )
if not API_AUDIENCE:
    raise SettingError("IPUHUB_API_AUDIENCE must not be empty: any token would be accepted")
try:
    API_SERVICE_ACCOUNT_ROLES = parse_group_roles(_ACCOUNT_ROLES)
except RoleError as _error:
    raise SettingError(f"IPUHUB_API_SERVICE_ACCOUNT_ROLES: {_error}") from _error
for _name, _grants in API_SERVICE_ACCOUNT_ROLES.items():
    if _name.count("/") != 1 or Grant(ADMIN) in _grants:
        raise SettingError(
            f"IPUHUB_API_SERVICE_ACCOUNT_ROLES: {_name!r} must be NAMESPACE/NAME, and no account "
            "is an administrator of everything"
        )
