"""glue: the page of users with their roles and tokens, for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from ipuhub.roles import ADMIN, EVERYWHERE, ROLES, VIEWER, Grant, RoleError
from ipuhub.web.access import require_admin, signed_in
from ipuhub.web.audit import ROLE, AuditEvent, author_of, record_refusal
from ipuhub.web.columns import Column
from ipuhub.web.exports import CHUNK_ROWS, export, known_format
from ipuhub.web.filters import PAGE, BadFilter, read_page_number
from ipuhub.web.grants import delete_token, grant_role, revoke_role
from ipuhub.web.problems import bad_parameters, takes
from ipuhub.web.refusals import note_mistakes

if TYPE_CHECKING:
    import datetime as dt

    from django.contrib.auth.models import User
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from ipuhub.models import ApiToken
    from ipuhub.web.audit import Author

NOT_FOUND: Final = "There is no such token."
A_PAGE: Final = 100
"""Users of a page, by name."""
OF_A_ROW: Final = ("role_grants", "api_tokens", "external_identities")
"""What `read_user` reads of a user."""
_OWN: Final = "You cannot take your own role admin away. Ask another administrator."


class Row(NamedTuple):
    """A user as the page shows him."""

    name: str
    is_active: bool
    roles: list[tuple[Grant, bool]]
    is_external: bool
    last_sign_in: dt.datetime | None
    tokens: list[ApiToken]
    created_at: dt.datetime


def _roles_of(row: Row) -> str:
    return ", ".join(f"{grant.role}:{grant.namespace}" for grant, _ in row.roles)


USER_COLUMNS: Final = (
    Column("name", "Name", lambda row: row.name),
    Column("is_active", "Active", lambda row: row.is_active),
    Column("is_external", "Single sign-on", lambda row: row.is_external),
    Column("roles", "Roles", _roles_of),
    Column("last_sign_in", "Last sign-in", lambda row: row.last_sign_in),
    Column("tokens", "Tokens", lambda row: len(row.tokens)),
    Column("created_at", "Created", lambda row: row.created_at),
)
"""Of the page's files."""


class RoleForm(forms.Form):
    """A role to grant to a user or to revoke."""

    user = forms.CharField(max_length=150)
    role = forms.ChoiceField(choices=[(role, role) for role in ROLES], initial=VIEWER)
    namespace = forms.CharField(max_length=63, strip=True)
    change = forms.ChoiceField(choices=[("grant", "Grant"), ("revoke", "Revoke")])

    def clean_user(self) -> User:
        """Return the user of this name."""
        user = get_user_model().objects.filter(username=self.cleaned_data["user"]).first()
        if user is None:
            raise ValidationError("There is no user of this name.")
        return user

    def clean(self) -> dict[str, Any]:
        """Add the grant."""
        given = self.cleaned_data
        try:
            given["grant"] = Grant(given.get("role", VIEWER), given.get("namespace", EVERYWHERE))
        except RoleError as error:
            self.add_error("namespace", f"{error}.")
        return given


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
@takes("q", PAGE, "format")
@never_cache
def users_page(request: HttpRequest) -> HttpResponseBase:
    """Show the users with `q` in their names, page by page, or all of them as a file; a POST grants
    or revokes a role. Raises PermissionDenied."""
    require_admin(request.user)
    text = request.GET.get("q", "").strip()
    named = get_user_model().objects.filter(username__icontains=text).order_by("username")
    named = named.prefetch_related(*OF_A_ROW)
    try:
        kind = known_format(request.GET.get("format", ""))
        if kind and request.method != "POST":
            found = named.iterator(chunk_size=CHUNK_ROWS)
            return export(kind, USER_COLUMNS, map(read_user, found), "users")
        number = read_page_number(request.GET.get(PAGE, ""))
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    form = RoleForm(request.POST if request.method == "POST" else None)
    if form.is_valid() and _change_role(request, form):
        return redirect(request.get_full_path())
    note_mistakes(request, form)
    page = Paginator(named, A_PAGE).get_page(number)
    context = {
        "rows": [read_user(user) for user in page.object_list],
        "count": page.paginator.count,
        "text": text,
        "query": f"{urlencode({'q': text})}&" if text else "",
        "page": page,
        "here": request.get_full_path(),
        "now": timezone.now(),
        "form": form,
        "roles": ROLES,
    }
    return render(request, "account/users.html", context, status=400 if form.errors else 200)


@require_POST
@signed_in
def revoke_token_of(request: HttpRequest, number: int) -> HttpResponseBase:
    """Revoke a token of any user: it stops working at once. Raises PermissionDenied and Http404."""
    require_admin(request.user)
    token = delete_token(number, author_of(request))
    if token is None:
        raise Http404(NOT_FOUND)
    messages.success(request, f"The token {token.name} of {token.user} no longer works.")
    return redirect("account-users")


def change_role(by: Author, given: dict[str, Any]) -> bool:
    """Do what a valid RoleForm asks for; return whether that changed something. Raise
    ValidationError if `by` would no longer be an administrator."""
    user, grant, is_grant = given["user"], given["grant"], given["change"] == "grant"
    if user == by.user and grant == Grant(ADMIN) and not is_grant:
        fields = [("role", ADMIN, None)]
        record_refusal(by, AuditEvent(ROLE, "revoke", by.name, EVERYWHERE, fields=fields), _OWN)
        raise ValidationError(_OWN)
    return (grant_role if is_grant else revoke_role)(user, grant, by)


def _change_role(request: HttpRequest, form: RoleForm) -> bool:
    """Do it; False with an error in the form: nothing was changed."""
    user, grant = form.cleaned_data["user"], form.cleaned_data["grant"]
    is_grant = form.cleaned_data["change"] == "grant"
    try:
        is_changed = change_role(author_of(request), form.cleaned_data)
    except ValidationError as error:
        form.add_error("user", error)
        return False
    where = "all namespaces" if grant.namespace == EVERYWHERE else f"namespace {grant.namespace}"
    has = "has now" if is_grant else "no longer has"
    message = f"{user} {has} the role {grant.role} in {where}."
    messages.success(request, message if is_changed else f"Nothing changed: {message}")
    return True


def read_user(user: User) -> Row:
    """Return a user with their roles and tokens; True beside a role: it comes from a group."""
    roles = [(Grant(ADMIN), False)] if user.is_staff else []
    roles += sorted(
        (Grant(row.role, row.namespace), row.from_groups) for row in user.role_grants.all()
    )
    return Row(
        user.get_username(),
        user.is_active,
        roles,
        bool(user.external_identities.all()),
        user.last_login,
        sorted(user.api_tokens.all(), key=lambda token: token.created_at),
        user.date_joined,
    )
