"""io: reads request bodies within a deadline and a limit on memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

_HEAD_BYTES = 4096


class BodyError(Exception):
    """A body that was not read; `head` is how it begins."""

    def __init__(self, message: str, head: bytes = b"") -> None:
        super().__init__(message)
        self.head = head


class BodyTooLargeError(BodyError):
    """The body exceeds the limit for one body."""


class BodyTooSlowError(BodyError):
    """It did not arrive in time, or others needed its memory."""


@dataclass(slots=True)
class BodyReader:
    """Reads bodies of up to `most_bytes`, each within `seconds`.

    All unfinished bodies together hold at most `most_bytes_together`: beyond that, the body that
    has been under way for longest is given up. Real clients send a body at once; those that take
    their time make room for them.
    """

    most_bytes: int
    most_bytes_together: int
    seconds: float
    _unfinished: dict[asyncio.Timeout, bytearray] = field(default_factory=dict)

    @property
    def held_bytes(self) -> int:
        """Return the bytes of memory that unfinished bodies take."""
        return sum(len(part) for part in self._unfinished.values())

    async def read(self, request: web.Request) -> bytes:
        """The whole body. Raises BodyError."""
        body = bytearray()
        head = b""
        try:
            async with asyncio.timeout(self.seconds) as deadline:
                self._unfinished[deadline] = body
                try:
                    async for chunk in request.content.iter_any():
                        body += chunk
                        head = head or bytes(body[:_HEAD_BYTES])
                        if len(body) > self.most_bytes:
                            message = f"the body exceeds {self.most_bytes} bytes"
                            raise BodyTooLargeError(message, head)
                        self._make_room(body)
                finally:
                    del self._unfinished[deadline]
        except TimeoutError as error:
            message = (
                f"the body did not arrive within {self.seconds:g} s, or others needed its space"
            )
            raise BodyTooSlowError(message, head) from error
        return bytes(body)

    def _make_room(self, newest: bytearray) -> None:
        over = self.held_bytes - self.most_bytes_together
        for deadline, body in self._unfinished.items():
            if over <= 0:
                return
            if body and body is not newest:
                over -= len(body)
                body.clear()
                deadline.reschedule(asyncio.get_running_loop().time())
