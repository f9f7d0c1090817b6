"""glue: `manage.py make_webhook_configuration`: prints the objects that make the API server call
us."""

from __future__ import annotations

import re
from argparse import BooleanOptionalAction
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from jobs.webhooks.configuration import Service, WebhookScope, build_configurations
from jobs.webhooks.server import MUTATE_PATH, VALIDATE_PATH

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    requires_system_checks = ()
    help = "Prints the webhooks' configurations, for `kubectl apply -f -`."

    def add_arguments(self, parser: ArgumentParser) -> None:
        where = parser.add_mutually_exclusive_group(required=True)
        where.add_argument("--url", help="address of run_webhooks: https://host:port")
        where.add_argument(
            "--service",
            help="Service in front of run_webhooks: namespace/name or namespace/name:port",
        )
        parser.add_argument(
            "--ca",
            type=Path,
            help="certificate of the authority that signed the webhooks' certificate, PEM; not "
            "given: run_webhooks writes its own (IPUHUB_WEBHOOK_SECRET)",
        )
        parser.add_argument(
            "--match-conditions",
            action=BooleanOptionalAction,
            default=True,
            help="do not ask about jobs being deleted and about IPUHUB_WEBHOOK_EXEMPT_USERS "
            "(Kubernetes 1.28 or later); default: on",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        url, ca = options["url"], options["ca"]
        at = base_url(url) if url else service_of(options["service"])
        authority = read_authority(ca) if ca else b""
        scope = webhook_scope(at, authority, has_conditions=options["match_conditions"])
        self.stdout.write(yaml.safe_dump_all(build_configurations(scope), sort_keys=False))


def webhook_scope(at: str | Service, ca_pem: bytes, *, has_conditions: bool) -> WebhookScope:
    """The scope by the settings, of webhooks at `at` with a certificate of `ca_pem`."""
    return WebhookScope(
        at=at,
        ca_pem=ca_pem,
        mutate_path=MUTATE_PATH,
        validate_path=VALIDATE_PATH,
        name=settings.WEBHOOK_CONFIGURATION,
        failure_policy=settings.WEBHOOK_FAILURE_POLICY,
        timeout_seconds=settings.WEBHOOK_TIMEOUT_SECONDS,
        namespaces=tuple(settings.WEBHOOK_NAMESPACES),
        skipped_namespaces=tuple(settings.WEBHOOK_SKIPPED_NAMESPACES),
        exempt_users=tuple(settings.WEBHOOK_EXEMPT_USERS),
        has_conditions=has_conditions,
    )


def service_of(text: str) -> Service:
    """The Service that `text` names. Raises CommandError."""
    found = re.fullmatch(r"([a-z0-9-]+)/([a-z0-9-]+)(?::([0-9]{1,5}))?", text)
    if not found:
        raise CommandError(f"--service {text} is not namespace/name or namespace/name:port")
    return Service(found[1], found[2], int(found[3] or 443))


def base_url(text: str) -> str:
    """`text` as scheme, host and port. Raises CommandError for what the API server refuses."""
    parts = urlsplit(text)
    is_plain = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
    if parts.scheme != "https" or not parts.hostname or not is_plain:
        raise CommandError(f"--url {text} is not https://host:port (without a path)")
    return f"https://{parts.netloc}"


def read_authority(path: Path) -> bytes:
    """The certificate in `path`. Raises CommandError where there is none."""
    try:
        found = path.read_bytes()
    except OSError as error:
        raise CommandError(f"--ca {path}: {error.strerror}") from error
    if b"-----BEGIN CERTIFICATE-----" not in found or b"PRIVATE KEY" in found:
        raise CommandError(f"--ca {path}: expected a PEM file that contains only certificates")
    return found
