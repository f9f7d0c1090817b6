"""glue: Django's `manage.py changepassword`, which uses the demo's database if no other is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from django.contrib.auth.management.commands import changepassword

from ipuhub.management.demofolder import DatabaseCommand

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import CommandParser


class Command(DatabaseCommand, changepassword.Command):
    help = "Sets the password of a user."

    def add_arguments(self, parser: ArgumentParser) -> None:
        changepassword.Command.add_arguments(self, cast("CommandParser", parser))
        super().add_arguments(parser)
