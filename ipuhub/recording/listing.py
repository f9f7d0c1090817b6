"""io: full lists, page by page, each page decoded as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from ipuhub.kube.client import selector_params
from ipuhub.kube.errors import Gone
from ipuhub.recording.decoding import Decoder

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.watch import Scope
    from ipuhub.recording.decoding import Change

log = structlog.get_logger(__name__)
_ANY = Decoder(dict)


async def list_changes(
    client: KubeClient, scope: Scope, decoder: Decoder, limit: int
) -> tuple[list[Change], str]:
    """All objects and the version that a watch continues from.

    In pages of `limit`; in one piece when the first page falls out of the server's history
    before the last one is read.
    """
    try:
        return await _pages(client, scope, decoder, {"limit": str(limit)})
    except Gone as error:
        log.info("listing again in one piece", resource=scope.resource.plural, why=error.message)
        return await _pages(client, scope, decoder, {})


async def _pages(
    client: KubeClient, scope: Scope, decoder: Decoder, extra: dict[str, str]
) -> tuple[list[Change], str]:
    params = {**selector_params(scope.label_selector, scope.field_selector), **extra}
    changes: list[Change] = []
    while True:
        page = decoder.page(await client.list_page(scope.resource, scope.namespace, params))
        changes += page.changes
        if not page.token:
            return changes, page.resource_version
        params["continue"] = page.token


async def revision_of(client: KubeClient, scope: Scope) -> str:
    """The version that a list has now: of one object, to cost little."""
    content = await client.list_page(scope.resource, scope.namespace, {"limit": "1"})
    return _ANY.page(content).resource_version
