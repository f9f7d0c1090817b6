"""domain: the command lines that run a container's command: with mounts and a host name, or bare.

There is no image and no chroot: the command sees this machine's files. Where user namespaces are
allowed its volumes lie at their mount paths all the same, in a mount namespace of its own; a
folder that this machine lacks is laid over its nearest existing parent, whose other entries stay
reachable as links. Elsewhere the volumes lie below $IPUHUB_POD_ROOT.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

POD_ROOT: Final = "IPUHUB_POD_ROOT"
_DIES_WITH_ME: Final = ("setpriv", "--pdeathsig", "KILL", "--")
OWN_NAMESPACES: Final = ("unshare", "--user", "--map-root-user", "--mount", "--uts")
_LAY: Final = """\
lay() { # lay SOURCE TARGET: SOURCE is seen at TARGET
  if [ ! -e "$2" ]; then
    parent=$(dirname "$2"); while [ ! -d "$parent" ]; do parent=$(dirname "$parent"); done
    [ "$parent" = / ] && { echo "no folder to mount $2 in: make it on this machine" >&2; exit 126; }
    n=$((n + 1)); mkdir -p "$work/$n"
    mount -t tmpfs none "$work/$n"; mkdir "$work/$n/old" "$work/$n/new"
    mount --rbind "$parent" "$work/$n/old"
    for one in "$work/$n/old"/* "$work/$n/old"/.[!.]*; do
      [ -e "$one" ] || continue
      name=${one##*/}
      case "$work/" in # a link to the folder that holds the links would go in circles
        "$parent/$name/"*)
          mkdir "$work/$n/new/$name"; mount --rbind "$parent/$name" "$work/$n/new/$name" ;;
        *) ln -s "$one" "$work/$n/new/" ;;
      esac
    done
    mount --rbind "$work/$n/new" "$parent"
    if [ -d "$1" ]; then mkdir -p "$2"; else mkdir -p "$(dirname "$2")"; : > "$2"; fi
  fi
  mount --rbind "$1" "$2"
}
n=0
"""


@dataclass(frozen=True)
class Place:
    """Where a container runs: its working directory, an empty spare folder, its host name."""

    folder: str
    spare: str
    host: str


def container_command(
    command: Sequence[str], mounts: Sequence[tuple[str, str]], place: Place, *, is_isolated: bool
) -> list[str]:
    """The command line of a container; `mounts` are (source, mount path)."""
    if not is_isolated:
        return [*_DIES_WITH_ME, *_from(place.folder), *command]
    lines = [f"set -e; work={shlex.quote(place.spare)}", _LAY]
    lines += [f"lay {shlex.quote(source)} {shlex.quote(at)}" for source, at in mounts]
    lines += [f"hostname {shlex.quote(place.host)}", "set +e"]
    lines += [f"cd {shlex.quote(place.folder)} || exit 126", 'exec "$@"']
    return [*OWN_NAMESPACES, "--", *_DIES_WITH_ME, "sh", "-c", "\n".join(lines), "sh", *command]


def exec_command(pid: int, command: Sequence[str], folder: str, *, is_isolated: bool) -> list[str]:
    """The command line of another process beside the container's own."""
    line = [*_DIES_WITH_ME, *_from(folder), *command]
    if not is_isolated:
        return line
    into = ("nsenter", "--target", str(pid), "--user", "--mount", "--uts")
    return [*into, "--preserve-credentials", "--", *line]


def _from(folder: str) -> tuple[str, ...]:
    return ("sh", "-c", f'cd {shlex.quote(folder)} && exec "$@"', "sh")
