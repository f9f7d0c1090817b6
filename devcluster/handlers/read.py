"""io: get, list and watch."""

from __future__ import annotations

import base64
import gzip
import re
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import web

from devcluster.printing.tables import as_table
from devcluster.requests import make_filter, read_number
from devcluster.status import FieldError, StatusError, bad_request, expired, invalid
from devcluster.storage.watchers import WatchRequest
from ipuhub.backoff import between

if TYPE_CHECKING:
    from collections.abc import Callable

    from devcluster.context import Api
    from devcluster.requests import ApiRequest
    from devcluster.storage.store import Item

_GZIP_BYTES: Final = 128 * 1024
_TYPE: Final = re.compile(rb'\{"apiVersion":"[^"]*","kind":"[^"]*",')
_NOW: Final = -1  # in a continue token: whatever there is then
_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can "
    "start a new list without the continue parameter, or use the one of this answer."
)


def render(api: Api, request: ApiRequest, item: Item) -> bytes:
    """Return one object as the client wants it: itself, or a Table of one row."""
    if request.table:
        return orjson.dumps(make_table(api, request, [item]))
    return item.data  # as it is stored: a list decodes nothing


def make_table(api: Api, request: ApiRequest, items: list[Item]) -> dict[str, Any]:
    """Return the Table of objects; its rows include objects as includeObject requests."""
    custom = api.registry.custom_kind(request.kind)
    columns = custom.columns if custom is not None else []
    bodies = [item.body for item in items]
    table = as_table(request.kind, bodies, columns, api.clock())
    if len(items) == 1:
        table["metadata"] = {"resourceVersion": str(items[0].revision)}
    for row, body in zip(table["rows"], bodies, strict=True):
        if request.table == "Object":
            row["object"] = body
        elif request.table == "None":
            row.pop("object", None)
        else:
            row["object"] = _partial(body)
    return table


def answer(data: bytes, request: web.Request, *, code: int = 200) -> web.Response:
    """Return a JSON answer, compressed when it is large and the client can read that."""
    response = web.Response(body=data, status=code, content_type="application/json")
    if len(data) > _GZIP_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
        response.body = gzip.compress(data, 1)
        response.headers["Content-Encoding"] = "gzip"
    return response


def add_warnings(response: web.Response, sentences: list[str]) -> None:
    """Add a Warning header per sentence."""
    for sentence in sentences:
        line = " ".join(sentence.split())  # a header has no second line
        quoted = line.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')


async def get_object(api: Api, request: ApiRequest) -> web.StreamResponse:
    """GET of one object."""
    item = api.objects.get(request.kind, request.path.namespace, request.path.name)
    return answer(render(api, request, item), request.http)


async def list_objects(api: Api, request: ApiRequest) -> web.StreamResponse:
    """GET of a collection: pages of one consistent state."""
    query, bucket = request.query, request.kind.resource_name
    limit = read_number(query, "limit") or 0
    revision, after = _list_start(api, query)
    try:
        items = api.store.items_at(bucket, revision, request.path.namespace)
    except StatusError as error:
        go_on = _encode_continue(_NOW, after) if after else ""
        raise expired(_EXPIRED if after else error.message, go_on) from error
    matches = make_filter(request)
    if after:
        items = [item for item in items if item.key > after]
    if matches is not None:
        items = [item for item in items if matches(item.body)]
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if limit and len(items) > limit:
        metadata["continue"] = _encode_continue(revision, items[limit - 1].key)
        if matches is None:
            metadata["remainingItemCount"] = len(items) - limit
        items = items[:limit]
    return answer(_render_list(api, request, items, metadata), request.http)


async def watch_objects(api: Api, request: ApiRequest) -> web.StreamResponse:
    """A stream of events."""
    query = request.query
    _refuse_streaming_list(request)
    matches = make_filter(request) or (lambda _body: True)
    revision = read_number(query, "resourceVersion")
    seconds = read_number(query, "timeoutSeconds") or int(between(1800, 3600))
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    watch = WatchRequest(
        request.kind,
        request.path.namespace,
        revision or None,
        matches,
        _row_renderer(api, request),
        query.get("allowWatchBookmarks", "").lower() in {"true", "1"},
        float(seconds),
    )
    await response.prepare(request.http)
    async for lines in api.watchers.stream(watch):
        await response.write(lines)
    await response.write_eof()
    return response


def _row_renderer(api: Api, request: ApiRequest) -> Callable[[Item], bytes]:
    """Return a renderer; in a stream of Tables only the first names the columns."""
    if not request.table:
        return lambda item: render(api, request, item)
    is_first = True

    def render_row(item: Item) -> bytes:
        nonlocal is_first
        table = make_table(api, request, [item])
        if not is_first:
            table["columnDefinitions"] = None
        is_first = False
        return orjson.dumps(table)

    return render_row


def _refuse_streaming_list(request: ApiRequest) -> None:
    if "sendInitialEvents" not in request.query:
        return
    message = (
        "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate "
        "is enabled"
    )
    error = FieldError("sendInitialEvents", "FieldValueForbidden", message)
    refusal = invalid(request.kind, "", [error])
    refusal.message = f'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: {message}'
    refusal.details = {"group": "meta.k8s.io", "kind": "ListOptions", **_causes(refusal)}
    raise refusal


def _causes(error: StatusError) -> dict[str, Any]:
    return {"causes": error.details["causes"]}


def _render_list(
    api: Api, request: ApiRequest, items: list[Item], metadata: dict[str, Any]
) -> bytes:
    kind = request.kind
    if request.table:
        table = make_table(api, request, items)
        table["metadata"] = metadata
        return orjson.dumps(table)
    of = {"kind": kind.list_name, "apiVersion": kind.api_version}
    head = orjson.dumps({**of, "metadata": metadata})
    rows = [render(api, request, item) for item in items]
    if api.registry.custom_kind(kind) is None:
        rows = [_without_type(row) for row in rows]
    return head[:-1] + b',"items":[' + b",".join(rows) + b"]}"


def _without_type(row: bytes) -> bytes:
    """Items of built-in lists have no apiVersion and kind, to which clients must be used."""
    start = _TYPE.match(row)
    if start is not None:
        return b"{" + row[start.end() :]
    body = orjson.loads(row)
    return orjson.dumps({k: v for k, v in body.items() if k not in {"apiVersion", "kind"}})


def _partial(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": body["metadata"],
    }


def _list_start(api: Api, query: dict[str, str]) -> tuple[int, tuple[str, str] | None]:
    """Return at which revision to list, and after which key."""
    token, match = query.get("continue", ""), query.get("resourceVersionMatch", "")
    wanted = read_number(query, "resourceVersion")
    if token:
        if wanted:
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, after = _decode_continue(token)
        return (api.store.revision if revision == _NOW else revision), after
    if match and wanted is None:
        raise bad_request(
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless "
            "resourceVersion is provided"
        )
    if wanted and wanted > api.store.revision:
        message = f"Too large resource version: {wanted}, current: {api.store.revision}"
        details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": message}]}
        raise StatusError(
            504, "Timeout", f"Timeout: {message}", {**details, "retryAfterSeconds": 1}
        )
    return (wanted if wanted and match == "Exact" else api.store.revision), None


def _encode_continue(revision: int, key: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps({"rv": revision, "after": key})).decode()


def _decode_continue(token: str) -> tuple[int, tuple[str, str]]:
    try:
        decoded = orjson.loads(base64.urlsafe_b64decode(token))
        namespace, name = decoded["after"]
        return int(decoded["rv"]), (namespace, name)
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
