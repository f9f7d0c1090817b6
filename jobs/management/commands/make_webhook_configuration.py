"""glue: `manage.py make_webhook_configuration`, which prints what makes the API server ask."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from jobs.webhooks.configuration import WebhookScope, build_configurations
from jobs.webhooks.server import MUTATE_PATH, VALIDATE_PATH

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    requires_system_checks = ()
    help = "Prints the webhooks' configurations, for `kubectl apply -f -`."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--url", required=True, help="address of run_webhooks: https://host:port"
        )
        parser.add_argument(
            "--ca",
            type=Path,
            required=True,
            help="certificate of the authority that signed the webhooks' certificate, PEM",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        scope = webhook_scope(base_url(options["url"]), read_authority(options["ca"]))
        self.stdout.write(yaml.safe_dump_all(build_configurations(scope), sort_keys=False))


def webhook_scope(url: str, ca_pem: bytes) -> WebhookScope:
    """The scope by the settings, of webhooks at `url` with a certificate of `ca_pem`."""
    return WebhookScope(
        base_url=url,
        ca_pem=ca_pem,
        mutate_path=MUTATE_PATH,
        validate_path=VALIDATE_PATH,
        failure_policy=settings.WEBHOOK_FAILURE_POLICY,
        timeout_seconds=settings.WEBHOOK_TIMEOUT_SECONDS,
        skipped_namespaces=tuple(settings.WEBHOOK_SKIPPED_NAMESPACES),
    )


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
