"""`run_web` as deployed: the identity of callers, and downloads that no slow reader blocks."""

from __future__ import annotations

import gzip
import http.client
import re
import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from tests.builders.lifetimes import store_pod
from tests.fakes.waiting import wait_until
from tests.integration.usage.reading import make
from tests.integration.web.webprocess import KEY, bearer, served, started, status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.test import Client
    from pytest_django.fixtures import SettingsWrapper

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {}}]
"""
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("networks", "proxies", "forwarded", "want"),
    [
        ("127.0.0.0/8", "", "", 200),
        ("192.0.2.0/24", "", "", 401),
        ("192.0.2.0/24", "", "192.0.2.9", 401),  # nobody told us to believe it
        ("192.0.2.0/24", "127.0.0.1/32", "192.0.2.9", 200),
        ("127.0.0.0/8", "127.0.0.1/32", "203.0.113.5", 401),
        ("", "", "", 401),
    ],
)
def test_the_caller_s_address_decides_who_reads_without_a_token(
    networks: str, proxies: str, forwarded: str, want: int
) -> None:
    store_pod("2026-10-01T00:00", "2026-10-02T00:00")
    make("2026-10", "2026-11-03T00:00")
    settings = {"USAGE_OPEN_PRIMEHUB_PATHS": networks, "IPUHUB_TRUSTED_PROXIES": proxies}
    with served(**settings) as port:
        more = {"X-Forwarded-For": forwarded} if forwarded else {}
        for path in ("/report/monthly", "/report/monthly/2026/10"):
            assert status(port, path, **more) == want


def large_record() -> None:
    """Store more than the buffers of a connection hold."""
    one = store_pod("2026-10-01T00:00", "2026-10-02T00:00", component_name="x" * 4000)
    names = [f'"{field.column}"' for field in one._meta.fields if field.column != "id"]
    values = ["'large-' || n" if name == '"uid"' else name for name in names]
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO usage_podlifetime ({', '.join(names)}) SELECT {', '.join(values)}"
            " FROM usage_podlifetime CROSS JOIN generate_series(1, 6000) AS n"
        )


@contextmanager
def slow_reader(port: int, path: str, headers: dict[str, str]) -> Iterator[socket.socket]:
    """Yield the connection of who asked for a file and has read its first bytes."""
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.settimeout(90)
        reader.connect(("127.0.0.1", port))
        lines = [f"GET {path} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        reader.sendall("\r\n".join([*lines, "", ""]).encode())
        assert reader.recv(16).startswith(b"HTTP/1.1 200")
        yield reader


@pytest.mark.parametrize("drips", [False, True])
def test_a_reader_who_takes_nothing_or_dawdles_does_not_keep_a_download(drips: bool) -> None:
    large_record()
    path, headers = "/api/v1/usage/lifetimes?format=jsonl", bearer()
    limit = "IPUHUB_WEB_DOWNLOAD_SECONDS" if drips else "IPUHUB_WEB_UNREAD_SECONDS"
    settings = {"IPUHUB_WEB_DOWNLOADS": "1", "IPUHUB_WEB_THREADS": "4", limit: "8"}
    settings["IPUHUB_WEB_AHEAD_MEBIBYTES"] = "0"  # the thread goes at the reader's pace
    with served(**settings) as port, slow_reader(port, path, headers) as reader:
        assert status(port, path, **headers) == 503

        def is_free() -> bool:
            if drips:
                reader.recv(2**16)
            return status(port, path, **headers) == 200

        wait_until(is_free, "a free download")


def test_a_slow_reader_of_a_file_that_is_made_keeps_no_download() -> None:
    large_record()
    path, headers = "/api/v1/usage/lifetimes?format=jsonl", bearer()
    settings = {"IPUHUB_WEB_DOWNLOADS": "1", "IPUHUB_WEB_THREADS": "2"}
    with served(**settings) as port, slow_reader(port, path, headers):
        wait_until(lambda: status(port, path, **headers) == 200, "a free download")


def test_unfinished_bodies_hold_no_thread_and_a_probe_needs_no_name_of_ours() -> None:
    with served(IPUHUB_WEB_THREADS="2") as port, ExitStack() as silent:
        head = b"POST /login/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nuser"
        for _ in range(8):
            one = silent.enter_context(socket.create_connection(("127.0.0.1", port)))
            one.sendall(head)
        for path, want in (("/healthz", 200), ("/readyz", 200), ("/metrics", 401)):
            assert status(port, path, Host="10.0.0.7:8000") == want
        assert status(port, "/login/") == 200
        assert status(port, "/login/", Host="10.0.0.7:8000") == 400


def fetched(port: int, path: str, cookie: str = "") -> tuple[http.client.HTTPResponse, bytes]:
    """The answer to a browser that takes gzip, and its body as it came over the line."""
    caller = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
    headers = {"Accept-Encoding": "gzip", "Accept": "text/html", "Cookie": cookie}
    caller.request("GET", path, headers=headers)
    answer = caller.getresponse()
    body = answer.read()
    caller.close()
    return answer, body


def test_a_first_visit_is_small_and_its_files_are_kept_for_ever(
    client: Client, settings: SettingsWrapper
) -> None:
    settings.SECRET_KEY = KEY
    client.force_login(get_user_model().objects.create_superuser("root"))
    cookie = f"sessionid={client.cookies['sessionid'].value}"
    with served() as port:
        page, body = fetched(port, "/", cookie)
        assert (page.status, page.headers["Content-Encoding"]) == (200, "gzip")
        assert page.headers["Cache-Control"] == "private, no-cache"
        assert {"Cookie", "Authorization"} <= set(page.headers["Vary"].split(", "))
        files = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', gzip.decompress(body).decode()))
        assert len(files) >= 6
        size, own_scripts = len(body), 0
        for path in files:
            answer, content = fetched(port, path)
            size += len(content)
            own_scripts += len(content) if re.fullmatch(r"/static/ipuhub/[\w.]+\.js", path) else 0
            assert answer.status == 200, path
            assert "immutable" in answer.headers["Cache-Control"], path
        assert size <= 150_000, size
        assert 0 < own_scripts <= 30_000, own_scripts


def test_a_crowd_of_silent_connections_keeps_nobody_out() -> None:
    with served(IPUHUB_WEB_CONNECTIONS="4") as port, ExitStack() as opened:
        crowd = [
            opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(100)
        ]
        assert [status(port, path) for path in ("/healthz", "/readyz", "/login/")] == [200] * 3
        crowd[0].settimeout(90)
        assert crowd[0].recv(1) == b""


def test_a_process_that_asked_the_cluster_ends_without_a_word(tmp_path: Path) -> None:
    """Its connections are closed, also where no server answered on them."""
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "said"
    kubeconfig.write_text(KUBECONFIG)
    address = {"KUBECONFIG": str(kubeconfig), "IPUHUB_PROXY_URL": "http://127.0.0.1:9"}
    with started(log, **address) as port:
        assert status(port, "/api/v1/fleet", **bearer()) == 200
    text = log.read_text()
    assert "the dashboard serves" in text
    assert "Unclosed" not in text
    assert "Traceback" not in text
