"""io: a mail through the site's mail server, which is cut off if it takes too long.

A time-out of a socket is for one step; a server that is slow in each would outlast the claim of
the worker, and another worker would send the mail, too.
"""

from __future__ import annotations

import smtplib
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.core.mail.backends.smtp import EmailBackend

from dashboard.notify.webhook import WHOLE_SECONDS, Unsent, cut_off

if TYPE_CHECKING:
    import socket

    from django.core.mail import EmailMessage

MAIL_SECONDS: Final = 25.0
"""From the connection to the server's last answer."""
_PERMANENT: Final = 500  # RFC 5321, 4.2.1: the same request would be refused again


class _LimitedSmtp(smtplib.SMTP):
    """A connection that is cut off after MAIL_SECONDS."""

    _limit: threading.Timer | None = None
    _copy: socket.socket | None = None

    def _get_socket(self, *where: Any) -> socket.socket:
        channel: socket.socket = super()._get_socket(*where)  # type: ignore[misc]  # not in its stub
        # TLS takes the descriptor away from this object; a copy is of the same connection.
        self._copy = channel.dup()
        self._limit = threading.Timer(MAIL_SECONDS, cut_off, [self._copy])
        self._limit.daemon = True
        self._limit.start()
        return channel

    def connect(self, *where: Any, **more: Any) -> tuple[int, bytes]:
        """Connect; what cannot be used is closed."""
        try:
            return super().connect(*where, **more)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close it, in time."""
        if self._limit is not None and self._copy is not None:
            self._limit.cancel()
            self._copy.close()
        super().close()


class _LimitedSmtpTls(smtplib.SMTP_SSL, _LimitedSmtp):
    """The same, by TLS from the first byte on."""


class _Backend(EmailBackend):
    @property
    def connection_class(self) -> type[smtplib.SMTP]:
        return _LimitedSmtpTls if self.use_ssl else _LimitedSmtp


def send(mail: EmailMessage, target: str) -> None:
    """Send a mail to `target`, its recipient. Raise Unsent if the server does not take it."""
    server = _Backend(
        host=settings.MAIL_HOST,
        port=settings.MAIL_PORT,
        username=settings.MAIL_USER,
        password=settings.MAIL_PASSWORD,
        use_tls=settings.MAIL_TLS == "starttls",
        use_ssl=settings.MAIL_TLS == "tls",
        timeout=int(WHOLE_SECONDS),
    )
    mail.connection = server
    try:
        with closing(server):  # also where it was opened in vain
            mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        code, reply = error.recipients[target]
        sentence = f"The mail server refused {target}: {code} {_text(reply)}."
        raise Unsent(sentence, is_final=code >= _PERMANENT) from error
    except (OSError, smtplib.SMTPException) as error:
        raise Unsent(f"The mail server did not take it: {error}.") from error


def _text(reply: bytes | str) -> str:
    return reply.decode(errors="replace") if isinstance(reply, bytes) else reply
