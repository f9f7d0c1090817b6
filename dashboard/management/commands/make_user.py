"""glue: `manage.py make_user`: creates an account for a person who signs in."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db import transaction

from ipuhub.management.demofolder import DatabaseCommand
from ipuhub.roles import ACCOUNTANT, ADMIN, Grant, RoleError, parse_grant
from ipuhub.web.audit import USER, AuditEvent, author_of_command, record
from ipuhub.web.grants import grant_role

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(DatabaseCommand):
    help = (
        "Creates a user and prints the password once. The user has the roles given here and by "
        "grant_namespace."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("user", help="name of the user")
        parser.add_argument("--admin", action="store_true", help="sees everything")
        parser.add_argument(
            "--accountant",
            action="store_true",
            help="may see all usage, close months and set rates",
        )
        parser.add_argument(
            "--role",
            action="append",
            default=[],
            metavar="ROLE[:NAMESPACE]",
            help="a role (operator, accountant, viewer, admin) in a namespace, or in all; may be "
            "repeated",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        users, password = get_user_model(), secrets.token_urlsafe(12)
        if users.objects.filter(username=options["user"]).exists():
            raise CommandError(
                f"user {options['user']!r} already exists; changepassword sets a new password"
            )
        user, grants = users(username=options["user"]), _grants_of(options)
        author = author_of_command("make_user")
        user.set_password(password)
        try:
            user.full_clean()
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        with transaction.atomic():
            user.save()
            record(author, AuditEvent(USER, "create", user.get_username()))
            for grant in grants:
                grant_role(user, grant, author)
        self.stdout.write(password)


def _grants_of(options: dict[str, Any]) -> list[Grant]:
    grants = [Grant(ADMIN)] if options["admin"] else []
    grants += [Grant(ACCOUNTANT)] if options["accountant"] else []
    try:
        return grants + [parse_grant(text) for text in options["role"]]
    except RoleError as error:
        raise CommandError(str(error)) from error
