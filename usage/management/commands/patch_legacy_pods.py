"""glue: `manage.py patch_legacy_pods`: prints commands that annotate existing objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ipuhub.kube.blocking import BlockingKubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ApiError, ConfigError
from ipuhub.management import require_usage
from usage.legacy.patches import legacy_patches, read_world

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    help = (
        "Prints kubectl commands that add the usage annotation to pods, IPUJobs and Deployments "
        "that lack it. Review them before you run them: this command changes nothing. Exit code "
        "1: the cluster could not be read."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "-n",
            "--namespace",
            default=settings.PRIMEHUB_NAMESPACE,
            help="only this namespace; default: PRIMEHUB_USAGE_WATCHED_NAMESPACE, or all "
            "namespaces if that is empty",
        )
        parser.add_argument(
            "--format",
            choices=("text", "json"),
            default="text",
            help="text: a script to review and run; json: for programs",
        )
        parser.add_argument(
            "--all",
            action="store_true",
            help="also include pods without an owner and Deployments of unknown products; they "
            "count for the group of their namespace",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        require_usage()
        try:
            config = load_config(settings.KUBECONFIG, settings.KUBE_CONTEXT)
            with BlockingKubeClient(config) as client:
                namespace = options["namespace"] or None
                world = read_world(client, namespace, self.stderr.write, everything=options["all"])
        except (ApiError, ConfigError) as error:
            raise CommandError(str(error)) from error
        patches = list(legacy_patches(world))
        if options["format"] == "json":
            self.stdout.write(json.dumps([each.record for each in patches], indent=2))
        else:
            for each in patches:
                self.stdout.write(each.text)
