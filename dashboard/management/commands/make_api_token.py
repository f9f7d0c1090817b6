"""glue: `manage.py make_api_token`: creates an API token for a program."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError
from django.utils import timezone

from ipuhub.api.auth import curl_line, make_token
from ipuhub.api.scopes import DEFAULT, SCOPES, parse_scopes
from ipuhub.management.demofolder import DatabaseCommand
from ipuhub.web.audit import TOKEN, AuditEvent, audited, author_of_command
from ipuhub.web.grants import token_fields

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(DatabaseCommand):
    help = (
        "Creates an API token with the permissions of a user and prints it. The token is shown "
        "only once."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("user", help="name of the user")
        parser.add_argument(
            "--name", default="command line", help="purpose of the token; default: %(default)s"
        )
        parser.add_argument(
            "--scopes",
            default=DEFAULT,
            help=f"what the token may do, words of: {', '.join(SCOPES)}; default: %(default)s",
        )
        parser.add_argument(
            "--days",
            type=int,
            default=90,
            help="days until the token expires; 0: never; default: %(default)s",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        user = get_user_model().objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"user not found: {options['user']!r}; create it with make_user")
        now, days = timezone.now(), options["days"]
        if not 0 <= days <= 36500:
            raise CommandError(f"--days must be between 0 (never expires) and 36500, not {days}")
        end = now + dt.timedelta(days=days) if days else None
        scopes = _scopes(options["scopes"])
        event = AuditEvent(TOKEN, "create", options["name"], fields=token_fields(user, scopes, end))
        with audited(author_of_command("make_api_token"), event):
            text = make_token(user, options["name"], now, end, scopes)[1]
        self.stdout.write(text)
        # Not to stdout: scripts take the token from there.
        self.stderr.write(f"Try it: {curl_line(text, self.dashboard or own_address())}")


def _scopes(text: str) -> str:
    try:
        return parse_scopes(text)
    except ValueError as error:
        raise CommandError(f"--scopes {error}") from error


def own_address() -> str:
    """Return where the dashboard is, by the settings."""
    if settings.HTTPS:
        return f"https://{settings.ALLOWED_HOSTS[0]}"
    return f"http://{settings.WEB_HOST}:{settings.WEB_PORT}"
