"""glue: `manage.py grant_namespace`: gives a user a role in a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from ipuhub.management.demofolder import DatabaseCommand
from ipuhub.models import RoleGrant
from ipuhub.roles import OPERATOR, ROLES, Grant, RoleError
from ipuhub.web.audit import author_of_command
from ipuhub.web.grants import grant_role, revoke_role

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(DatabaseCommand):
    help = "Gives a user a role in a namespace, or in all; --revoke takes it away."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("user", help="name of the user")
        parser.add_argument(
            "namespace",
            help="name of the namespace, which does not have to exist yet; * for all namespaces",
        )
        parser.add_argument(
            "--role", default=OPERATOR, choices=ROLES, help="the role; default: %(default)s"
        )
        parser.add_argument("--revoke", action="store_true", help="take the role away")

    def handle(self, *_args: Any, **options: Any) -> None:
        user = get_user_model().objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"user not found: {options['user']!r}")
        try:
            grant = Grant(options["role"], options["namespace"])
        except RoleError as error:
            raise CommandError(str(error)) from error
        change = revoke_role if options["revoke"] else grant_role
        change(user, grant, author_of_command("grant_namespace"))
        rows = RoleGrant.objects.filter(user=user).order_by("role", "namespace")
        roles = ["admin"] if user.is_staff else []
        roles += [str(Grant(row.role, row.namespace)) for row in rows]
        self.stdout.write(f"{user} has the roles: {', '.join(roles) or 'none'}")
