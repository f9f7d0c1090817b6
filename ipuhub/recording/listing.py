"""io: full lists, page by page, each page decoded as it comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from ipuhub.kube.client import selector_params
from ipuhub.kube.errors import Gone
from ipuhub.recording.decoding import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.watch import Scope
    from ipuhub.recording.decoding import Change

T = TypeVar("T")
log = structlog.get_logger(__name__)
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

        In pages of `limit`; in one piece when the first page falls out of the server's history
        before the last one is read.
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
        kept: list[T] = []
        while True:
            content = await self.client.list_page(scope.resource, scope.namespace, params)
            page = self.decoder.page(content)
            kept.append(self.keep(page.changes))
            if not page.token:
                return kept, page.resource_version
            params["continue"] = page.token


async def revision_of(client: KubeClient, scope: Scope) -> str:
    """The version that a list has now: of one object, to cost little."""
    content = await client.list_page(scope.resource, scope.namespace, {"limit": "1"})
    return _ANY.page(content).resource_version
