"""glue: authorisation: what a user may see and do, for pages, fragments, API, exports and logs.

With IPUHUB_ACCESS=kubernetes, the Kubernetes user of a user decides whose jobs they see.

`access_of` is the one place that decides. It builds an `Access` once per user object, that is, once
per request.

Administrators (Django's staff) may do everything. Others have roles (`ipuhub.roles`) per namespace
or in all of them. Accountants see usage and its cost, but no jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db.models import Value
from django.http import HttpResponse
from django.shortcuts import resolve_url

from ipuhub.kube.access import User as ClusterUser
from ipuhub.models import ExternalIdentity, RoleGrant
from ipuhub.roles import ACCOUNTANT, ADMIN, EVERYWHERE, OPERATOR, VIEWER
from ipuhub.variables.actions import RESERVED
from ipuhub.web.clusterusers import EVERYBODY, ClusterAway, ServiceAccount, authority
from ipuhub.web.requests import wants_fragment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    Caller = AbstractBaseUser | AnonymousUser | ServiceAccount

ACCOUNTANTS_ONLY = (
    "Reports and rates cover all namespaces and are visible to administrators and accountants "
    "only. For your own namespaces, see the usage page."
)
ADMINS_ONLY: Final = "Only administrators are allowed to do this."
_KNOWN: Final = "_ipuhub_access"
_LONGEST_NAME: Final = 1024


@dataclass(frozen=True, slots=True)
class Scope:
    """The namespaces that a user may see: all (`namespaces` None), or only these namespaces.

    `with_cost`: whether the user may see what their usage costs.
    """

    namespaces: frozenset[str] | None
    with_cost: bool = False

    @property
    def sees_all(self) -> bool:
        return self.namespaces is None

    @property
    def sees_reports(self) -> bool:
        """Return whether it is an accountant's scope of all namespaces."""
        return self.sees_all and self.with_cost

    def covers(self, namespace: str) -> bool:
        """Return whether objects of `namespace` may be shown."""
        return self.namespaces is None or namespace in self.namespaces

    def holds(self, other: Scope) -> bool:
        """Return whether this covers all that `other` covers."""
        if self.namespaces is None or other.namespaces is None:
            return self.namespaces is None
        return other.namespaces <= self.namespaces

    def __or__(self, other: Scope) -> Scope:
        if self.namespaces is None or other.namespaces is None:
            return Scope(None)
        return Scope(self.namespaces | other.namespaces)


NOTHING: Final = Scope(frozenset())
EVERYTHING: Final = Scope(None)


@dataclass(frozen=True, slots=True)
class Access:
    """The rights of one user: the namespaces whose jobs they see, change (`operates`), and whose
    cost they see (`accounts`).

    `kubernetes_user` is the Kubernetes user of their changes; empty: they can change nothing.
    `cluster_name` is the Kubernetes user that the settings map them to, where it was looked up.
    """

    is_admin: bool = False
    jobs: Scope = NOTHING
    operates: Scope = NOTHING
    accounts: Scope = NOTHING
    kubernetes_user: str = ""
    cluster_name: str = ""

    @property
    def is_accountant(self) -> bool:
        """Return whether the user sees reports and rates, which cover all namespaces."""
        return self.accounts.sees_all

    @property
    def usage(self) -> Scope:
        """The namespaces whose usage the user sees.

        Cost divided by hours reveals the price, so the sums have a cost only if the user may see
        the cost of everything in them.
        """
        both = self.jobs | self.accounts
        seen = both.namespaces is None or bool(both.namespaces)
        return Scope(both.namespaces, with_cost=seen and self.accounts.holds(both))

    def acts_in(self, namespace: str) -> str:
        """Return the Kubernetes user for changes in a namespace; empty: the user may not."""
        return self.kubernetes_user if self.operates.covers(namespace) else ""


def access_of(user: Caller) -> Access:
    """Return what `user` may do; nothing if not signed in. Raises ClusterAway, again for the same
    user object: a page that reports it does not wait for a silent Kubernetes once more."""
    if not user.is_authenticated or not user.is_active:
        return Access()
    known: Access | type[ClusterAway] | None = getattr(user, _KNOWN, None)
    if known is None:
        try:
            known = _read_access(user)
        except ClusterAway:
            known = ClusterAway
        setattr(user, _KNOWN, known)
    if not isinstance(known, Access):
        raise known
    return known


def _read_access(user: Caller) -> Access:
    """Read the grants, and the identity if changes need it, with at most one query,
    and another query where groups count."""
    if isinstance(user, ServiceAccount):
        return _access_of_account(user)
    is_needed = settings.ACTIONS or _uses_kubernetes()
    listed = listed_name(user.get_username())
    needs_identity = is_needed and not listed and bool(settings.ACTIONS_SINGLE_SIGN_ON)
    found = _read_rows(user.pk, grants=not is_admin(user), identities=needs_identity)
    identities = [(first, second) for kind, first, second in found if kind == "identity"]
    name = listed or (single_sign_on_name(user.get_username(), identities) if is_needed else "")
    acts_as = name if settings.ACTIONS else ""
    if is_admin(user):
        return Access(True, EVERYTHING, EVERYTHING, EVERYTHING, acts_as, name)
    granted = _by_grants((first, second) for kind, first, second in found if kind == "grant")
    if not _uses_kubernetes():
        return replace(granted, kubernetes_user=acts_as, cluster_name=name)
    groups = (EVERYBODY, *_groups_of(user.pk)) if name else ()
    jobs = _listable(ClusterUser(name, groups=groups)) if name else NOTHING
    return Access(False, jobs, jobs, granted.accounts, acts_as, name)


def _groups_of(key: Any) -> tuple[str, ...]:
    """Return the groups in Kubernetes of a user with one identity; two are ambiguous."""
    if not settings.ACCESS_GROUPS:
        return ()
    found = list(ExternalIdentity.objects.filter(user=key).values_list("groups", flat=True)[:2])
    return cluster_groups(found[0]) if len(found) == 1 else ()


def acts_as(user: Caller) -> ClusterUser | None:
    """Return the Kubernetes identity of the changes of `user`, with their groups that the settings
    list; None: they can change nothing."""
    name = access_of(user).kubernetes_user
    if not name:
        return None
    listed = set(settings.ACTIONS_GROUPS)
    groups = (group for group in _groups_of(user.pk) if group in listed) if listed else ()
    return ClusterUser(name, groups=tuple(groups))


def _uses_kubernetes() -> bool:
    return bool(settings.ACCESS == "kubernetes")


def _access_of_account(account: ServiceAccount) -> Access:
    """Return what a ServiceAccount may read; it changes nothing."""
    grants = settings.API_SERVICE_ACCOUNT_ROLES.get(account.name)
    if grants is None:
        return Access(jobs=_listable(account.user))
    return replace(_by_grants((each.role, each.namespace) for each in grants), operates=NOTHING)


def _listable(user: ClusterUser) -> Scope:
    return Scope(authority().namespaces_of(user))


def _by_grants(pairs: Iterable[tuple[str, str]]) -> Access:
    grants = set(pairs)
    operates = _where(grants, ADMIN, OPERATOR)
    jobs = operates | _where(grants, VIEWER)
    return Access(False, jobs, operates, _where(grants, ADMIN, ACCOUNTANT))


def _read_rows(key: Any, *, grants: bool, identities: bool) -> list[tuple[str, str, str]]:
    roles = RoleGrant.objects.filter(user=key)
    people = ExternalIdentity.objects.filter(user=key)
    queries: list[Any] = [roles.values_list(Value("grant"), "role", "namespace")] if grants else []
    if identities:
        queries.append(people.values_list(Value("identity"), "issuer", "subject"))
    return list(queries[0].union(*queries[1:], all=True)) if queries else []


def _where(grants: Iterable[tuple[str, str]], *roles: str) -> Scope:
    found = frozenset(namespace for role, namespace in grants if role in roles)
    return EVERYTHING if EVERYWHERE in found else Scope(found)


def is_admin(user: Caller) -> bool:
    """Return whether `user` is an administrator of everything, without a query."""
    return user.is_authenticated and user.is_active and bool(getattr(user, "is_staff", False))


def scope_of(user: Caller) -> Scope:
    """Return whose jobs and partitions `user` sees; empty if not signed in."""
    return access_of(user).jobs


def is_accountant(user: Caller) -> bool:
    """Return whether `user` may see all usage and reports, close months and set rates."""
    return is_admin(user) or access_of(user).is_accountant


def may_see_statements(user: Caller) -> bool:
    """Return whether `user` may see the cost of some namespace, and so statements."""
    scope = access_of(user).accounts
    return scope.sees_all or bool(scope.namespaces)


def usage_scope_of(user: Caller) -> Scope:
    """Return whose usage `user` sees, and whether with its cost."""
    return access_of(user).usage


def sees_cost(scope: Scope) -> bool:
    """Return whether a user with this scope of usage may see costs; see `Access.usage`."""
    return scope.with_cost


def may_see_cost(user: Caller, namespace: str = "") -> bool:
    """Return whether `user` may see costs: of a namespace, or of all that they see."""
    if not settings.USAGE_ENABLED:
        return False
    access = access_of(user)
    return access.accounts.covers(namespace) if namespace else access.usage.with_cost


def require_namespaces(scope: Scope, namespaces: Iterable[str]) -> None:
    """Raise PermissionDenied with a sentence if `scope` does not cover all of them."""
    for namespace in namespaces:
        if not scope.covers(namespace):
            raise PermissionDenied(
                f"You do not have access to namespace {namespace!r}. Ask an administrator to "
                "grant it."
            )


def require_operator(user: Caller, namespace: str) -> None:
    """Raise PermissionDenied with a sentence if `user` may not change jobs of `namespace`."""
    access = access_of(user)
    require_namespaces(access.jobs, [namespace])
    if not access.operates.covers(namespace):
        raise PermissionDenied(
            f"You may see the jobs of namespace {namespace!r}, but not change them. Ask an "
            "administrator for the role operator."
        )


def require_admin(user: Caller) -> None:
    """Raise PermissionDenied with a sentence if `user` is not an administrator."""
    if not is_admin(user):
        raise PermissionDenied(ADMINS_ONLY)


def require_statements(user: Caller) -> Scope:
    """Return the namespaces whose statements `user` may see. Raises PermissionDenied if none."""
    if not may_see_statements(user):
        raise PermissionDenied(ACCOUNTANTS_ONLY)
    return access_of(user).accounts


def require_accountant(user: Caller) -> None:
    """Raise PermissionDenied with a sentence if `user` may not see reports and rates."""
    if not is_accountant(user):
        raise PermissionDenied(ACCOUNTANTS_ONLY)


def signed_in(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Require sign-in; redirect others to the sign-in page, also from a fragment.

    A plain redirect of a fragment would show the sign-in page inside the old page.
    """

    @wraps(view)
    def guarded(request: HttpRequest, *arguments: object, **options: object) -> HttpResponseBase:
        if request.user.is_authenticated:
            return view(request, *arguments, **options)
        if wants_fragment(request):
            target = f"{resolve_url('login')}?{urlencode({'next': request.get_full_path()})}"
            return HttpResponse(status=401, headers={"HX-Redirect": target})
        return redirect_to_login(request.get_full_path())

    return guarded


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
        0 < len(name) <= _LONGEST_NAME
        and name == name.strip()
        and name.isprintable()
        and not name.startswith(RESERVED)
    )
