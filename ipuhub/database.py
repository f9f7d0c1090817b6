"""io: turns DATABASE_URL into Django's database settings, and says what every session has set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from ipuhub.env import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCHEMES = {"postgres", "postgresql"}
_EVERY_SESSION: Final = "-c jit=off"
"""What each of our connections sets. Compiling a query took PostgreSQL's JIT seconds where the work
took a tenth of one: it goes by the estimated cost, and sums over many columns look dear."""


def session_options(given: Mapping[str, Any], more: str = "") -> dict[str, Any]:
    """Return libpq's arguments `given` with the `options` that every session of ours has.

    `more` is what a kind of connection sets besides. What `options` in `given`, from DATABASE_URL,
    set themselves counts.
    """
    own = given.get("options", "")
    words = (more, own) if _EVERY_SESSION in own else (_EVERY_SESSION, more, own)
    return {**given, "options": " ".join(word for word in words if word)}


def primehub_database_url(host: str, user: str, password: str) -> str:
    """Return the URL of the database that PrimeHub Usage uses with these; no host: none."""
    if not host:
        return ""
    account = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
    address = f"[{host}]" if ":" in host else host
    return f"postgresql://{account}{address}:5432/postgres"


def database_settings(url: str) -> dict[str, Any]:
    """Return Django's DATABASES entry for `url`.

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
    try:
        port = parts.port
    except ValueError as error:
        raise SettingError(f"DATABASE_URL: {error}") from None
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "DATABASE_URL-is-not-set",
        "USER": unquote(parts.username or "") or query.pop("user", ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or query.pop("host", ""),
        "PORT": port or query.pop("port", ""),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": session_options(query),
    }
