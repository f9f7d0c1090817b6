"""io: turns lines of a watch and pages of a list into batches, decoded into a recorder's own type.

Invalid objects become faults and never stop the recording.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec
import structlog

from ipuhub.kube.client import selector_params
from ipuhub.kube.errors import Gone, ServerError, from_answer
from ipuhub.recording.buffer import Batch
from ipuhub.recording.recorder import Fault, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.watch import Scope
    from ipuhub.recording.recorder import Recorder

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
    """One page of a list; `token` asks for the next page, if any."""

    changes: list[Change]
    resource_version: str
    token: str


class Decoder:
    """Decodes to `manifest`, `dict` or a Struct. An object that does not fit becomes a fault."""

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
            raise ServerError(502, "BadAnswer", f"The response is not a list: {error}") from error
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
    """Return the identity of a decoded object."""
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


Row = TypeVar("Row")
log = structlog.get_logger(__name__)


class Reader(Generic[Row]):
    """Asks a recorder for the row of each change; an unreadable object becomes a fault."""

    def __init__(self, recorder: Recorder[Row]) -> None:
        self._recorder = recorder

    def read(
        self,
        changes: Sequence[Change],
        at: datetime,
        position_at: datetime | None = None,
        since: datetime | None = None,
    ) -> Batch[Row]:
        """Make a batch of changes received `at`, in their order; the last change gives its
        position.

        `position_at`: the time up to which that position is complete, if different. `since`: all of
        the changes happened after this.
        """
        version = changes[-1].resource_version
        batch: Batch[Row] = Batch(version, position_at or at, events=len(changes))
        read, rows, faults = self._recorder.read, batch.rows, batch.faults
        for change in changes:
            if change.manifest is None:
                self._keep_fault(change, faults)
                continue
            try:
                row = read(change.kind, change.manifest, faults, at, since)
            # One object must never stop the recording of all others.
            except Exception as error:  # noqa: BLE001
                faults.append(_unreadable(change, error))
                continue
            if row is not None:
                rows.append(row)
        return batch

    def read_page(self, changes: Sequence[Change], at: datetime) -> tuple[Batch[Row], list[str]]:
        """Make a batch of a page of a list, and report the UIDs of all its objects."""
        batch = self.read(changes, at) if changes else Batch("", at)
        subjects = (change.subject or subject_of(change.manifest) for change in changes)
        return batch, [subject.uid for subject in subjects]

    def _keep_fault(self, change: Change, faults: list[Fault]) -> None:
        if change.kind != BOOKMARK and change.fault is not None:
            faults.append(change.fault)


def _unreadable(change: Change, error: Exception) -> Fault:
    subject = subject_of(change.manifest)
    if not isinstance(error, ValueError):
        log.error("a recorder failed on an object", uid=subject.uid, exc_info=error)
    return Fault(subject, "unreadable", f"{type(error).__name__}: {error}")


T = TypeVar("T")
_ANY = Decoder(dict)


@dataclass(frozen=True, slots=True)
class Lister(Generic[T]):
    """Reads full lists; `keep` makes of each page what is needed of it, the rest is let go."""

    client: KubeClient
    scope: Scope
    decoder: Decoder
    keep: Callable[[list[Change]], T]

    async def all(self, limit: int) -> tuple[list[T], str]:
        """Every page, and the version that a watch continues from.

        In pages of `limit`; without pages if the first page expires from the server's history
        before the last page is read.
        """
        try:
            return await self._pages({"limit": str(limit)})
        except Gone as error:
            plural = self.scope.resource.plural
            log.info("listing again in one piece", resource=plural, why=error.message)
            return await self._pages({})

    async def _pages(self, extra: dict[str, str]) -> tuple[list[T], str]:
        scope = self.scope
        params = {**selector_params(scope.label_selector, scope.field_selector), **extra}
        changes: list[T] = []
        while True:
            content = await self.client.list_page(scope.resource, scope.namespace, params)
            page = self.decoder.page(content)
            changes.append(self.keep(page.changes))
            if not page.token:
                return changes, page.resource_version
            params["continue"] = page.token


async def revision_of(client: KubeClient, scope: Scope) -> str:
    """The version that a list has now: of one object, to cost little."""
    content = await client.list_page(scope.resource, scope.namespace, {"limit": "1"})
    return _ANY.page(content).resource_version
