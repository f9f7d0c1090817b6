"""io: the verbs of the Kubernetes API on plain JSON objects."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

import structlog

from ipuhub.kube.errors import ApiError, Gone, ServerError
from ipuhub.kube.malformed import MalformedObjects, spell_fields
from ipuhub.kube.resources import ListResult, WriteOptions
from ipuhub.kube.shapes import read_object
from ipuhub.kube.transport import Request, Transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ipuhub.kube.credentials import ClusterConfig
    from ipuhub.kube.resources import Manifest, PatchType, Propagation, Resource

_UNPAGED_SECONDS: Final = 120.0  # ten thousand pods are 25 MB
_PLAIN: Final = WriteOptions()
_TRY: Final = WriteOptions(dry_run=True)
log = structlog.get_logger(__name__)
_PATCH_TYPES: Final[Mapping[PatchType, str]] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class KubeClient:
    """One API server, one identity. Use as an async context manager, or call `close`.

    Every method raises `ipuhub.kube.errors.ApiError`. Connections are opened on first use.
    `calls` counts requests by (verb, plural): get, list, watch, create, replace, patch, delete.
    `on_called` gets verb, plural, "ok" or the status of a failure ("none": no answer), seconds.
    `on_malformed` gets the plural of each Pod, Node or Lease that is read with malformed fields;
    `malformed` has them by name.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        user_agent: str = "ipuhub",
        timeout_seconds: float = 30.0,
        max_connections: int = 64,
    ) -> None:
        self.config = config
        self.calls: Counter[tuple[str, str]] = Counter()
        self.on_called: Callable[[str, str, str, float], None] | None = None
        self.on_malformed: Callable[[str], None] = lambda _: None
        self.malformed = MalformedObjects()
        self._transport = Transport(config, user_agent, timeout_seconds, max_connections)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Manifest:
        """Read one object, or its subresource."""
        path = resource.path(namespace, name, subresource)
        found = await self._send("get", resource, Request("GET", path))
        read = found if subresource else self.readable(resource, found)
        if read is None:
            raise _bad_answer(f"{path} did not answer with a {resource.kind}")
        return read

    async def list(  # noqa: PLR0913  # the API's own parameters, and what to keep
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        resource_version: str = "",
        keep: Callable[[Manifest], Manifest] = lambda item: item,
    ) -> ListResult:
        """Read all objects, of all namespaces when none is given, in pages of `limit` (0: no
        pages).

        `keep` trims each object as its page arrives, because the full objects may need many times
        the memory. All pages are from one version. If it expires from the server's history between
        two pages, the list is read again without pages, so that slow readers finish.
        """
        params = selector_params(label_selector, field_selector)
        if resource_version:
            params["resourceVersion"] = resource_version
        try:
            return await self._list_pages(resource, namespace, params, limit, keep)
        except Gone as error:
            if not limit:
                raise
            log.info("listing again in one piece", resource=resource.plural, why=error.message)
            params.pop("resourceVersion", None)
            return await self._list_pages(resource, namespace, params, 0, keep)

    async def list_page(
        self, resource: Resource, namespace: str | None, params: Mapping[str, str]
    ) -> bytes:
        """Read one page of a list as the server sent it; `params` are the API's own."""
        patience = None if "limit" in params else _UNPAGED_SECONDS
        path = resource.path(namespace)
        request = Request("GET", path, params, timeout_seconds=patience, raw=True)
        answer = await self._timed("list", resource.plural, request)
        if not isinstance(answer, bytes):
            raise _bad_answer(f"{path} did not answer with JSON: {str(answer)[:80]!r}")
        return answer

    async def create(  # the API's own parameters
        self,
        resource: Resource,
        body: Manifest,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        name: str | None = None,
        options: WriteOptions = _PLAIN,
    ) -> Manifest:
        """Create an object; with `name` and `subresource`, post to it (token, eviction, binding).

        The namespace is the argument, else the body's, else the configuration's.
        """
        if resource.namespaced and not namespace:
            namespace = body.get("metadata", {}).get("namespace") or self.config.namespace
        path = resource.path(namespace, name, subresource)
        return await self._send("create", resource, Request("POST", path, body=body), options)

    async def try_create(self, resource: Resource, body: Manifest) -> Manifest:
        """Have the server judge an object as if it were created; counted as the verb `try`."""
        path = resource.path(body.get("metadata", {}).get("namespace") or self.config.namespace)
        return await self._send("try", resource, Request("POST", path, body=body), _TRY)

    async def replace(self, resource: Resource, body: Manifest) -> Manifest:
        """Write a whole object (PUT); its metadata.resourceVersion guards against lost updates."""
        metadata = body["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        return await self._send("replace", resource, Request("PUT", path, body=body))

    async def patch(  # noqa: PLR0913  # the API's own parameters
        self,
        resource: Resource,
        name: str,
        body: Manifest | Sequence[Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        patch_type: PatchType = "merge",
        options: WriteOptions = _PLAIN,
    ) -> Manifest:
        """Change parts of an object. A resourceVersion in a merge patch is a precondition."""
        path = resource.path(namespace, name, subresource)
        request = Request("PATCH", path, body=body, content_type=_PATCH_TYPES[patch_type])
        return await self._send("patch", resource, request, options)

    async def delete(  # noqa: PLR0913  # the API's own parameters
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
        propagation: Propagation | None = None,
        options: WriteOptions = _PLAIN,
    ) -> Manifest:
        """Delete one object; `uid` and `resource_version` are preconditions (else Conflict).

        Returns the object where it stays a while (grace period, finalizers), else a Status.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        wanted = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": grace_period_seconds,
            "propagationPolicy": propagation,
            "preconditions": {k: v for k, v in preconditions.items() if v} or None,
        }
        body = {key: value for key, value in wanted.items() if value is not None}
        request = Request("DELETE", resource.path(namespace, name), body=body)
        return await self._send("delete", resource, request, options)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> Any:
        """Send anything (logs, version, a token request); JSON is decoded, other answers are text.

        Counted in `calls` as ("request", method).
        """
        return await self._timed("request", method, Request(method, path, params, body))

    def readable(self, resource: Resource, found: object) -> Manifest | None:
        """Return an object of the server without its malformed fields, or None if it has no name.
        Malformed objects are counted and logged."""
        read = read_object(resource, found)
        if read.malformed:
            self.on_malformed(resource.plural)
            metadata = (read.manifest or {}).get("metadata") or {}
            where = (metadata.get("namespace") or "", metadata.get("name") or "")
            if self.malformed.add(resource.kind, *where, read.malformed):
                fields = spell_fields(read.malformed)
                kind = resource.plural
                log.warning("malformed fields ignored", resource=kind, about=where, what=fields)
        return read.manifest

    def stream(
        self, resource: Resource, path: str, params: Mapping[str, str], silence_seconds: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch's endless answer; `ipuhub.kube.watch` makes events of it."""
        self.calls["watch", resource.plural] += 1
        return self._transport.stream(path, params, silence_seconds)

    def read_stream(
        self,
        call: tuple[str, str],
        path: str,
        params: Mapping[str, str],
        silence_seconds: float,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open an answer of any length, such as a log; counted in `calls` as `call`."""
        self.calls[call] += 1
        return self._transport.stream(path, params, silence_seconds)

    async def _list_pages(
        self,
        resource: Resource,
        namespace: str | None,
        params: Mapping[str, str],
        limit: int,
        keep: Callable[[Manifest], Manifest],
    ) -> ListResult:
        query = {**params, "limit": str(limit)} if limit else dict(params)
        items: list[Manifest] = []
        while True:
            patience = None if limit else _UNPAGED_SECONDS
            request = Request("GET", resource.path(namespace), query, timeout_seconds=patience)
            page = await self._send("list", resource, request)
            if "items" not in page or "metadata" not in page:
                # Taken for an empty list, it would make a cache forget everything.
                raise _bad_answer(f"{request.path} did not answer with a list")
            for item in page["items"] or ():
                if (read := self.readable(resource, item)) is not None:
                    # The API leaves both out of list items.
                    read.setdefault("apiVersion", resource.api_version)
                    read.setdefault("kind", resource.kind)
                    items.append(keep(read))
            token = page["metadata"].get("continue")
            if not token:
                return ListResult(items, page["metadata"].get("resourceVersion", ""))
            query["continue"] = token
            query.pop("resourceVersion", None)  # the token holds the version

    async def _send(
        self, verb: str, resource: Resource, request: Request, options: WriteOptions = _PLAIN
    ) -> Manifest:
        answer = await self._timed(verb, resource.plural, _with_options(request, options))
        if not isinstance(answer, dict):  # a proxy's or a login's page, with status 200
            raise _bad_answer(f"{request.path} did not answer with an object: {str(answer)[:80]!r}")
        return answer

    async def _timed(self, verb: str, plural: str, request: Request) -> Any:
        self.calls[verb, plural] += 1
        if self.on_called is None:
            return await self._transport.send(request)
        began, code = time.perf_counter(), "ok"
        try:
            return await self._transport.send(request)
        except ApiError as error:
            code = str(error.status or "none")
            raise
        except BaseException:
            code = "none"
            raise
        finally:
            self.on_called(verb, plural, code, time.perf_counter() - began)


def _with_options(request: Request, options: WriteOptions) -> Request:
    """Return the write with its options. A deletion has them in its body: an API server then
    ignores the query, and would carry out a dry run."""
    if options is _PLAIN:
        return request
    body, params = request.body, None
    if request.method == "DELETE":
        body = body | ({"dryRun": ["All"]} if options.dry_run else {})
    else:
        named = {
            "dryRun": "All" if options.dry_run else "",
            "fieldManager": options.manager,
            "fieldValidation": "Strict" if options.is_strict else "",
        }
        params = {name: value for name, value in named.items() if value}
    return replace(
        request,
        params=params,
        body=body,
        timeout_seconds=options.timeout_seconds,
        headers=_impersonating(options),
        on_warning=options.on_warning,
    )


def _impersonating(options: WriteOptions) -> list[tuple[str, str]]:
    users = [("Impersonate-User", options.acts_as)] if options.acts_as else []
    return [*users, *(("Impersonate-Group", group) for group in options.groups)]


def _bad_answer(message: str) -> ServerError:
    return ServerError(502, "BadAnswer", message)


def selector_params(label_selector: str, field_selector: str) -> dict[str, str]:
    """Query parameters of a list or watch that is limited by selectors."""
    pairs = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in pairs.items() if value}
