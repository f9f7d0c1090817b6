"""The images in the folder that IPUHUB_TEST_IMAGES names, as `make images` has written them.

Without it nothing here is collected: `make test` builds no image. No cluster is needed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

GIVEN = os.environ.get("IPUHUB_TEST_IMAGES", "")
collect_ignore_glob = [] if GIVEN else ["test_*.py"]


@pytest.fixture(scope="session")
def archives() -> Path:
    """Folder of the product's images."""
    return Path(GIVEN).absolute()
