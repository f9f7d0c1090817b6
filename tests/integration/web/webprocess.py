"""A `run_web` process on the database of the test, and a caller with a token."""

from __future__ import annotations

import http.client
import os
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from django.contrib.auth import get_user_model
from django.db import connection
from django.utils import timezone

from ipuhub.api.auth import make_token
from tests.fakes.forked import forked
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "of a test alone " * 4
ROOT = Path(__file__).parents[3]


@contextmanager
def served(**settings: str) -> Iterator[int]:
    """Yield the port of a `run_web` on the database of the test."""
    known = connection.settings_dict
    place = f"{known['HOST']}:{known['PORT']}/{known['NAME']}"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = os.environ | {
        "DATABASE_URL": f"postgresql://{known['USER']}:{quote(known['PASSWORD'], safe='')}@{place}",
        "DJANGO_SETTINGS_MODULE": "ipuhub.settings",
        "IPUHUB_SECRET_KEY": KEY,
        "IPUHUB_HTTPS": "off",
        **settings,
    }
    process = forked(["manage.py", "run_web", "--port", str(port)], ROOT, environment)
    try:
        wait_until(lambda: not process.is_alive() or status(port, "/healthz") == 200)
        yield port
    finally:
        process.terminate()
        process.join(90)


def status(port: int, path: str, **headers: str) -> int:
    """The status of an answer whose body nobody reads; 0: no answer."""
    caller = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
    try:
        caller.request("GET", path, headers=headers)
        return caller.getresponse().status
    except OSError:
        return 0
    finally:
        caller.close()


def bearer() -> dict[str, str]:
    user = get_user_model().objects.create_user("root", password="x", is_staff=True)
    return {"Authorization": f"Bearer {make_token(user, 'test', timezone.now())[1]}"}
