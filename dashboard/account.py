"""glue: a user's own account: API tokens (make, see once, revoke) and the password."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final, cast

from django import forms
from django.contrib import messages
from django.contrib.auth.views import PasswordChangeView
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import reverse_lazy
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from ipuhub.api.auth import curl_line, make_token
from ipuhub.api.scopes import DEFAULT, SCOPES, write_scopes
from ipuhub.models import ApiToken
from ipuhub.web.access import signed_in
from ipuhub.web.audit import TOKEN, USER, AuditEvent, audited, author_of
from ipuhub.web.columns import Column
from ipuhub.web.exports import export, known_format
from ipuhub.web.filters import BadFilter
from ipuhub.web.grants import delete_token, token_fields
from ipuhub.web.problems import bad_parameters, takes
from ipuhub.web.refusals import note_mistakes
from ipuhub.web.signin import LimitedAttempts, forget_attempts

if TYPE_CHECKING:
    from collections.abc import Collection

    from django.contrib.auth.forms import PasswordChangeForm
    from django.contrib.auth.models import User
    from django.forms import BaseForm
    from django.http import HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase

    from ipuhub.web.audit import Author


NOT_YOURS: Final = "You have no such token."
TOKEN_COLUMNS: Final = (
    Column("name", "Name", lambda token: token.name),
    Column("scopes", "Scopes", lambda token: token.scopes),
    Column("created_at", "Created", lambda token: token.created_at),
    Column("last_used_at", "Last used", lambda token: token.last_used_at),
    Column("expires_at", "Valid until", lambda token: token.expires_at),
)
"""Of the page's files."""


class TokenForm(forms.Form):
    """The fields of a new token."""

    name = forms.CharField(max_length=100, strip=True)
    days = forms.TypedChoiceField(
        choices=[("30", "30 days"), ("90", "90 days"), ("365", "one year"), ("0", "no expiry")],
        coerce=int,
        initial="90",
    )
    scopes = forms.MultipleChoiceField(
        choices=list(SCOPES.items()),
        initial=DEFAULT.split(),
        error_messages={"required": "Choose what the token may do."},
    )


def make_own_token(
    author: Author, name: str, ends: dt.datetime | None, scopes: Collection[str]
) -> tuple[ApiToken, str]:
    """Make a token of the author; return it and its text."""
    words, owner = write_scopes(scopes), cast("User", author.user)
    with audited(
        author, AuditEvent(TOKEN, "create", name, fields=token_fields(owner, words, ends))
    ):
        return make_token(owner, name, timezone.now(), ends, words)


def _owner(request: HttpRequest) -> User:
    """Return the signed-in user; the views require one."""
    return cast("User", request.user)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
@takes("format")
@never_cache
def tokens(request: HttpRequest) -> HttpResponseBase:
    """Show the user's tokens, or a file of them; a POST makes a token and shows its text, this
    once."""
    mine = ApiToken.objects.filter(user=_owner(request)).order_by("-created_at", "-id")
    try:
        kind = known_format(request.GET.get("format", ""))
        if kind and request.method != "POST":
            return export(kind, TOKEN_COLUMNS, mine.iterator(), "tokens")
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    form = TokenForm(request.POST if request.method == "POST" else None)
    text = ""
    if form.is_valid():
        now = timezone.now()
        days = form.cleaned_data["days"]
        end = now + dt.timedelta(days=days) if days else None
        given = form.cleaned_data
        _token, text = make_own_token(author_of(request), given["name"], end, given["scopes"])
        form = TokenForm()
    note_mistakes(request, form)
    context = {"form": form, "text": text, "tokens": mine, "now": timezone.now()}
    context["curl"] = curl_line(text, request.build_absolute_uri("/")) if text else ""
    return render(request, "account/tokens.html", context, status=400 if form.errors else 200)


@require_POST
@signed_in
def revoke_token(request: HttpRequest, number: int) -> HttpResponse:
    """Delete one of the user's tokens: it stops working at once. Raises Http404."""
    token = delete_token(number, author_of(request), _owner(request))
    if token is None:
        raise Http404(NOT_YOURS)
    messages.success(request, f"The token {token.name} no longer works.")
    return redirect("account-tokens")


class PasswordPage(LimitedAttempts, PasswordChangeView):
    """Change the user's password; every other session of the user ends, tokens stay.

    Wrong old passwords count as failed sign-ins: a session is not the password.
    """

    http_method_names = ["get", "head", "post"]  # noqa: RUF012  # as Django declares it
    template_name = "account/password.html"
    success_url = reverse_lazy("account-password")
    refusal = "Too many attempts with a wrong password."

    def username(self) -> str:
        """Return the signed-in user."""
        return _owner(self.request).get_username()

    def empty_form(self) -> BaseForm:
        """Return an empty form for the old and the new password."""
        form: BaseForm = self.get_form_class()(_owner(self.request))
        return form

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        """Say on the next page that it was changed."""
        message = "Your password was changed. Other browsers are signed out. API tokens still work."
        messages.success(self.request, message)
        author = author_of(self.request)
        with audited(author, AuditEvent(USER, "change-password", author.name)):
            return super().form_valid(form)

    def form_invalid(self, form: PasswordChangeForm) -> HttpResponse:
        """Answer 400: nothing was changed."""
        if "old_password" not in form.errors:
            forget_attempts(self.counted)
        note_mistakes(self.request, form)
        answer = super().form_invalid(form)
        answer.status_code = 400
        return answer
