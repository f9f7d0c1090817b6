"""A `run_web` process on the database of the test, and a caller with a token."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
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
    from multiprocessing.process import BaseProcess

KEY = "of a test alone " * 4
ROOT = Path(__file__).parents[3]


@contextmanager
def served(**settings: str) -> Iterator[int]:
    """Yield the port of a `run_web` on the database of the test."""
    with running(**settings) as (port, process):
        yield port
        process.terminate()
        process.join(90)


@contextmanager
def running(**settings: str) -> Iterator[tuple[int, BaseProcess]]:
    """Yield the port and the process, which the caller may end."""
    port = _free_port()
    command = ["manage.py", "run_web", "--port", str(port)]
    process = forked(command, ROOT, environment(**settings))
    try:
        wait_until(lambda: not process.is_alive() or status(port, "/healthz") == 200)
        yield port, process
    finally:
        process.kill()
        process.join(90)


@contextmanager
def started(log: Path, **settings: str) -> Iterator[int]:
    """The same as a process of its own, whose last words go into a file: a fork ends without."""
    port = _free_port()
    command = [sys.executable, "manage.py", "run_web", "--port", str(port)]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(**settings), stdout=file, stderr=file
        )
        try:
            wait_until(lambda: process.poll() is not None or status(port, "/healthz") == 200)
            yield port
        finally:
            process.terminate()
            process.wait(90)


def environment(**settings: str) -> dict[str, str]:
    """Return the environment of a `run_web` on the database of the test."""
    known = connection.settings_dict
    place = f"{known['HOST']}:{known['PORT']}/{known['NAME']}"
    return os.environ | {
        "DATABASE_URL": f"postgresql://{known['USER']}:{quote(known['PASSWORD'], safe='')}@{place}",
        "DJANGO_SETTINGS_MODULE": "ipuhub.settings",
        "IPUHUB_SECRET_KEY": KEY,
        "IPUHUB_HTTPS": "off",
        **settings,
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def status(port: int, path: str, **headers: str) -> int:
    """Return the status of an answer without reading its body; 0: no answer."""
    caller = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
    try:
        caller.request("GET", path, headers=headers)
        return caller.getresponse().status
    except OSError:
        return 0
    finally:
        caller.close()


def get_text(port: int, path: str) -> str:
    """The text of an answer."""
    caller = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
    try:
        caller.request("GET", path)
        return caller.getresponse().read().decode()
    finally:
        caller.close()


def bearer() -> dict[str, str]:
    user = get_user_model().objects.create_user("root", password="x", is_staff=True)
    return {"Authorization": f"Bearer {make_token(user, 'test', timezone.now())[1]}"}
