"""glue: `manage.py make_reference`, the generated pages below docs/reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from dashboard.notify.metrics import NOTIFICATIONS
from dashboard.reference import metrics_page, problems_page, reasons_page, settings_page
from ipuhub.api.kinds import KINDS, PREFIX
from ipuhub.api.schema import openapi_text
from ipuhub.oidc.views import LOGOUTS, SIGN_INS
from ipuhub.process import process
from ipuhub.recording.metrics import RECORDINGS
from jobs.ipujob.advice import ADVICE
from jobs.ipujob.conditions import SENTENCES
from jobs.operator.metrics import OPERATOR
from jobs.webhooks.server import WEBHOOKS
from partitions.proxy.metrics import PROXY
from partitions.vipu.agent.exporter import IpuMeters
from usage.api.primehub import WEB
from usage.monitor.rounds import MONITOR

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from pathlib import Path


METRICS = (
    ("Every process", process.EVERY_PROCESS),
    ("Operator, V-IPU Proxy and prober: who leads", process.WITH_LEASE),
    ("Operator, V-IPU Proxy, prober and monitor: calls to the API server", process.WITH_API),
    ("Operator and V-IPU Proxy: watches", process.WITH_WATCHES),
    ("Operator", OPERATOR),
    ("Webhooks", WEBHOOKS),
    ("V-IPU Proxy", PROXY),
    ("V-IPU agent", IpuMeters()),
    ("Prober", RECORDINGS),
    ("Dashboard", (*WEB, SIGN_INS, LOGOUTS, *NOTIFICATIONS)),
    ("Monitor", MONITOR),
)


class Command(BaseCommand):
    help = "Writes docs/reference. With --check, only lists pages that are out of date."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="only list what is out of date")

    def handle(self, *_args: Any, **options: Any) -> None:
        folder: Path = settings.BASE_DIR / "docs" / "reference"
        pages = {
            "settings.md": settings_page(settings.ENV.declared.values()),
            "openapi.yaml": openapi_text(),
            "problems.md": problems_page(KINDS, PREFIX),
            "metrics.md": metrics_page(METRICS),
            "reasons.md": reasons_page(((str(r), text) for r, text in SENTENCES.items()), ADVICE),
        }
        stale = [name for name, text in pages.items() if _read(folder / name) != text]
        if options["check"] and stale:
            raise CommandError(f"out of date: {', '.join(stale)}; run make reference")
        for name in stale:
            (folder / name).write_text(pages[name], encoding="utf-8")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
