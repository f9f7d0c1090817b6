"""The sources of Debian's packages in an image build: one day's archive, or a warning."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(__file__).parents[2] / "containers/sources"
OURS = "/etc/apt/sources.list.d/debian.sources"


@contextmanager
def archive() -> Iterator[tuple[int, list[str]]]:
    """A proxy that has every page of Debian's archive; yields its port and the requested pages."""
    asked: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: Any) -> None:
            """Nothing: the pages are listed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, asked
        server.shutdown()


def sources(folder: Path, port: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """What the build takes, where apt's proxy is at this port."""
    config = folder / "apt.conf"
    config.write_text(f'Acquire::http::Proxy "http://127.0.0.1:{port}";\n')
    given = {key: value for key, value in os.environ.items() if key != "DEBIAN_SOURCES"}
    return subprocess.run(
        [SOURCES],
        env={**given, "APT_CONFIG": str(config), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_packages_are_those_of_one_day_where_the_archive_answers(tmp_path: Path) -> None:
    with archive() as (port, asked):
        done = sources(tmp_path, port)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[-2:] for line in lines] == [
        ["bookworm", "main"],
        ["bookworm-updates", "main"],
        ["bookworm-security", "main"],
    ]
    (day,) = {match for line in lines for match in re.findall(r"/(\d{8}T\d{6}Z) ", line)}
    assert asked == [f"http://snapshot.debian.org/archive/debian/{day}/dists/bookworm/Release"]


def test_what_cannot_be_built_again_is_said(tmp_path: Path) -> None:
    done = sources(tmp_path, free_port())
    assert "snapshot.debian.org/archive cannot be reached" in done.stderr
    if done.returncode == 0:  # on a machine of the same release: its own packages
        assert done.stdout.startswith("/etc/apt/sources.list")
        assert "a later build has another digest" in done.stderr
    else:
        assert "set DEBIAN_SOURCES" in done.stderr


def test_who_names_the_sources_gets_them_and_nothing_else_is_asked(tmp_path: Path) -> None:
    with archive() as (port, asked):
        done = sources(tmp_path, port, DEBIAN_SOURCES=OURS)
    assert (done.stdout, done.stderr, asked) == (f"{OURS}\n", "", [])
