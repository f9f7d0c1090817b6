#!/usr/bin/env python
"""glue: Django's command line, with IPUHub's settings."""

from __future__ import annotations

import os
import sys

# These need no database: they start without its models and must work without it.
FULL_SETTINGS, LEAN_SETTINGS = "ipuhub.settings", "ipuhub.settings_lean"
LEAN = {"demo", "run_devcluster", "run_kubelet", "run_operator", "run_vipu_proxy"}


def main() -> None:
    """Run one management command."""
    lean = len(sys.argv) > 1 and sys.argv[1] in LEAN
    # A child of the demo inherits the demo's choice, which is not its own.
    if os.environ.get("DJANGO_SETTINGS_MODULE") in {None, "", FULL_SETTINGS, LEAN_SETTINGS}:
        os.environ["DJANGO_SETTINGS_MODULE"] = LEAN_SETTINGS if lean else FULL_SETTINGS
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
