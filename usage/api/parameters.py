"""glue: the parameters by which a range of time is asked for, described once for every path."""

from __future__ import annotations

from typing import Final

from drf_spectacular.utils import OpenApiParameter

from usage.time.ranges import NAMED

RANGE: Final = (
    OpenApiParameter("month", str, description="YYYY-MM; this month by default."),
    OpenApiParameter(
        "window",
        str,
        description=f"Instead of month: {', '.join(NAMED)}, a length up to now (12h, 7d, 4w), or "
        "two instants with a comma between them.",
    ),
    OpenApiParameter(
        "from",
        str,
        description="Instead of month: the first day (of the report zone) or instant (RFC 3339).",
    ),
    OpenApiParameter("to", str, description="The last day, or an instant; now by default."),
)
CURSOR: Final = OpenApiParameter("cursor", str, description="Where to go on: from `next`.")
