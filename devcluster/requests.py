"""io: parses requests of the API: bodies, options, selectors, and the requested response format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
import yaml

from devcluster.schemas import protobuf
from devcluster.schemas.builtin import decode_error, schema_of
from devcluster.status import StatusError, bad_request
from devcluster.storage.objects import WriteOptions
from devcluster.storage.selectors import (
    parse_field_selector,
    parse_label_selector,
    selectable_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from devcluster.paths import ResourcePath, User
    from devcluster.schemas.kinds import Kind

_MAX_BODY: Final = 3 * 1024 * 1024
_READABLE: Final = "application/json, application/yaml"
_UNKNOWN_FORM: Final = (
    "the body of the request was in an unknown format - accepted media types include: "
)


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One authenticated request for a resource that is served."""

    http: web.Request
    kind: Kind
    path: ResourcePath
    user: User

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters."""
        return dict(self.http.query)

    @property
    def table(self) -> str:
        """Return how rows carry their objects (Metadata, Object, None); "" when no Table is
        wanted."""
        accept = self.http.headers.get("Accept", "")
        wanted = "as=Table" in accept and "g=meta.k8s.io" in accept
        return self.query.get("includeObject", "Metadata") if wanted else ""


async def read_raw(request: web.Request) -> bytes:
    """Return the body; StatusError 413 past 3 MiB, as on a real server."""
    data = await request.content.read(_MAX_BODY + 1)
    while len(data) <= _MAX_BODY and not request.content.at_eof():
        data += await request.content.read(_MAX_BODY + 1 - len(data))
    if len(data) > _MAX_BODY:
        message = f"Request entity too large: limit is {_MAX_BODY}"
        raise StatusError(413, "RequestEntityTooLarge", message)
    return data


async def read_object(request: web.Request) -> dict[str, Any]:
    """Return the object in a JSON or YAML body; StatusError 400, 413, 415."""
    data, content_type = await read_raw(request), request.content_type
    if not data:
        return {}
    if content_type == "application/vnd.kubernetes.protobuf":
        return _decode_protobuf(data)
    if "Content-Type" in request.headers and not _is_readable(content_type):
        raise StatusError(415, "UnsupportedMediaType", f"{_UNKNOWN_FORM}{_READABLE}")
    body = parse_body(data, content_type)
    if not isinstance(body, dict):
        raise bad_request("couldn't get version/kind; json parse error: body is not an object")
    return body


async def read_typed(request: web.Request, api_version: str, kind: str) -> dict[str, Any]:
    """Return a body that is not stored (a review, options) with fields of the right types.

    StatusError 400, 413, 415.
    """
    body = await read_object(request)
    schema = schema_of(api_version, kind)
    if schema is not None:
        schema.default(body)
        wrong = decode_error(kind, schema.validate(body))
        if wrong:
            raise bad_request(f"{kind} cannot be handled: {wrong}")
    return body


def check_accept(request: web.Request) -> None:
    """Refuse a client that reads no JSON. StatusError 406."""
    accepted = request.headers.get("Accept") or "*/*"
    if not any(known in accepted for known in ("*/*", "application/*", "application/json")):
        message = "only the following media types are accepted: application/json"
        raise StatusError(406, "NotAcceptable", message)


def _is_readable(content_type: str) -> bool:
    return content_type.endswith(("json", "yaml"))


def _decode_protobuf(data: bytes) -> dict[str, Any]:
    try:
        return protobuf.decode(data)
    except protobuf.UnreadableError as error:
        what = f" of a {error.kind}" if error.kind else ""
        raise StatusError(
            415,
            "UnsupportedMediaType",
            f"{_UNKNOWN_FORM}{_READABLE}; the embedded API reads no protobuf{what}: set "
            "the client's content type to application/json, or write the object to a file "
            "(kubectl create ... --dry-run=client -o yaml) and kubectl apply it",
        ) from error


def parse_body(data: bytes, content_type: str) -> Any:
    """Return the parsed JSON or YAML; StatusError 400."""
    try:
        if "yaml" in content_type:
            # Not by libyaml, which deep nesting ends with a segmentation fault. Dates become texts.
            data = orjson.dumps(yaml.safe_load(data))
        return orjson.loads(data)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, yaml.YAMLError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def write_options(query: dict[str, str]) -> WriteOptions:
    """Read dryRun and fieldValidation (the server's default is Warn). StatusError 400."""
    dry_run, validation = query.get("dryRun", ""), query.get("fieldValidation") or "Warn"
    if dry_run not in {"", "All"}:
        raise bad_request(f'dryRun: Unsupported value: "{dry_run}": supported values: "All"')
    if validation not in {"Ignore", "Warn", "Strict"}:
        raise bad_request(
            f'fieldValidation: Unsupported value: "{validation}": '
            'supported values: "", "Ignore", "Strict", "Warn"'
        )
    return WriteOptions(bool(dry_run), validation)


def review_options(kind: str, request: ApiRequest, *, dry_run: bool) -> dict[str, Any]:
    """The options of a write as webhooks see them; `kind` is CreateOptions or the like."""
    query = request.query
    options: dict[str, Any] = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    names = ("fieldManager", "fieldValidation")
    options |= {name: query[name] for name in names if query.get(name)}
    return {**options, "dryRun": ["All"]} if dry_run else options


def make_filter(request: ApiRequest) -> Callable[[dict[str, Any]], bool] | None:
    """Return the predicate of labelSelector, fieldSelector and a name; None: everything."""
    labels_text = request.query.get("labelSelector", "")
    fields_text = request.query.get("fieldSelector", "")
    if request.path.name:
        fields_text = f"metadata.name={request.path.name}"
    if not labels_text and not fields_text:
        return None
    try:
        labels = parse_label_selector(labels_text)
        fields = parse_field_selector(fields_text, selectable_fields(request.kind.resource_name))
    except ValueError as error:
        kind = request.kind
        raise bad_request(
            f'Unable to find "{kind.api_version}, Resource={kind.plural}" that match label '
            f'selector "{labels_text}", field selector "{fields_text}": {error}'
        ) from error
    return lambda body: labels.matches(body["metadata"].get("labels")) and fields.matches(body)


def read_number(query: dict[str, str], name: str) -> int | None:
    """Return a whole number of the query, None when absent; StatusError 400."""
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdecimal():
        raise bad_request(f'Invalid value: "{text}" for {name}: must be a number')
    return int(text)
