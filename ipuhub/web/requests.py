"""glue: which answer a request wants: the page or its changing part; and who may ask at all."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.contrib.auth.views import redirect_to_login
from django.http import HttpResponse
from django.shortcuts import resolve_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase


def wants_fragment(request: HttpRequest) -> bool:
    """Whether htmx asks for the changing part; a boosted link wants the whole page."""
    headers = request.headers
    return headers.get("HX-Request") == "true" and headers.get("HX-Boosted") != "true"


def signed_in(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Let only signed-in users pass; send others to the sign-in page, from a fragment too.

    A fragment that was redirected would show the sign-in page inside the old page.
    """

    @wraps(view)
    def guarded(request: HttpRequest, *arguments: object, **options: object) -> HttpResponseBase:
        if request.user.is_authenticated:
            return view(request, *arguments, **options)
        if wants_fragment(request):
            there = f"{resolve_url('login')}?{urlencode({'next': request.get_full_path()})}"
            return HttpResponse(status=401, headers={"HX-Redirect": there})
        return redirect_to_login(request.get_full_path())

    return guarded
