"""io: asks the API server, by UID, whether pods still exist. No answer never means that a pod is
gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from ipuhub.kube.errors import Gone, NotFound, ServerError
from ipuhub.kube.resources import NAMESPACES, PODS
from usage.monitor.store import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.errors import ApiError
    from usage.monitor.store import Question, Suspect

LIST_LIMIT: Final = 500


class _Meta(msgspec.Struct, gc=False):
    uid: str


class _Item(msgspec.Struct, gc=False):
    metadata: _Meta


class _ListMeta(
    msgspec.Struct,
    rename={"revision": "resourceVersion", "token": "continue", "more": "remainingItemCount"},
):
    revision: str
    token: str = ""
    more: int | None = None


class _List(msgspec.Struct):
    kind: str
    metadata: _ListMeta
    items: list[_Item] | None


_LIST: Final = msgspec.json.Decoder(_List)


@dataclass(frozen=True, slots=True)
class PodCensus:
    """Answers questions about pods. Every method raises ApiError where there is no full answer."""

    client: KubeClient
    clock: Callable[[], datetime]
    list_limit: int = LIST_LIMIT

    async def cluster_uid(self) -> str:
        """The identity of the cluster that answers: the UID of its kube-system."""
        found = await self.client.get(NAMESPACES, "kube-system")
        uid = str((found.get("metadata") or {}).get("uid") or "")
        if not uid:
            raise ServerError(502, "BadAnswer", "The namespace kube-system has no UID.")
        return uid

    async def ask(self, question: Question) -> Answer:
        """Return the pods that exist: each by its UID, all answers complete."""
        asked_at = self.clock()
        if question.is_list:
            present, revision = await self._listed(question)
            return Answer(question, present, revision, asked_at, self.clock())
        found = [suspect.uid for suspect in question.suspects if await self._is_there(suspect)]
        # The version after the answers: at it, all that is missing is surely gone.
        _, revision, _ = await self._page(question.namespace, {"limit": "1"})
        return Answer(question, frozenset(found), revision, asked_at, self.clock())

    async def _is_there(self, suspect: Suspect) -> bool:
        try:
            found = await self.client.get(PODS, suspect.name, suspect.namespace)
        except NotFound as error:
            if _is_about(error, suspect):
                return False
            raise
        uid = (found.get("metadata") or {}).get("uid")
        if found.get("kind") != "Pod" or not uid:
            raise ServerError(
                502, "BadAnswer", f"The response about pod {suspect.name} is not a pod."
            )
        return bool(uid == suspect.uid)

    async def _listed(self, question: Question) -> tuple[frozenset[str], str]:
        """Read a list in pages, or without if its version expires from the server's history."""
        try:
            return await self._pages(question.namespace, {"limit": f"{self.list_limit}"})
        except Gone:
            return await self._pages(question.namespace, {})

    async def _pages(self, namespace: str, extra: Mapping[str, str]) -> tuple[frozenset[str], str]:
        found: set[str] = set()
        params = dict(extra)
        while True:
            uids, revision, token = await self._page(namespace, params)
            found |= uids
            if not token:
                return frozenset(found), revision
            params["continue"] = token

    async def _page(self, namespace: str, params: Mapping[str, str]) -> tuple[set[str], str, str]:
        content = await self.client.list_page(PODS, namespace, params)
        try:
            page = _LIST.decode(content)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise ServerError(502, "BadAnswer", f"The response is not a list: {error}") from error
        if page.kind != "PodList" or not page.metadata.revision:
            raise ServerError(
                502, "BadAnswer", f"The response is not a list of pods: {page.kind!r}"
            )
        if page.metadata.more and not page.metadata.token:
            raise ServerError(502, "BadAnswer", "The list ends before its last pod.")
        uids = {item.metadata.uid for item in page.items or ()}
        return uids, page.metadata.revision, page.metadata.token


def _is_about(error: ApiError, suspect: Suspect) -> bool:
    """Return whether a 404 is the API server's word about this pod, not some page on the way to
    it."""
    details = error.details
    return (
        error.reason == "NotFound"
        and details.get("kind") == "pods"
        and details.get("name") == suspect.name
    )
