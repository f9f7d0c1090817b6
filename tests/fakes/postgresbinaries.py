"""The PostgreSQL of tests and benches: IPUHUB_TEST_POSTGRES names a folder of binaries."""

from __future__ import annotations

import os
from pathlib import Path


def chosen_binaries() -> Path | None:
    """Return the folder with `postgres`, `initdb` and `psql` of the environment; None: the folder
    of the wheel.

    The wheel's server has no JIT compiler, which a stock server uses by default: only the other
    server shows what is slow for that reason, or planned differently by another release.
    """
    given = os.environ.get("IPUHUB_TEST_POSTGRES", "")
    return Path(given) if given else None
