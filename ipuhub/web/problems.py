"""glue: error responses: a page for people, a line for a polled fragment, problem+json for
programs.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, Final

from django.core.exceptions import DisallowedHost, RequestDataTooBig, TooManyFieldsSent
from django.db import InterfaceError, OperationalError
from django.http import HttpResponse
from django.shortcuts import render
from django.template import loader

from ipuhub.api.kinds import is_api
from ipuhub.api.problems import problem_answer
from ipuhub.web.filters import BadFilter, refuse_unknown
from ipuhub.web.refusals import note_refusal
from ipuhub.web.requests import wants_fragment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.http import HttpRequest, HttpResponseBase

_MALFORMED: Final[dict[type[Exception], str]] = {
    DisallowedHost: "This host name is not allowed. An administrator can add it to "
    "IPUHUB_ALLOWED_HOSTS.",
    RequestDataTooBig: "This form is too large.",
    TooManyFieldsSent: "This form or query has too many fields.",
}
_CANCELED: Final = "57014"
_TOO_LONG: Final = (
    "PostgreSQL did not finish this query within IPUHUB_WEB_QUERY_SECONDS. Request less data, or "
    "try again later."
)
_AWAY: Final = "PostgreSQL is unavailable"
_UNFINISHED: Final = "PostgreSQL takes too long"
_FAILED: Final = "The dashboard failed"
_OUTDATED = "This form is out of date. Reload the page and send it again."
_ADMINS_ONLY = "This page shows all namespaces and is visible to administrators only."


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Return the 403 page (Django defines the arguments)."""
    return _refuse(request, 403, str(exception) or _ADMINS_ONLY)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Return the 404 page."""
    detail = exception.args[0] if exception.args else ""
    return _refuse(request, 404, detail if isinstance(detail, str) and detail.endswith(".") else "")


def server_error(request: HttpRequest) -> HttpResponseBase:
    """Return the 500 page, or the 503 page if the database is unavailable; runs no query."""
    error = sys.exc_info()[1]
    is_canceled = _state_of(error) == _CANCELED
    status = 503 if is_canceled or _is_database_unavailable(error) else 500
    if _is_program(request):
        if is_canceled:
            return problem_answer(status, _TOO_LONG, "query-too-long")
        return problem_answer(status)
    if wants_fragment(request):  # an open page keeps its content, and shows this beside it
        text = _UNFINISHED if is_canceled else _AWAY if status == 503 else _FAILED
        return HttpResponse(text, "text/plain; charset=utf-8", status)
    if is_canceled:
        return busy(request, _TOO_LONG, "This took too long")
    return HttpResponse(loader.render_to_string(f"{status}.html"), status=status)


def _is_database_unavailable(error: BaseException | None) -> bool:
    """Return whether the connection failed, as opposed to a query."""
    if not isinstance(error, InterfaceError | OperationalError):
        return False
    state = _state_of(error)
    return not state or state.startswith(("08", "57P"))


def _state_of(error: BaseException | None) -> str:
    """Return the SQLSTATE of a database error, if any."""
    return str(getattr(getattr(error, "__cause__", None), "sqlstate", None) or "")


def bad_parameters(request: HttpRequest, sentences: Sequence[str]) -> HttpResponseBase:
    """Return a 400 page that lists invalid parameters and links to the page without them."""
    if _is_program(request):
        return problem_answer(400, " ".join(sentences), "invalid-value")
    note_refusal(request, " ".join(sentences))
    context = {"problems": sentences, "again": request.path}
    return render(request, "400.html", context, status=400)


def takes(
    *names: str,
) -> Callable[[Callable[..., HttpResponseBase]], Callable[..., HttpResponseBase]]:
    """Return a decorator of a page that has only these query parameters: with another one it is a
    400 with its name. A parameter that nothing reads would be a filter that does not filter."""
    known = frozenset(names)

    def decorate(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def checked(request: HttpRequest, *given: object, **options: object) -> HttpResponseBase:
            try:
                refuse_unknown(dict(request.GET.lists()), known)
            except BadFilter as error:
                return bad_parameters(request, error.messages)
            return view(request, *given, **options)

        return checked

    return decorate


def bad_request(request: HttpRequest, sentence: str) -> HttpResponseBase:
    """Return a 400 for a request that is invalid before a view reads it."""
    note_refusal(request, sentence)
    if _is_program(request):
        return problem_answer(400, sentence)
    return HttpResponse(sentence, status=400, content_type="text/plain; charset=utf-8")


def malformed(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    """Return the reason why Django rejects a request: host name, number of fields, size of the
    form."""
    return bad_request(request, _MALFORMED.get(type(exception), "This request is malformed."))


def busy(
    request: HttpRequest,
    sentence: str,
    title: str = "Too many downloads now",
) -> HttpResponseBase:
    """Return the 503 page of an overloaded server."""
    if _is_program(request):
        return problem_answer(503, sentence, "server-busy")
    return render(request, "busy.html", {"sentence": sentence, "title": title}, status=503)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """Return the page for a form with a missing or outdated CSRF token."""
    del reason
    return _refuse(request, 403, _OUTDATED, "outdated-form")


def _refuse(request: HttpRequest, status: int, sentence: str, kind: str = "") -> HttpResponseBase:
    if status == 403:
        note_refusal(request, sentence)
    if _is_program(request):
        return problem_answer(status, sentence, kind)
    if wants_fragment(request):
        return render(request, "_problem.html", {"sentence": sentence}, status=status)
    if not hasattr(request, "user"):  # refused before authentication
        return HttpResponse(sentence, status=status, content_type="text/plain")
    return render(request, f"{status}.html", {"sentence": sentence}, status=status)


def _is_program(request: HttpRequest) -> bool:
    accept = request.headers.get("Accept", "")
    return is_api(request.path) or accept.startswith(
        ("application/json", "application/problem+json")
    )
