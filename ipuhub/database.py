"""io: Django's database settings from DATABASE_URL, and the options of every session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from ipuhub.env import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCHEMES = {"postgres", "postgresql"}
_EVERY_SESSION: Final = "-c jit=off"
"""Session options of each of our connections. Compiling a query took PostgreSQL's JIT seconds where
the work took a tenth of a second: it goes by the estimated cost, and sums over many columns look
dear."""

_VANISHED: Final = (
    "-c tcp_user_timeout=25s -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 "
    "-c tcp_keepalives_count=3"
)
"""Lets the server notice a host of ours that vanished. By default that takes two hours, and the
session keeps its locks meanwhile: nobody else could make a report."""

_LEFT_SECONDS: Final = 60  # a process that asks nothing for that long within a transaction hangs

_REACHING: Final = {
    "connect_timeout": "3",
    # A host that vanished without a word is noticed within half a minute.
    "tcp_user_timeout": "25000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
}
"""Default timeouts of connections, unless DATABASE_URL sets them."""

_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
"""libpq's sslmode, the weakest first."""

NO_DATABASE: Final = "DATABASE_URL-is-not-set"
"""The name of the database where no URL names a database: no server has it."""


def session_options(given: Mapping[str, Any], more: str = "") -> dict[str, Any]:
    """Return libpq's arguments `given` plus the `options` that every session uses.

    `more` are additional options of this kind of connection. `options` in `given` (from
    DATABASE_URL) take precedence.
    """
    own = given.get("options", "")
    words = (more, own) if _EVERY_SESSION in own else (_EVERY_SESSION, _VANISHED, more, own)
    return {**given, "options": " ".join(word for word in words if word)}


def primehub_database_url(host: str, user: str, password: str) -> str:
    """Return the URL of PrimeHub Usage's database; empty without a host."""
    if not host:
        return ""
    account = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
    address = f"[{host}]" if ":" in host else host
    return f"postgresql://{account}{address}:5432/postgres"


def database_tls(mode: str, ca: str, certificate: str, key: str) -> dict[str, str]:
    """Return libpq's arguments about TLS; a CA alone means that the server is verified."""
    if bool(certificate) != bool(key):
        raise SettingError(
            "IPUHUB_DATABASE_CERTIFICATE_PATH and IPUHUB_DATABASE_KEY_PATH: set both or none"
        )
    if mode == "auto":
        mode = "verify-full" if ca else ""
    names = {"sslmode": mode, "sslrootcert": ca, "sslcert": certificate, "sslkey": key}
    return {name: value for name, value in names.items() if value}


def database_settings(url: str, tls: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return Django's DATABASES entry for `url`; its own options take precedence over `tls`. Raise
    SettingError for a URL that would weaken the verification that a CA of `tls` requires.

    An empty URL is allowed, since only the web process, the prober and the reports need Postgres:
    the entry then names a database that does not exist, and its first use says so. A socket
    folder goes into the query: `postgresql:///name?host=/run/postgresql`.
    """
    parts = urlsplit(url)
    if url and parts.scheme not in _SCHEMES:
        raise SettingError(
            "DATABASE_URL must be postgresql://user:password@host:port/name (PostgreSQL only)"
        )
    query = dict(parse_qsl(parts.query))
    _require_no_weaker_mode(query.get("sslmode"), tls or {})
    try:
        port = parts.port
    except ValueError as error:
        raise SettingError(f"DATABASE_URL: {error}") from None
    return {
        "ENGINE": "ipuhub.patientpostgres",
        "NAME": unquote(parts.path.lstrip("/")) or NO_DATABASE,
        "USER": unquote(parts.username or "") or query.pop("user", ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or query.pop("host", ""),
        "PORT": port or query.pop("port", ""),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": session_options({**_REACHING, **(tls or {}), **query}),
    }


def _require_no_weaker_mode(mode: str | None, tls: Mapping[str, str]) -> None:
    """Raise SettingError if the URL's sslmode would drop the verification that a CA is there for.
    Another mode on purpose is for IPUHUB_DATABASE_SSLMODE; what is no mode libpq refuses."""
    wanted = tls.get("sslmode")
    if mode not in _MODES or wanted not in _MODES or "sslrootcert" not in tls:
        return
    if _MODES.index(mode) < _MODES.index(wanted):
        raise SettingError(
            f"DATABASE_URL: sslmode={mode} is weaker than {wanted}, which IPUHUB_DATABASE_CA_PATH "
            "asks for; leave sslmode out of the URL, or set IPUHUB_DATABASE_SSLMODE"
        )


def bounded(
    database: Mapping[str, Any], query_seconds: int, silence_seconds: int
) -> dict[str, Any]:
    """Return what of an entry of DATABASES changes for a process whose users wait: the server ends
    a statement after `query_seconds`, and a server that says nothing for longer is given up.

    The server also ends a transaction that its process has left: its locks would hold up others.
    """
    idle_seconds = max(query_seconds, _LEFT_SECONDS)
    limits = (
        f"-c statement_timeout={1000 * query_seconds}",
        f"-c idle_in_transaction_session_timeout={1000 * idle_seconds}",
    )
    options = session_options(database["OPTIONS"], " ".join(limits))
    return {"OPTIONS": options, "SILENCE_SECONDS": silence_seconds}


def bounded_tasks(database: Mapping[str, Any], query_seconds: int) -> dict[str, Any]:
    """Return what of an entry of DATABASES changes for the tasks of a worker: a statement ends
    after `query_seconds`, and so does a session that its worker has given up, with its locks."""
    limits = ("statement", "idle_in_transaction_session", "idle_session")
    words = " ".join(f"-c {limit}_timeout={1000 * query_seconds}" for limit in limits)
    patience = query_seconds + min(query_seconds, 5)
    return {"OPTIONS": session_options(database["OPTIONS"], words), "SILENCE_SECONDS": patience}
