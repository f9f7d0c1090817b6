"""io: the user id and access key that a client sends with each call.

How Graphcore's clients send them is not public: these two headers are IPUHub's own. They travel
over TLS only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from pathlib import Path

log = structlog.get_logger(__name__)

USER_ID: Final = "vipu-user-id"
ACCESS_KEY: Final = "vipu-access-key"


class AccessKeyError(Exception):
    """The key cannot be used; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and its key; neither is shown in logs."""

    user_id: str
    access_key: str

    def __repr__(self) -> str:
        return f"Credentials({self.user_id!r}, ...)"

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The headers of a call."""
        return ((USER_ID, self.user_id), (ACCESS_KEY, self.access_key))


class KeyFile:
    """Credentials with the key in a file; called, it returns what the file holds now.

    Raises AccessKeyError if it cannot be read at first; later the last key stays.
    """

    def __init__(self, user_id: str, path: Path) -> None:
        self._user_id = user_id
        self._path = path
        self._last = self._read()

    def __call__(self) -> Credentials:
        """The credentials as the file has them."""
        try:
            self._last = self._read()
        except AccessKeyError as error:
            log.debug("access key not read", problem=str(error))
        return self._last

    def _read(self) -> Credentials:
        try:
            key = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AccessKeyError(f"cannot read {self._path}: {error}") from error
        if not key:
            raise AccessKeyError(f"{self._path} is empty: write the access key into it")
        return Credentials(self._user_id, key)
