"""The number of files to open to follow a request to the proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.entered import files_entered

if TYPE_CHECKING:
    from tests.integration.proxy.conftest import Site

JSON = {"Content-Type": "application/json"}


async def test_files_entered_by_query(site: Site) -> None:
    await site.put()
    await site.send("POST", "/query", data='{"size":2}', headers=JSON)
    with files_entered() as seen:
        await site.send("POST", "/query", data='{"size":2}', headers=JSON)
    # The twelfth is the HTTP server, which counts connections.
    assert len(seen.calls) <= 12
