"""glue: the option of commands that says which demo is meant: the folder of its state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from argparse import ArgumentParser


def add_folder_option(parser: ArgumentParser) -> None:
    """Let a command take `--dir`."""
    parser.add_argument(
        "--dir",
        type=Path,
        default=settings.BASE_DIR / ".ipuhub",
        help="folder of the demo's state; default: %(default)s",
    )
