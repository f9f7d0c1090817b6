"""glue: `manage.py run_prober`, which records what happens in a cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ApiError, ConfigError
from ipuhub.kube.leaderelection import LeadershipLost, LeaseHeld
from ipuhub.management import require_usage
from ipuhub.process import logs
from ipuhub.process.runtime import give_back_what_is_free
from ipuhub.recording.store import Fenced
from usage.prober import run_prober

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    help = "Records pods, jobs and partitions of one cluster in Postgres, until SIGTERM."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--once",
            action="store_true",
            help="commit one full list and end; refused while another prober holds the Lease",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        require_usage()
        logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
        give_back_what_is_free()
        try:
            config = load_config(settings.KUBECONFIG, settings.KUBE_CONTEXT)
            asyncio.run(run_prober(config, once=options["once"]))
        except (ApiError, ConfigError) as error:
            raise CommandError(str(error)) from error
        except LeaseHeld as error:
            raise CommandError(
                f"{error}: that prober lists by itself what it has to; stop it before --once"
            ) from error
        except LeadershipLost as error:
            raise CommandError(f"{error}: what was listed before that is kept") from error
        except Fenced as error:
            raise CommandError(
                "another prober took a watch over meanwhile: it records; what was listed before "
                "that is kept"
            ) from error
        except OSError as error:
            where = f"{settings.HEALTH_HOST}:{settings.HEALTH_PORT} (set IPUHUB_HEALTH_PORT)"
            raise CommandError(f"cannot listen on {where}: {error.strerror}") from error
