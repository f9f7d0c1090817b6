"""io: lines of a watch and pages of a list, decoded straight into a recorder's own type."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from ipuhub.kube.errors import ServerError, from_answer
from ipuhub.recording.recorder import Fault, Subject

if TYPE_CHECKING:
    from collections.abc import Mapping

M = TypeVar("M")
BOOKMARK = "BOOKMARK"
LISTED = "LISTED"


class Change(NamedTuple):
    """One object as a watch or list shows it; `fault` in place of `manifest` where it is broken."""

    kind: str
    manifest: Any
    subject: Subject | None
    resource_version: str
    fault: Fault | None = None


class _Line(msgspec.Struct, Generic[M], gc=False):
    type: str
    object: M


class _PageMeta(
    msgspec.Struct, rename={"resource_version": "resourceVersion", "token": "continue"}
):
    resource_version: str = ""
    token: str = ""


class _Page(msgspec.Struct):
    metadata: _PageMeta
    items: list[msgspec.Raw] | None


class Page(NamedTuple):
    """One page of a list; `token` asks for the next one, if there is one."""

    changes: list[Change]
    resource_version: str
    token: str


class Decoder:
    """Decodes to `manifest`, `dict` or a Struct. What does not fit becomes a fault, no error."""

    def __init__(self, manifest: type[Any]) -> None:
        self._is_dict = manifest is dict
        self._line = msgspec.json.Decoder(_Line[manifest])  # type: ignore[valid-type]
        self._item = msgspec.json.Decoder(manifest)
        self._page = msgspec.json.Decoder(_Page)

    def line(self, line: bytes) -> Change:
        """Decode a line of a watch. Raises the ApiError that it carries instead of an event."""
        try:
            event = self._line.decode(line)
        except (msgspec.MsgspecError, UnicodeError) as error:
            return _salvaged(line, str(error))
        if event.type in _PLAIN:
            return self._change(event.type, event.object)
        return _salvaged(line, f"unknown type of event {event.type!r}")

    def page(self, content: bytes) -> Page:
        """Decode a page of a list. Raises ServerError when it is none."""
        try:
            page = self._page.decode(content)
        except (msgspec.MsgspecError, UnicodeError) as error:
            # Taken for an empty list, it would end everything that is recorded.
            raise ServerError(502, "BadAnswer", f"The answer is no list: {error}") from error
        changes = [self._listed(bytes(item)) for item in page.items or ()]
        return Page(changes, page.metadata.resource_version, page.metadata.token)

    def _listed(self, item: bytes) -> Change:
        try:
            return self._change(LISTED, self._item.decode(item))
        except (msgspec.MsgspecError, UnicodeError, KeyError, TypeError) as error:
            return _salvaged(b'{"type":"LISTED","object":' + item + b"}", str(error))

    def _change(self, kind: str, manifest: Any) -> Change:
        if self._is_dict:
            meta = manifest["metadata"]
            return Change(kind, manifest, None, meta["resourceVersion"])
        return Change(kind, manifest, None, manifest.metadata.resource_version)


_PLAIN = frozenset({"ADDED", "MODIFIED", "DELETED"})


def subject_of(manifest: Any) -> Subject:
    """Who a decoded object is."""
    if isinstance(manifest, dict):
        return _subject_of_dict(manifest)
    meta = manifest.metadata
    return Subject(meta.uid, meta.namespace, meta.name)


def _subject_of_dict(manifest: Mapping[str, Any]) -> Subject:
    meta = manifest.get("metadata") or {}
    return Subject(*(str(meta.get(key) or "") for key in ("uid", "namespace", "name")))


def _salvaged(line: bytes, problem: str) -> Change:
    """Make the best of a line that does not fit: a bookmark, an error, or an object's fault."""
    try:
        event = json.loads(line.decode(errors="replace"))
        kind, found = event["type"], event["object"]
        if kind == "ERROR":
            raise from_answer(int(found.get("code") or 500), found)
        version = str(found["metadata"]["resourceVersion"])
        subject = _subject_of_dict(found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ServerError(502, "BadAnswer", f"The watch sent no event: {error!r}") from error
    if kind == BOOKMARK:
        return Change(BOOKMARK, None, None, version)
    excerpt = json.dumps(found)
    return Change(kind, None, subject, version, Fault(subject, "unreadable", problem, excerpt))
