"""glue: `primehub-usage-legacy-pods-helper.py`, the command that PrimeHub's operators know."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run `patch_legacy_pods` with this program's arguments; it needs no database."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ipuhub.settings_lean")
    from usage.management.commands.patch_legacy_pods import Command

    Command().run_from_argv([sys.argv[0], "patch_legacy_pods", *sys.argv[1:]])
