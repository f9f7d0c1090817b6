"""io: what recordings say of themselves to Prometheus."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, generate_latest

EVENTS: Final = Counter("ipuhub_recording_events", "Changes read from the watch.", ["watch"])
ROWS: Final = Counter("ipuhub_recording_rows", "Rows written, again or anew.", ["watch"])
COMMITS: Final = Counter("ipuhub_recording_commits", "Transactions committed.", ["watch"])
FAULTS: Final = Counter("ipuhub_recording_faults", "Objects not taken as they stood.", ["watch"])
VANISHED: Final = Counter("ipuhub_recording_vanished", "Rows ended by a full list.", ["watch"])
LISTS: Final = Counter("ipuhub_recording_lists", "Full lists committed.", ["watch"])
LAG: Final = Gauge(
    "ipuhub_recording_lag_seconds", "From reading a batch's first change to its commit.", ["watch"]
)
POSITION: Final = Gauge(
    "ipuhub_recording_position_timestamp_seconds",
    "When the committed position was read.",
    ["watch"],
)


def routes() -> list[web.RouteDef]:
    """`/metrics`, for the health port."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [web.get("/metrics", metrics)]
