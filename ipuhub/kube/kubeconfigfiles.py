"""io: kubeconfig files, merged as kubectl merges them: of each entry the first one counts.

Read here and not with the `kubernetes` package, which takes half a second of CPU to load: every
process of the product reads a kubeconfig when it starts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from ipuhub.kube.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_KINDS: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One cluster, context or user; `folder` is what its relative paths start from."""

    value: Mapping[str, Any]
    folder: Path


@dataclass(slots=True)
class Kubeconfig:
    """What one or several files say together."""

    paths: str
    current_context: str = ""
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)

    def find(self, kind: str, name: object) -> Entry | None:
        """The entry `name` of `kind` (clusters, contexts, users), or None."""
        return self.entries.get((kind, str(name)))

    def get(self, kind: str, name: object) -> Entry:
        """The entry `name` of `kind`. Raises ConfigError when there is none."""
        found = self.find(kind, name)
        if found is None:
            raise _unusable(self.paths, f"there is no {name!r} in its {kind}")
        return found


def read_files(paths: str) -> Kubeconfig:
    """Read `paths` (one file, or several joined by a colon); missing ones are left out.

    Raises ConfigError when none exists, or one cannot be read or is no kubeconfig.
    """
    merged = Kubeconfig(paths)
    files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    existing = [path for path in files if path.exists()]
    if not existing:
        raise ConfigError(
            f"Kubeconfig {paths} does not exist. Set KUBECONFIG to the file of your cluster."
        )
    for path in existing:
        _add(merged, path)
    return merged


def _add(merged: Kubeconfig, path: Path) -> None:
    content = _content(path)
    merged.current_context = merged.current_context or str(content.get("current-context") or "")
    folder = path.resolve().parent
    for kind, key in _KINDS.items():
        listed = content.get(kind) or []
        if not isinstance(listed, list):
            raise _unusable(path, f"{kind} is no list")
        for item in listed:
            if not isinstance(item, dict) or "name" not in item:
                raise _unusable(path, f"an entry of {kind} has no name")
            value = item.get(key) or {}
            if not isinstance(value, dict):
                raise _unusable(path, f"{key} of {item['name']!r} is no mapping")
            merged.entries.setdefault((kind, str(item["name"])), Entry(value, folder))


def _content(path: Path) -> Mapping[str, Any]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506  # a safe loader
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _unusable(path, str(error)) from error
    if content is None:
        raise _unusable(path, "the file is empty")
    if not isinstance(content, dict):
        raise _unusable(path, "it is no mapping of clusters, contexts and users")
    return content


def _unusable(paths: object, why: str) -> ConfigError:
    return ConfigError(f"Kubeconfig {paths} cannot be used: {why}.")
