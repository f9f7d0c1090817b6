"""glue: parsing of JSON bodies, with a size limit and readable errors.

Content negotiation that ignores Accept for endpoints that return files.

The API uses the same filter classes and error messages as the pages.
"""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

from django_filters.rest_framework import DjangoFilterBackend
from rest_framework.exceptions import APIException, ParseError, ValidationError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser

from ipuhub.web.filters import OF_THE_LIST, BadFilter, Mistake, apply_filters, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.db.models import QuerySet
    from django.forms import BaseForm
    from rest_framework.renderers import BaseRenderer
    from rest_framework.request import Request
    from rest_framework.serializers import Serializer
    from rest_framework.views import APIView

MOST_BYTES: Final = 64 * 1024  # manifests apart, the largest body has a few hundred
_DRY_RUN: Final = "For a dry run send the query parameter dry_run=true."


class TooLarge(APIException):
    """The body has more than `most` bytes."""

    status_code = 413
    default_code = "body-too-large"

    def __init__(self, most: int) -> None:
        super().__init__(f"The body is too large: at most {most // 1024} KiB.")


class JsonBody(BaseParser):
    """Parser for a JSON object (RFC 8259) of at most `most_bytes`."""

    media_type = "application/json"
    most_bytes = MOST_BYTES

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the JSON object of the body. Raise ParseError or TooLarge."""
        del media_type, parser_context
        body = stream.read(self.most_bytes + 1)
        if len(body) > self.most_bytes:
            raise TooLarge(self.most_bytes)
        try:
            found = json.loads(body.decode(), parse_constant=_refuse_constant)
            json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text
        except UnicodeError:
            raise ParseError("The body is not UTF-8 text.") from None
        except RecursionError:
            raise ParseError("The body is nested too deeply.") from None
        except ValueError as error:
            raise ParseError(f"The body is not JSON: {error}.") from None
        if not isinstance(found, dict):
            raise ParseError('The body is not a JSON object, like {"name": "value"}.')
        return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def read_body(kind: type[Serializer[Any]], request: Request) -> dict[str, Any]:
    """Return the checked fields of the body.

    Raise ValidationError, also for a field that nothing would read: a misspelt filter would widen
    a subscription, and a misspelt dry run would be carried out.
    """
    given = kind(data=request.data)
    valid = sorted(name for name, field in given.fields.items() if not field.read_only)
    listed = f"Valid fields: {', '.join(valid)}." if valid else "The body has no fields."
    unknown = {
        name: [f"unknown field. {_DRY_RUN if _is_dry_run(name) else listed}"]
        for name in request.data
        if name not in valid
    }
    if not given.is_valid() or unknown:
        raise ValidationError({**given.errors, **unknown})
    found: dict[str, Any] = given.validated_data
    return found


def read_form(form: BaseForm) -> dict[str, Any]:
    """Return the checked fields of a page's form. Raise ValidationError."""
    if not form.is_valid():
        raise ValidationError({name: [*map(str, texts)] for name, texts in form.errors.items()})
    return form.cleaned_data


def _is_dry_run(name: str) -> bool:
    return name.lower().replace("_", "").replace("-", "") == "dryrun"


class AnyAccept(DefaultContentNegotiation):
    """Send files regardless of Accept, and errors as JSON."""

    def select_renderer(
        self, _request: Request, renderers: Any, _format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class PageFilterBackend(DjangoFilterBackend):  # type: ignore[misc]
    """Applies the view's `filterset_class`. Raises BadFilter and PermissionDenied.

    A view lists its other formats besides JSON in `formats`.
    """

    def filter_queryset(
        self, request: Request, queryset: QuerySet[Any], view: APIView
    ) -> QuerySet[Any]:
        answers = getattr(view, "formats", ("json",))
        form = request.query_params.get("format") or "json"
        if form not in answers:
            raise BadFilter(Mistake("format", f"{form!r} is not one of {', '.join(answers)}."))
        kind = self.get_filterset_class(view, queryset)
        if kind is None:
            refuse_unknown(dict(request.query_params.lists()), OF_THE_LIST)
            return queryset
        return apply_filters(kind, request.query_params, queryset, request.user)
