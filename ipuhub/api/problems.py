"""glue: errors of the API as application/problem+json (RFC 9457), each with a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import ValidationError as DjangoValidationError
from django.http import Http404, JsonResponse
from rest_framework import exceptions
from rest_framework.views import exception_handler

from ipuhub.api.auth import MissingScope
from ipuhub.api.kinds import CONTENT_TYPE, kind_of_code, problem
from ipuhub.web.filters import BadFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rest_framework.response import Response

    from ipuhub.web.filters import Mistake

_SIGN_IN = "Sign in, or send an API token: Authorization: Bearer <token>."


def problem_answer(status: int, detail: str = "", kind: str = "") -> JsonResponse:
    """Return a problem as a plain Django response, for errors outside the API's views."""
    body = problem(status, detail, kind)
    return JsonResponse(body, status=status, content_type=CONTENT_TYPE)


def handle_exception(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Return a problem response for `error`, or None for a bug (a 500, with a traceback in the
    log)."""
    sentence = _own_sentence(error)
    if isinstance(error, BadFilter):
        error = exceptions.ValidationError(_by_name(error.mistakes))
    elif isinstance(error, DjangoValidationError):
        error = exceptions.ValidationError(error.messages)
    answer = exception_handler(error, dict(context))
    if answer is None:
        return None
    extra: dict[str, Any] = {}
    if isinstance(error, exceptions.ValidationError):
        sentence, extra = _sentences(answer.data), {"errors": by_field(answer.data)}
    elif isinstance(error, exceptions.NotAuthenticated):
        sentence = _SIGN_IN
    elif isinstance(error, exceptions.Throttled):
        sentence = f"Too many requests in one minute. Try again in {answer['Retry-After']} s."
    elif isinstance(error, exceptions.APIException):
        sentence = str(error.detail)
    if isinstance(error, MissingScope):
        extra["scope"] = error.scope
        answer["WWW-Authenticate"] = (
            f'Bearer realm="ipuhub", error="insufficient_scope", scope="{error.scope}"'
        )
    answer.data = problem(answer.status_code, sentence, _kind_of(error), **extra)
    answer.content_type = CONTENT_TYPE
    return answer


def _by_name(mistakes: Iterable[Mistake]) -> dict[str, list[str]]:
    """Return the sentences about parameters by their names."""
    found: dict[str, list[str]] = {}
    for each in mistakes:
        found.setdefault(each.name or "non_field_errors", []).append(each.sentence)
    return found


def by_field(errors: Any, field: str = "") -> dict[str, list[str]]:
    """Return the messages of a validation error by field."""
    parts: list[tuple[str, Any]] = []
    if isinstance(errors, dict):
        for name, each in errors.items():
            is_own = name == "non_field_errors"
            parts.append((field if is_own else f"{field}.{name}" if field else str(name), each))
    elif isinstance(errors, list):
        parts = [(field, each) for each in errors]
    else:
        return {field or "non_field_errors": [str(errors)]}
    found: dict[str, list[str]] = {}
    for name, each in parts:
        for key, sentences in by_field(each, name).items():
            found.setdefault(key, []).extend(sentences)
    return found


def _kind_of(error: Exception) -> str:
    if isinstance(error, exceptions.APIException):
        return kind_of_code(str(error.default_code))
    return ""  # Django's 403 and 404


def _own_sentence(error: Exception) -> str:
    """Return the message of a Django exception, which DRF would drop."""
    if isinstance(error, Http404 | DjangoPermissionDenied) and error.args:
        text = error.args[0]
        return text if isinstance(text, str) and text.endswith(".") else ""
    return ""


def _sentences(errors: Any) -> str:
    """Return all messages of a validation error in one line, each with its field."""
    if isinstance(errors, dict):
        return " ".join(
            _sentences(value) if key == "non_field_errors" else f"{key}: {_sentences(value)}"
            for key, value in errors.items()
        )
    if isinstance(errors, list):
        return " ".join(_sentences(each) for each in errors)
    return str(errors)
