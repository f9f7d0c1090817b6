"""io: the files with which the proxy authenticates to each V-IPU controller, in one folder.

A subfolder is for the controller of its name, `default` for all others. It has the files of a
Kubernetes TLS Secret, and `user-id` and `access-key` for controllers with users. `pod.crt` and
`pod.key` are for the pods of jobs, which then get a key for their own partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from partitions.vipu.client import Credentials
from partitions.vipu.errors import Unavailable
from partitions.vipu.tlsfiles import ClientTls, TlsFilesError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from partitions.vipu.client import TlsFiles

log = structlog.get_logger(__name__)
CA, CERTIFICATE, KEY, USER_ID, ACCESS_KEY = (
    "ca.crt",
    "tls.crt",
    "tls.key",
    "user-id",
    "access-key",
)
POD_CERTIFICATE, POD_KEY = "pod.crt", "pod.key"
DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class ControllerAccess:
    """The credentials of a controller's client, and of pods; all are read again at each call."""

    tls: Callable[[], TlsFiles] | None = None
    credentials: Callable[[], Credentials | None] | None = None
    pod_tls: Callable[[], TlsFiles | None] | None = None


def access_of(address: str, folder: Path | None, usual: ControllerAccess) -> ControllerAccess:
    """The access to the controller at "host:port": from its subfolder of `folder`, or `usual`.

    The subfolder is called `host_port` or `host`: the path of a mounted Secret has no colon.
    """
    host, _, port = address.rpartition(":")
    name = host.strip("[]").replace(":", "_")
    for each in (f"{name}_{port}", name, DEFAULT):
        if folder is not None and (folder / each).is_dir():
            ours = _Folder(address, folder / each)
            return ControllerAccess(ours.tls, ours.credentials, ours.pod_tls)
    return usual


class AccessKeyError(Exception):
    """User or key cannot be used; the sentence says why."""


class _Folder:
    """The files of one controller; raises Unavailable with what to do while they are unusable."""

    def __init__(self, address: str, path: Path) -> None:
        self._address = address
        self._path = path
        self._tls: ClientTls | None = None
        self._pod_tls: ClientTls | None = None
        self._is_missing_logged = False

    def tls(self) -> TlsFiles:
        """CA, and certificate and key if there are any."""
        if self._tls is None:
            self._tls = self._files(CERTIFICATE, KEY)
        return self._tls()

    def pod_tls(self) -> TlsFiles | None:
        """CA, and certificate and key of pods; None without those, or without a user.

        What is missing for keys is logged once.
        """
        pair = (self._path / POD_CERTIFICATE, self._path / POD_KEY)
        has_pair, has_user = any(path.exists() for path in pair), self.credentials() is not None
        if has_pair != has_user:
            self._log_missing((USER_ID, ACCESS_KEY) if has_pair else (POD_CERTIFICATE, POD_KEY))
        if not (has_pair and has_user):
            return None
        if self._pod_tls is None:
            self._pod_tls = self._files(POD_CERTIFICATE, POD_KEY)
        return self._pod_tls()

    def _log_missing(self, names: tuple[str, str]) -> None:
        if self._is_missing_logged:
            return
        self._is_missing_logged = True
        log.warning(
            "pods get no key to their partitions",
            controller=self._address,
            remedy=f"add {' and '.join(names)} to {self._path}",
        )

    def _files(self, *names: str) -> ClientTls:
        try:
            pair = (self._path / name for name in names)
            found = (path if path.exists() else None for path in pair)
            return ClientTls(self._path / CA, *found)
        except TlsFilesError as error:
            raise self._unusable(error) from error

    def credentials(self) -> Credentials | None:
        """User and key; None without both files."""
        try:
            user_id, key = (self._text(name) for name in (USER_ID, ACCESS_KEY))
        except AccessKeyError as error:
            raise self._unusable(error) from error
        return Credentials(user_id, key) if user_id and key else None

    def _text(self, name: str) -> str:
        other = ACCESS_KEY if name == USER_ID else USER_ID
        try:
            text = (self._path / name).read_text(encoding="ascii").strip()
        except FileNotFoundError as error:
            if not (self._path / other).exists():
                return ""
            raise AccessKeyError(f"it has {other} and no {name}: add it") from error
        except (OSError, UnicodeDecodeError) as error:
            raise AccessKeyError(f"cannot read {name}: {error}") from error
        if not text or "\n" in text:
            raise AccessKeyError(f"{name} is not one line: write only the value into it")
        return text

    def _unusable(self, error: Exception) -> Unavailable:
        return Unavailable(f"files for V-IPU controller {self._address} in {self._path}: {error}")
