"""glue: the OpenAPI description of endpoints, including the error responses they share.

The OpenAPI document of the API, generated from its views.
"""

from __future__ import annotations

import copy
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.renderers import OpenApiYamlRenderer
from drf_spectacular.utils import OpenApiExample, extend_schema_serializer
from rest_framework import serializers

from ipuhub.api.auth import scope_for
from ipuhub.api.files import FORM, describe_file, describe_json
from ipuhub.api.idempotency import PARAMETER, is_idempotent
from ipuhub.api.kinds import CONTENT_TYPE
from ipuhub.api.parsing import AnyAccept
from ipuhub.api.views import JSON, MEDIA_TYPES, LiveView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from drf_spectacular.utils import Direction

_F = TypeVar("_F", bound="type[serializers.BaseSerializer[Any]]")
_ALWAYS = {
    HTTPStatus.BAD_REQUEST: "A parameter or the body is invalid.",
    HTTPStatus.UNAUTHORIZED: "The token is missing or invalid.",
    HTTPStatus.FORBIDDEN: "The user does not have access.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many requests in one minute; see `Retry-After`.",
    HTTPStatus.SERVICE_UNAVAILABLE: "A required service is unavailable. Try again later.",
}
_KEYS = {"uid": "UID of the job.", "id": "Number of the row, from the list."}
_ETAG: Final[dict[str, Any]] = {
    "description": "Of the answer, but of no stream: send it as `If-None-Match` next time.",
    "schema": {"type": "string"},
}
_AS_OF: Final[dict[str, Any]] = {
    "description": "When the data was read.",
    "schema": {"type": "string", "format": "date-time"},
}
_RAISES = re.compile(r"\s*\bRaises? [^.]*\.")
_BY_FIELD = serializers.DictField(
    child=serializers.ListField(child=serializers.CharField()),
    required=False,
    help_text="Messages by field (`a.b` for a nested field); `non_field_errors`: messages about "
    "the whole body.",
)


def body_example(value: Mapping[str, Any]) -> Callable[[_F], _F]:
    """Return a decorator that describes a serializer by a body which it takes."""
    example = OpenApiExample("Example", value=value, request_only=True)
    return extend_schema_serializer(examples=[example])


class NoBodySerializer(serializers.Serializer[Any]):
    """No fields."""


class ProblemSerializer(serializers.Serializer[Any]):
    """The reason why a request was rejected (RFC 9457); `errors`: messages by field if the body is
    invalid."""

    type = serializers.CharField(
        help_text="URI of the kind of error, `urn:ipuhub:problem:...`; see the reference page "
        "Problem types."
    )
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField(help_text="A sentence.")

    def get_fields(self) -> dict[str, Any]:
        """Return the fields, including `errors`, whose name DRF uses for a property."""
        return super().get_fields() | {"errors": copy.deepcopy(_BY_FIELD)}


def _describe_scope(operation: dict[str, Any], scope: str) -> None:
    if scope:
        description = operation.get("description", "")
        operation["description"] = f"{description} Scope of the token: `{scope}`.".strip()


class Described(AutoSchema):
    """DRF's schema of views, plus error responses, 304 and files."""

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """Return the description of an operation, or None."""
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        if operation is None:
            return None
        if is_idempotent(self.view, self.method):
            operation.setdefault("parameters", []).append(copy.deepcopy(PARAMETER))
        for each in operation.get("parameters", ()):
            each.setdefault("description", _KEYS.get(each["name"], ""))
        _describe_scope(operation, scope_for(self.view, self.method))
        if self.method == "GET" and hasattr(self.view, "formats"):
            if self.path.endswith(FORM):
                describe_file(operation, getattr(self.view, "columns", ()))
            else:
                describe_json(operation, self.path)
        return operation

    def get_description(self) -> str:  # type: ignore[override]  # not DRF's of the same name
        """Return the view's docstring without the part about exceptions."""
        return _RAISES.sub("", super().get_description()).strip()

    def _get_response_bodies(self, direction: Direction = "response") -> dict[str, Any]:
        bodies = dict(super()._get_response_bodies(direction))
        if direction != "response":
            return bodies
        if self.method == "GET":
            self._add_files(bodies)
        component = self.resolve_serializer(ProblemSerializer, direction)
        content = {CONTENT_TYPE: {"schema": component.ref}}
        for status, description in sorted(self._refusals()):
            bodies.setdefault(str(status.value), {"description": description, "content": content})
        if self._is_tagged(bodies):
            self._add_unchanged(bodies)
        return bodies

    def _is_tagged(self, bodies: Mapping[str, Any]) -> bool:
        """Return whether the answer has an ETag: JSON has, streams do not, but for stored files."""
        if self.method != "GET":
            return False
        is_json = MEDIA_TYPES[JSON] in bodies["200"]["content"] and not self.path.endswith(FORM)
        return is_json or getattr(self.view, "has_etag", False)

    def _add_unchanged(self, bodies: dict[str, Any]) -> None:
        """Add the headers of a tagged answer, and the 304."""
        headers = {"ETag": _ETAG}
        if isinstance(self.view, LiveView):
            headers["X-As-Of"] = _AS_OF
        bodies["200"].setdefault("headers", {}).update(copy.deepcopy(headers))
        bodies[str(HTTPStatus.NOT_MODIFIED.value)] = {
            "description": "Not modified: the ETag still matches If-None-Match.",
            "headers": copy.deepcopy(headers),
        }

    def _map_basic_serializer(self, serializer: Any, direction: Direction) -> Any:
        """Return the schema of a serializer; a body that is not `is_open` has no other fields."""
        found = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]
        if direction == "request" and not getattr(serializer, "is_open", False):
            found["additionalProperties"] = False
        return found

    def _add_files(self, bodies: dict[str, Any]) -> None:
        """Add the file formats of a view, besides JSON."""
        for form in getattr(self.view, "formats", ()):
            kind = {"schema": {"type": "string"}}
            if form != JSON:
                bodies["200"]["content"].setdefault(MEDIA_TYPES[form], kind)

    def _refusals(self) -> Iterator[tuple[HTTPStatus, str]]:
        """Yield each error status with its description."""
        yield from _ALWAYS.items()
        if "{" in self.path:
            yield HTTPStatus.NOT_FOUND, "Not found, or the user does not have access."
        if not issubclass(self.view.content_negotiation_class, AnyAccept):
            yield HTTPStatus.NOT_ACCEPTABLE, "Accept allows none of the available media types."
        if self.method in {"POST", "PATCH"}:
            yield HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large."
            yield HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body is not JSON."
        if is_idempotent(self.view, self.method):
            yield (
                HTTPStatus.CONFLICT,
                "The request with this key is in progress, or has no answer.",
            )
            yield HTTPStatus.UNPROCESSABLE_ENTITY, "The key belongs to another request."


def openapi_text() -> str:
    """Return docs/reference/openapi.yaml."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return cast("bytes", OpenApiYamlRenderer().render(schema, renderer_context={})).decode()  # type: ignore[no-untyped-call]
