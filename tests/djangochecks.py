"""System checks, migrations and generated files: the part of `make lint` that runs in Django.

One process for all of them: each `manage.py` starts for a second or two of CPU. Settings as in
production, with a key of this run.
"""

from __future__ import annotations

import os
import secrets
import sys
import warnings
from typing import Any

GENERATORS = ("make_crd", "make_chart", "make_builtin_schemas", "make_reference")


def main() -> None:
    """Name all that is wrong, and fail if anything is."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "ipuhub.settings"
    os.environ["IPUHUB_SECRET_KEY"] = secrets.token_urlsafe(50)
    warnings.simplefilter("ignore", RuntimeWarning)  # makemigrations has no database to ask
    import django
    from django.core.management import CommandError, call_command

    django.setup()
    failed = False
    checks: dict[str, dict[str, Any]] = {
        "check": {"deploy": True, "fail_level": "WARNING"},
        "makemigrations": {"check_changes": True, "dry_run": True},
        **{name: {"check": True} for name in GENERATORS},
    }
    for name, options in checks.items():
        try:
            call_command(name, **options)
        except CommandError as error:
            failed = True
            sys.stderr.write(f"{name}: {error}\n")
        except SystemExit as end:  # makemigrations has said what is missing
            failed = failed or bool(end.code)
    sys.exit(failed)


if __name__ == "__main__":
    main()
