"""io: the file in which vipu-server stores its partitions and the changes to its machines.

Each line is one write: changes made together, with a checksum. The line is on disk before any
response is sent, so after a kill at any instruction the file has every acknowledged change. A write
that was interrupted leaves an incomplete last line: its changes were not acknowledged, and it is
dropped. Any other unreadable line stops the start and is never overwritten, because the file may be
the only record of who holds which IPUs. When the file has grown to a multiple of its live content,
it is rewritten, synced and renamed into place.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from partitions.vipu.server.layout import Layout, layout_from_json, layout_to_json
from partitions.vipu.server.records import (
    AgentRecord,
    MachineRecord,
    PartitionRecord,
    agent_from_json,
    agent_to_json,
    machine_from_json,
    machine_to_json,
    record_from_json,
    record_to_json,
)
from partitions.vipu.server.state import Removed, RemovedAgent
from partitions.vipu.server.userrecords import (
    RemovedUser,
    UserRecord,
    user_from_json,
    user_to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from partitions.vipu.server.state import State, Stored

FORMAT: Final = "ipuhub-vipu-server"
VERSION: Final = 2
# Added for a file with clusters and allocations, with users, with created agents,
# and with a removal under way, which earlier servers would take for an ACTIVE partition:
# servers that know none of them must say that it is a newer file.
_WITH_LAYOUT: Final = 1
_WITH_USERS: Final = 2
_WITH_AGENTS: Final = 4
_WITH_REMOVALS: Final = 8
_NEWEST: Final = VERSION + _WITH_LAYOUT + _WITH_USERS + _WITH_AGENTS + _WITH_REMOVALS
_NAME: Final = "vipu-server.json"
# Rewritten at this size, and at a multiple of its size after the last rewrite.
_SMALL_BYTES: Final = 1 << 20
_GROWTH: Final = 4
_ENDS: Final = {Removed: "removed", RemovedUser: "userRemoved", RemovedAgent: "agentRemoved"}
_SUM: Final = b', "crc32": "'

log = structlog.get_logger(__name__)


class StateFileError(Exception):
    """The state file cannot be used; the sentence names it and says what to do."""


def default_storage(environ: Mapping[str, str], *, is_root: bool) -> Path:
    """Return the state file of a server without the option `--storage`.

    Raise StateFileError if the user has no home, or if an earlier version left its file in the
    working folder: a start without its partitions would give their IPUs away a second time.
    """
    folder = Path("/var/lib") if is_root else _state_home(environ)
    path, earlier = folder / "ipuhub" / _NAME, Path(_NAME).absolute()
    if earlier != path and earlier.exists() and not path.exists():
        raise StateFileError(
            f"{earlier} is the state file of an earlier version; the default is now {path}: "
            f"move it there, or start with --storage {earlier}"
        )
    return path


def _state_home(environ: Mapping[str, str]) -> Path:
    """Return the folder for the state of a user's programs, by the XDG Base Directory
    Specification."""
    path = Path(environ.get("XDG_STATE_HOME", ""))
    if path.is_absolute():  # the specification has relative paths ignored
        return path
    try:
        return Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise StateFileError(
            "no place for the state file, since this user has no home: give --storage"
        ) from error


class StateFile:
    """The state file of one controller; only one process at a time may hold it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._file: int | None = None
        self._size = 0
        self._rewrite_at = 0
        self._written_version = 0

    @property
    def lock_path(self) -> Path:
        """The file that says that a process has the state file; it stays when that has ended."""
        return self.path.with_name(self.path.name + ".lock")

    def open(self) -> None:
        """Make the folder and lock the file; raises StateFileError when another process has it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateFileError(
                f"cannot use the state file {self.path}: {error.strerror} ({error.filename}); "
                "choose another --storage"
            ) from error
        try:
            # The kernel drops this lock with the process, kill -9 included.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise StateFileError(
                f"another vipu-server uses the state file {self.path}: "
                "stop it, or choose another --storage"
            ) from error
        self._lock = lock

    def close(self) -> None:
        """Let another process have the file."""
        self._leave()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def load(self) -> Loaded:
        """Return the stored state, empty when there is no file yet.

        Raises StateFileError when the file is unreadable, damaged or of a newer version.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return Loaded()
        except OSError as error:
            raise StateFileError(
                f"cannot read the state file {self.path}: {error.strerror}"
            ) from error
        found = Loaded()
        try:
            for change in self._changes(data):
                found.add(change)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._damaged(f"a line in it cannot be read ({error!r})") from error
        self._check_version(self._version(data.partition(b"\n")[0], data), found)
        return found

    def _check_version(self, version: int, found: Loaded) -> None:
        """Raise StateFileError for a file that lacks what its version promises."""
        more = max(version, VERSION) - VERSION
        if bool(more & _WITH_LAYOUT) != (found.layout is not None):
            raise self._damaged("its version does not fit its clusters")
        # The first servers with users wrote them into files of the versions without, as did the
        # first with removals; and a removal ends without a new version.
        if more & _WITH_USERS and not found.users:
            raise self._damaged("its version does not fit its users")
        if bool(more & _WITH_AGENTS) != bool(found.agents):
            raise self._damaged("its version does not fit its agents")

    def save(self, changes: Sequence[Stored], after: State) -> None:
        """Store changes that lead to this state; they survive a crash once this returns.

        Raises OSError when the disk refuses; the state before then still stands.
        """
        line = _line(changes)
        is_arranged = any(isinstance(change, Layout) for change in changes)
        is_other = is_arranged or not self._fits(changes, after)
        if self._file is None or is_other or self._size + len(line) > self._rewrite_at:
            self._write_whole(after)
        else:
            self._append(self._file, line)

    def _fits(self, changes: Sequence[Stored], after: State) -> bool:
        """Return whether the file may go on under the version that it has.

        A file that says that a removal is under way says so until it is next written whole: two
        whole files for each removal would cost more than all else.
        """
        version = _version_without_removals(after)
        if self._written_version == version + _WITH_REMOVALS:
            return True
        return self._written_version == version and not any(map(_is_removal, changes))

    def _append(self, file: int, line: bytes) -> None:
        try:
            _write(file, line)
            os.fdatasync(file)
        except OSError:
            # The partial line on disk must not be read again: its callers get an error.
            # After a refused sync nothing certain is known of the file: the next write replaces it.
            with suppress(OSError):
                os.ftruncate(file, self._size)
            self._leave()
            raise
        self._size += len(line)

    def _write_whole(self, state: State) -> None:
        """Put a file of this state alone in place of the old file."""
        version = _version_of(state)
        lines = [json.dumps({"format": FORMAT, "version": version}).encode() + b"\n"]
        lines += [_line([stored]) for stored in state.stored]
        temporary = self.path.with_name(self.path.name + ".new")
        self._leave()
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write(file, b"".join(lines))
            os.fsync(file)
            temporary.replace(self.path)
            self._sync_folder()
        except OSError:
            os.close(file)
            with suppress(OSError):
                temporary.unlink()
            raise
        self._file, self._size = file, sum(map(len, lines))
        self._written_version = version
        self._rewrite_at = max(_SMALL_BYTES, _GROWTH * self._size)

    def _leave(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _changes(self, data: bytes) -> Iterable[Mapping[str, Any]]:
        """Yield the changes in the file, in their order; raises StateFileError or ValueError."""
        head, _, rest = data.partition(b"\n")
        version = self._version(head, data)
        if version == 1:
            partitions = json.loads(data)["partitions"]
            if len({partition["id"] for partition in partitions}) != len(partitions):
                raise self._damaged("it holds one partition twice")
            yield from ({"partition": partition} for partition in partitions)
            return
        *lines, unfinished = rest.split(b"\n")
        for number, line in enumerate(lines, start=2):
            if (changes := _read(line)) is None:
                raise self._damaged(f"line {number} is not as it was written")
            yield from changes
        if unfinished:
            log.warning(
                "state file ended in an unfinished line, of changes that were never confirmed",
                path=str(self.path),
                bytes=len(unfinished),
            )

    def _version(self, head: bytes, data: bytes) -> int:
        try:
            # Version 1 was one document of several lines.
            content = _object(head) or json.loads(data)
        except ValueError as error:
            raise self._damaged(f"it is not JSON ({error})") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise self._damaged("vipu-server did not write it")
        version = content.get("version")
        if not isinstance(version, int) or not 1 <= version <= _NEWEST:
            raise StateFileError(
                f"the state file {self.path} has version {version}; this vipu-server reads "
                f"1 to {_NEWEST}: start the version that wrote it, or choose another "
                "--storage"
            )
        return version

    def _damaged(self, text: str) -> StateFileError:
        return StateFileError(
            f"the state file {self.path} is damaged: {text}. It was left as it is: restore it from "
            "a backup, or move it away to start without partitions"
        )


class Loaded:
    """The state that the lines of a file add up to."""

    def __init__(self) -> None:
        self.partitions: dict[str, PartitionRecord] = {}
        self.machines: dict[str, MachineRecord] = {}
        self.layout: Layout | None = None
        self.users: dict[str, UserRecord] = {}
        self.agents: dict[str, AgentRecord] = {}

    def add(self, change: Mapping[str, Any]) -> None:
        """Take one change; raises KeyError, TypeError or ValueError for what is none."""
        ((kind, what),) = change.items()
        if kind == "removed":
            del self.partitions[what]
        elif kind == "machine":
            machine = machine_from_json(what)
            self.machines[machine.agent] = machine
            if machine.is_in_service:
                del self.machines[machine.agent]
        elif kind == "partition":
            partition = record_from_json(what)
            self.partitions[partition.id] = partition
        elif kind == "layout":
            self.layout = layout_from_json(what)
        elif kind == "user":
            user = user_from_json(what)
            self.users[user.id] = user
        elif kind == "userRemoved":
            del self.users[what]
        elif kind == "agent":
            agent = agent_from_json(what)
            self.agents[agent.id] = agent
        elif kind == "agentRemoved":
            del self.agents[what]
        else:
            raise ValueError(f"unknown change {kind!r}")


def _version_of(state: State) -> int:
    """The version of a file that holds this state."""
    has_removals = any(map(_is_removal, state.partitions.values()))
    return _version_without_removals(state) + _WITH_REMOVALS * has_removals


def _version_without_removals(state: State) -> int:
    return (
        VERSION
        + _WITH_LAYOUT * state.layout.is_edited
        + _WITH_USERS * bool(state.users)
        + _WITH_AGENTS * bool(state.agents)
    )


def _is_removal(stored: Stored) -> bool:
    return isinstance(stored, PartitionRecord) and stored.is_removing


def _line(changes: Sequence[Stored]) -> bytes:
    text = json.dumps({"changes": [_change(change) for change in changes]}).encode()[:-1]
    return text + _SUM + f'{zlib.crc32(text):08x}"}}\n'.encode()


def _change(stored: Stored) -> dict[str, Any]:
    if isinstance(stored, Removed | RemovedUser | RemovedAgent):
        return {_ENDS[type(stored)]: stored.id}
    if isinstance(stored, MachineRecord):
        return {"machine": machine_to_json(stored)}
    if isinstance(stored, Layout):
        return {"layout": layout_to_json(stored)}
    if isinstance(stored, UserRecord):
        return {"user": user_to_json(stored)}
    if isinstance(stored, AgentRecord):
        return {"agent": agent_to_json(stored)}
    return {"partition": record_to_json(stored)}


def _read(line: bytes) -> list[Mapping[str, Any]] | None:
    """The changes of a line; None if its checksum does not match."""
    text, found, total = line.rpartition(_SUM)
    if not found or total != f'{zlib.crc32(text):08x}"}}'.encode():
        return None
    changes: list[Mapping[str, Any]] = json.loads(text + b"}")["changes"]
    return changes


def _object(text: bytes) -> Mapping[str, Any] | None:
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError):
        return None


def _write(file: int, data: bytes) -> None:
    """All of it: the operating system may take a part at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
