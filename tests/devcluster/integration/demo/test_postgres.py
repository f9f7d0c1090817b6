"""The embedded PostgreSQL starts, keeps its data, and is stopped when it was left behind."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import psycopg
import pytest

from devcluster.demo import postgres as module
from devcluster.demo.postgres import EmbeddedPostgres, PostgresError
from tests.fakes.freeport import free_port


def start(server: EmbeddedPostgres) -> subprocess.Popen[bytes]:
    server.prepare()
    process = subprocess.Popen(server.command(), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 90
    while not server.is_ready():
        assert process.poll() is None
        assert time.monotonic() < deadline
    return process


@pytest.fixture
def server(tmp_path: Path) -> EmbeddedPostgres:
    port = free_port()
    return EmbeddedPostgres(tmp_path / "pg", port)


def test_data_survives_a_restart_and_the_password_is_needed(server: EmbeddedPostgres) -> None:
    process = start(server)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (n int)")
    process.send_signal(signal.SIGINT)
    assert process.wait(90) == 0

    process = start(server)
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"postgresql://ipuhub:wrong@127.0.0.1:{server.port}/ipuhub")
    process.send_signal(signal.SIGINT)
    process.wait(90)


def test_its_folders_are_closed_to_others(server: EmbeddedPostgres) -> None:
    server.prepare()
    assert server.directory.stat().st_mode & 0o077 == 0
    assert (server.directory / "postgres-password").stat().st_mode & 0o077 == 0


def test_a_server_that_was_left_behind_is_stopped(server: EmbeddedPostgres) -> None:
    process = start(server)
    server.stop_leftover()
    assert process.wait(90) == 0


def test_without_any_binaries_the_error_says_what_to_do(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr(module, "_SYSTEM", Path("/nowhere"))
    with pytest.raises(PostgresError, match="set DATABASE_URL, or install the package postgresql"):
        server.prepare()
