"""glue: Django's `manage.py changepassword`, which uses the demo's database if no other is set."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any, cast

from django.contrib.auth.management.commands import changepassword
from django.db import transaction

from ipuhub.management.demofolder import DatabaseCommand
from ipuhub.web.audit import USER, AuditEvent, author_of_command, record

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import CommandParser


class Command(DatabaseCommand, changepassword.Command):
    help = "Sets the password of a user."

    def add_arguments(self, parser: ArgumentParser) -> None:
        changepassword.Command.add_arguments(self, cast("CommandParser", parser))
        super().add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> Any:
        """Set it, with an entry in the audit."""
        with transaction.atomic():
            message = changepassword.Command.handle(self, *args, **options)
            name = options["username"] or getpass.getuser()  # as Django's command has it
            record(author_of_command("changepassword"), AuditEvent(USER, "change-password", name))
        return message
