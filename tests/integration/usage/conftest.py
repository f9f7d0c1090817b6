"""What the tests of reports share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipuhub.celery import app, transport_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def idle_broker(tmp_path: Path) -> Iterator[Path]:
    """A broker that is a folder of the test, where nobody works."""
    before = app.conf.broker_transport_options
    app.conf.broker_transport_options = transport_options("filesystem://", tmp_path)
    app._pool = app.amqp._producer_pool = None
    yield tmp_path
    app.conf.broker_transport_options = before
    app._pool = app.amqp._producer_pool = None
