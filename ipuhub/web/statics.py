"""glue: static files, compressed, with a content hash in their names, cached by browsers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.contrib.staticfiles.storage import StaticFilesStorage, staticfiles_storage
from django.core.management import call_command
from whitenoise.storage import (  # type: ignore[import-untyped]
    CompressedManifestStaticFilesStorage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_NEEDLESS: Final[Sequence[str]] = ("rest_framework", "*.md", "LICENSE*", "NOTICE")
"""Files of packages that no page uses."""


class Statics(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # the library has no types
    """Storage of STATIC_ROOT with hashed names; uses the packages' files before collectstatic."""

    def url(self, name: str | None, force: bool = False) -> str:
        """Return the address of a file."""
        if not self.hashed_files:
            return StaticFilesStorage.url(self, name)
        return str(super().url(name, force))

    def read_manifest(self) -> str | None:
        """Return the manifest of hashed names, if it exists."""
        made: str | None = super().read_manifest() if settings.STATIC_ROOT else None
        return made

    def move_to(self, folder: Path) -> None:
        """Serve the files from `folder` from now on."""
        settings.STATIC_ROOT = str(folder)
        self._location = str(folder)
        for cached in ("base_location", "location"):
            self.__dict__.pop(cached, None)
        self.hashed_files, self.manifest_hash = self.load_manifest()


def prepare(folder: Path) -> None:
    """Collect the files into `folder` if it is empty, and serve them from there."""
    staticfiles_storage.move_to(folder)  # type: ignore[attr-defined]  # it is ours
    if not (folder / Statics.manifest_name).exists():
        options = {"interactive": False, "verbosity": 0, "ignore_patterns": [*_NEEDLESS]}
        call_command("collectstatic", **options)
        staticfiles_storage.move_to(folder)  # type: ignore[attr-defined]
    settings.WHITENOISE_USE_FINDERS = False
