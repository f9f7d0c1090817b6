"""io: the address of the V-IPU controller: options, environment, files in the original's format.

Precedence: options, environment, the file of `--config`, ~/.vipu.hcl, /etc/vipu/vipu-cli.hcl. Each
value is looked up separately.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from partitions.vipu.client import Credentials, TlsFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SYSTEM_FILE: Final = Path("/etc/vipu/vipu-cli.hcl")
USER_FILE: Final = Path(".vipu.hcl")  # in the home folder
PREFIX: Final = "VIPU_CLI_"
_FILES: Final = ("ca", "certificate", "key")
KEYS: Final = ("api-host", "api-port", "admin-port", "api-user-id", "api-access-key", *_FILES)
_LARGEST_PORT: Final = 65535
_LINE: Final = re.compile(
    r'([A-Za-z0-9_-]+)\s*=\s*("(?:[^"\\]|\\.)*"|\d+|true|false)\s*(?:#.*|//.*)?'
)
_COMMENT: Final = ("#", "//")


class BadSetting(Exception):  # noqa: N818  # a sentence for the person at the terminal
    """A value cannot be used; the sentence says where it stands and what to write."""


@dataclass(frozen=True, slots=True)
class PortSetting:
    """The sources of a command's port beside --api-port, and its default."""

    key: str
    default: int


USERS_PORT: Final = PortSetting("api-port", 8090)
ADMIN_PORT: Final = PortSetting("admin-port", 8091)


@dataclass(frozen=True, slots=True)
class Controller:
    """The controller, the files for TLS to it (none: without TLS), and the user of the calls."""

    host: str
    port: int
    tls: TlsFiles | None = None
    credentials: Credentials | None = None

    @property
    def address(self) -> str:
        """host:port, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def find_controller(
    given: Mapping[str, str | None],
    environment: Mapping[str, str],
    home: Path | None,
    system: Path = SYSTEM_FILE,
    *,
    port: PortSetting = USERS_PORT,
) -> Controller:
    """Return the controller. `given` has the options by name, `config` and the TLS files among
    them; `home` is None where the user has none. Raise BadSetting."""
    given = {**given, port.key: given.get("api-port")}
    places = list(_places(given, environment, home, system, port))

    def find(key: str) -> tuple[str, str]:
        for where, values in places:
            if value := values.get(key):
                return value, where
        return "", ""

    host = find("api-host")[0]
    if host.startswith("[") and host.endswith("]"):  # as operators write it into IPUJob pods
        host = host[1:-1]
    if not host:
        raise BadSetting(
            "no V-IPU controller is named. Give --api-host, set VIPU_CLI_API_HOST, or write "
            f'api-host="..." into {SYSTEM_FILE}'
        )
    if set("/[]") & set(host) or host.count(":") == 1 or not host.isprintable():
        raise BadSetting(
            f"api-host {host!r}: write the name or address alone, and the port as --api-port"
        )
    text, where = find(port.key)
    number = _port(text, where) if text else port.default
    tls = _tls({name: find(name)[0] for name in _FILES})
    user_id, key = (find(name)[0] for name in ("api-user-id", "api-access-key"))
    if bool(user_id) != bool(key):
        raise BadSetting("--api-user-id and --api-access-key belong together; give both or none")
    for name, value in (("user id", user_id), ("access key", key)):
        if value and not (value.isascii() and value.isprintable()):
            raise BadSetting(f"the {name} has characters that none has: copy it again")
    return Controller(host, number, tls, Credentials(user_id, key) if key else None)


def _places(
    given: Mapping[str, str | None],
    environment: Mapping[str, str],
    home: Path | None,
    system: Path,
    port: PortSetting,
) -> Iterator[tuple[str, Mapping[str, str | None]]]:
    yield "--api-port", given
    names = {key: PREFIX + key.upper().replace("-", "_") for key in KEYS}
    yield names[port.key], {key: environment.get(name) for key, name in names.items()}
    if path := given.get("config"):
        yield path, read_file(Path(path))
    for file in (home / USER_FILE if home else None, system):
        if file and _is_there(file):
            yield str(file), read_file(file)


def home_folder() -> Path | None:
    """The user's home; None without a home, as in a container whose user has no name."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # in a folder that the user may not enter
        raise BadSetting(f"{path} cannot be read: {error.strerror}") from error


def read_file(path: Path) -> dict[str, str]:
    """Return the values of a file of lines like `api-host="10.1.2.3"`. Raise BadSetting."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors put a mark in front
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{path} cannot be read: {error}") from error
    values = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith(_COMMENT):
            continue
        found = _LINE.fullmatch(stripped)
        if found is None:
            raise BadSetting(f'{path}, line {number}: write key="value", for example {KEYS[0]}="x"')
        known = found[1].lower().replace("_", "-")
        if known in KEYS and found[1] != known:
            raise BadSetting(f"{path}, line {number}: write {known}, not {found[1]}")
        values[found[1]] = re.sub(r"\\(.)", r"\1", found[2].strip('"'))
    return values


def _port(text: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _LARGEST_PORT:
        raise BadSetting(f"{where}: {text!r} is not a port; write a number from 1 to 65535")
    return int(text)


def _tls(given: Mapping[str, str | None]) -> TlsFiles | None:
    ca, certificate, key = (given.get(name) for name in ("ca", "certificate", "key"))
    if not ca:
        if certificate or key:
            raise BadSetting("--certificate and --key need --ca, the CA of the controller")
        return None
    if bool(certificate) != bool(key):
        raise BadSetting("--certificate and --key belong together; give both or none")
    return TlsFiles(_read(ca), *(_read(path) if path else None for path in (certificate, key)))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadSetting(f"{path} cannot be read: {error.strerror}") from error
