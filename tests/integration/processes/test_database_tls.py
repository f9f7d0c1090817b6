"""TLS to PostgreSQL by the settings: whose certificate is accepted, and what is sent without."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psycopg
import pytest

from devcluster.security.certificates import Authority
from ipuhub.database import database_settings, database_tls
from ipuhub.env import SettingError
from ipuhub.recording.store import connection_arguments

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from pathlib import Path

REACHED = b"SFATAL\0C57P03\0Mreached over TLS\0\0"


def answer(listener: socket.socket, context: ssl.SSLContext | None) -> None:
    """Begin a session as PostgreSQL: TLS or none, then an error instead of a session."""
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return
        with plain:
            plain.recv(8)  # SSLRequest
            plain.sendall(b"S" if context else b"N")
            if context is None:
                continue
            # A client that refuses the certificate may say so during the handshake or after it.
            with suppress(OSError), context.wrap_socket(plain, server_side=True) as secure:
                secure.recv(4096)
                secure.sendall(b"E" + (len(REACHED) + 4).to_bytes(4) + REACHED)


@contextmanager
def server(context: ssl.SSLContext | None) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener, context), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def refusal(port: int, tls: dict[str, str], host: str = "127.0.0.1", query: str = "") -> str:
    """Return the error of a recorder that connects as the settings say."""
    entry = database_settings(f"postgresql://ada@{host}:{port}/x{query}", tls)
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(**connection_arguments(entry))
    return str(caught.value)


def test_a_ca_alone_makes_every_process_verify_the_server(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    context = ours.server_context(("127.0.0.1",))
    trusted = database_tls("auto", str(ours.ca_file), "", "")
    with server(context) as port:
        assert "reached over TLS" in refusal(port, trusted)
        strange = database_tls("auto", str(other.ca_file), "", "")
        assert "certificate verify failed" in refusal(port, strange)
        assert "does not match host name" in refusal(port, trusted, "localhost")
        missing = database_tls("auto", str(tmp_path / "none"), "", "")
        assert "does not exist" in refusal(port, missing)
    with server(None) as port:
        assert "server does not support SSL" in refusal(port, trusted)


def test_the_url_goes_before_the_settings(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    with server(ours.server_context(("127.0.0.1",))) as port:
        strange = database_tls("auto", str(other.ca_file), "", "")
        assert "reached over TLS" in refusal(port, strange, query=f"?sslrootcert={ours.ca_file}")


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca"])
def test_no_url_drops_the_verification_that_a_ca_asks_for(mode: str) -> None:
    url = f"postgresql://db/hub?sslmode={mode}"
    message = (
        f"DATABASE_URL: sslmode={mode} is weaker than verify-full, which IPUHUB_DATABASE_CA_PATH"
    )
    with pytest.raises(SettingError, match=message):
        database_settings(url, database_tls("auto", "/ca.crt", "", ""))
    chosen = database_settings(url, database_tls(mode, "/ca.crt", "", ""))
    assert chosen["OPTIONS"]["sslmode"] == mode
    assert database_settings(url, database_tls("auto", "", "", ""))["OPTIONS"]["sslmode"] == mode


def test_a_url_may_ask_for_more_than_the_settings() -> None:
    url, ca = "postgresql://db/hub?sslmode=verify-full", "/ca.crt"
    chosen = database_settings(url, database_tls("verify-ca", ca, "", ""))
    assert chosen["OPTIONS"]["sslmode"] == "verify-full"


def test_half_a_client_certificate_is_refused() -> None:
    with pytest.raises(SettingError, match="set both or none"):
        database_tls("auto", "", "/tls.crt", "")
    assert database_tls("require", "", "/tls.crt", "/tls.key") == {
        "sslmode": "require",
        "sslcert": "/tls.crt",
        "sslkey": "/tls.key",
    }
