"""Copies what an API server would send: JSON, so through its text."""

from __future__ import annotations

from typing import Any

import orjson


def copied(manifest: Any) -> Any:
    """Return a deep copy; seven times faster than copy.deepcopy, which took a fifth of the chaos
    suites' CPU."""
    return orjson.loads(orjson.dumps(manifest))
