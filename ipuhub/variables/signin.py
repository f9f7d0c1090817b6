"""glue: settings of sign-in by OpenID Connect (OIDC), read by the web process."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from ipuhub.env import SettingError
from ipuhub.roles import ADMIN, Grant, RoleError, parse_group_roles
from ipuhub.variables import ENV
from ipuhub.variables.web import HTTPS

ENV.read_by("Dashboard")
OIDC_ISSUER = ENV.text(
    "IPUHUB_OIDC_ISSUER",
    "",
    doc="Issuer of the OpenID Connect provider, exactly as in its discovery document, such as "
    "https://login.example/realms/lab. Empty: no sign-in by OIDC.",
)
OIDC_CLIENT_ID = ENV.text(
    "IPUHUB_OIDC_CLIENT_ID", "", doc="Client ID of the dashboard at the provider."
)
OIDC_CLIENT_SECRET = ENV.text(
    "IPUHUB_OIDC_CLIENT_SECRET",
    "",
    doc="Its secret, usually given as IPUHUB_OIDC_CLIENT_SECRET_FILE. Empty: a public client, "
    "which PKCE alone protects.",
)
OIDC_CA_PATH = ENV.text(
    "IPUHUB_OIDC_CA_PATH",
    "",
    doc="File with the CA certificates that verify the provider's certificate (PEM), in place of "
    "the operating system's. A changed file applies to new connections. Empty: the operating "
    "system's.",
)
OIDC_NAME = ENV.text(
    "IPUHUB_OIDC_NAME", "single sign-on", doc="Name of the provider on the sign-in page."
)
OIDC_SCOPES = ENV.words(
    "IPUHUB_OIDC_SCOPES",
    ["openid", "profile", "email"],
    doc="Scopes that the dashboard requests, separated by commas; openid is always among them. Add "
    "groups if the provider sends groups for that scope only; some refuse scopes that they do not "
    "know.",
)
OIDC_USERNAME_CLAIM = ENV.text(
    "IPUHUB_OIDC_USERNAME_CLAIM",
    "preferred_username",
    doc="Claim of the ID token, or of the userinfo endpoint, with the name for a new user. Later "
    "sign-ins find the user by issuer and subject.",
)
OIDC_GROUPS_CLAIM = ENV.text(
    "IPUHUB_OIDC_GROUPS_CLAIM",
    "groups",
    doc="Claim of the ID token, or of the userinfo endpoint, with the user's groups. A dot leads "
    "into an object: realm_access.roles.",
)
OIDC_REQUIRED_GROUPS = ENV.texts(
    "IPUHUB_OIDC_REQUIRED_GROUPS",
    doc="Groups that may sign in; one of them is enough. Empty: everyone whom the provider "
    "authenticates.",
)
OIDC_ADMIN_GROUPS = ENV.texts(
    "IPUHUB_OIDC_ADMIN_GROUPS",
    doc="Groups whose members are administrators, set at each sign-in. Empty: sign-in does not "
    "change who is an administrator.",
)
OIDC_ACCOUNTANT_GROUPS = ENV.texts(
    "IPUHUB_OIDC_ACCOUNTANT_GROUPS",
    doc="Groups whose members are accountants, set at each sign-in. Empty: sign-in does not "
    "change who is an accountant.",
)
_GROUP_ROLES = ENV.texts(
    "IPUHUB_OIDC_GROUP_ROLES",
    doc="Roles of the provider's groups, as GROUP=ROLE (all namespaces) or GROUP=ROLE:NAMESPACE, "
    "such as `ml=operator:team-a,finance=accountant,everyone=viewer`, set at each sign-in. Groups "
    'with a comma need a JSON list: `["cn=ml,ou=groups=operator:team-a"]`. Roles are '
    "operator, accountant, viewer, and admin of a namespace. Empty: sign-in does not change "
    "roles of namespaces.",
)
OIDC_SESSION_SECONDS = ENV.integer(
    "IPUHUB_OIDC_SESSION_SECONDS",
    12 * 3600,
    minimum=60,
    maximum=30 * 24 * 3600,
    doc="Longest session after sign-in by OIDC, in seconds. Back-channel logout ends it earlier.",
)
try:
    OIDC_GROUP_ROLES = parse_group_roles(_GROUP_ROLES)
except RoleError as _error:
    raise SettingError(f"IPUHUB_OIDC_GROUP_ROLES: {_error}") from _error
if any(Grant(ADMIN) in grants for grants in OIDC_GROUP_ROLES.values()):
    raise SettingError(
        "IPUHUB_OIDC_GROUP_ROLES: name groups of administrators in IPUHUB_OIDC_ADMIN_GROUPS"
    )
for _scope in OIDC_SCOPES:
    if not re.fullmatch(r"[!#-+\-.-\[\]-~]+", _scope):  # RFC 6749, 3.3, without the comma
        raise SettingError(
            f"IPUHUB_OIDC_SCOPES: {_scope!r} is not a scope. Separate scopes by commas; a scope "
            "has no blanks, quotation marks or backslashes: openid,profile,email,groups"
        )
OIDC_SCOPES = list(dict.fromkeys(["openid", *OIDC_SCOPES]))
if OIDC_ISSUER:
    _address = urlsplit(OIDC_ISSUER)
    if not _address.hostname or _address.scheme not in ({"https"} if HTTPS else {"https", "http"}):
        raise SettingError(
            "IPUHUB_OIDC_ISSUER must be an https:// address (http:// only with IPUHUB_HTTPS=off), "
            f"not {OIDC_ISSUER!r}"
        )
    if not OIDC_CLIENT_ID:
        raise SettingError("IPUHUB_OIDC_ISSUER is set and IPUHUB_OIDC_CLIENT_ID is not: set both")
AUTH_HEADER_USER = ENV.pattern(
    "IPUHUB_AUTH_HEADER_USER",
    "",
    "[A-Za-z0-9-]*",
    doc="Header with the name of the user whom a proxy in front has authenticated, such as "
    "X-Forwarded-User. Empty: no sign-in by header.",
)
AUTH_HEADER_GROUPS = ENV.pattern(
    "IPUHUB_AUTH_HEADER_GROUPS",
    "",
    "[A-Za-z0-9-]*",
    doc="Header with the comma-separated groups of that user. IPUHUB_OIDC_REQUIRED_GROUPS, "
    "_ADMIN_GROUPS, _ACCOUNTANT_GROUPS and _GROUP_ROLES apply to them.",
)
AUTH_HEADER_PROXIES = ENV.networks(
    "IPUHUB_AUTH_HEADER_PROXIES",
    doc="Networks of the proxies whose IPUHUB_AUTH_HEADER_USER is trusted. Every address in them "
    "can act as any user. The proxy must remove these headers from requests of clients.",
)
AUTH_HEADER_SIGN_OUT = ENV.text(
    "IPUHUB_AUTH_HEADER_SIGN_OUT",
    "",
    doc="Address at which the proxy ends its session, such as /oauth2/sign_out. *Sign out* leads "
    "there.",
)
if AUTH_HEADER_USER and not AUTH_HEADER_PROXIES:
    raise SettingError(
        "IPUHUB_AUTH_HEADER_USER is set and IPUHUB_AUTH_HEADER_PROXIES is not: name the networks "
        "of the proxy"
    )
