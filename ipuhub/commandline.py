"""glue: the command `ipuhub`: Django's command line, with IPUHub's settings."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from ipuhub.env import SettingError

FULL_SETTINGS, LEAN_SETTINGS = "ipuhub.settings", "ipuhub.settings_lean"
# These need no database and no pages and must work without them. They are run without Django's
# application registry, which would load its ORM, forms and templates: a third of a second of CPU
# in each process of the demo.
LEAN = {
    "demo": "devcluster",
    "run_demo_load": "devcluster",
    "patch_legacy_pods": "usage",
    "run_devcluster": "devcluster",
    "run_kubelet": "devcluster",
    "run_operator": "jobs",
    "run_vipu_proxy": "partitions",
    "check_uninstall": "jobs",
    "run_webhooks": "jobs",
}
DEMO_PARTS = frozenset({"cel_expr_python", "jsonpatch"})
"""Packages of the extra `demo`, which the image of the product leaves out."""


def main() -> None:
    """Run one management command."""
    # structlog loads rich where a development tool brought it (0.15 s of CPU in each process),
    # for tracebacks that we never print: they show local variables, tokens among them.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        _run(command, LEAN.get(command))
    except SettingError as error:
        sys.stderr.write(f"{error}.\n")
        sys.exit(2)
    except ModuleNotFoundError as error:
        if error.name not in DEMO_PARTS:
            raise
        sys.stderr.write(
            f"{command} needs the demo's parts ({error.name} is missing): install ipuhub[demo].\n"
        )
        sys.exit(2)
    except Exception as error:  # others keep their traceback: they are faults of ours
        if not _is_database_unavailable(error):
            raise
        sys.stderr.write(f"The database of DATABASE_URL does not answer: {error}\n")
        sys.exit(1)


def _run(command: str, app: str | None) -> None:
    # A child of the demo inherits the demo's choice, which is not its own.
    if os.environ.get("DJANGO_SETTINGS_MODULE") in {None, "", FULL_SETTINGS, LEAN_SETTINGS}:
        os.environ["DJANGO_SETTINGS_MODULE"] = LEAN_SETTINGS if app else FULL_SETTINGS
    if app:
        import_module(f"{app}.management.commands.{command}").Command().run_from_argv(sys.argv)
        return
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


def _is_database_unavailable(error: Exception) -> bool:
    """Return whether there is no connection, rather than a query that failed."""
    state = getattr(error.__cause__, "sqlstate", None)
    away = state is None or state.startswith(("08", "57P", "28", "3D"))
    return type(error).__module__ == "django.db.utils" and (
        type(error).__name__ in {"InterfaceError", "OperationalError"} and away
    )


if __name__ == "__main__":
    main()
