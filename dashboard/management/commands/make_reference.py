"""glue: `manage.py make_reference`: generates the pages in docs/reference, and the dark style
sheet."""

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
from ipuhub.web.darktheme import SHEETS, dark_style_sheet
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
    help = "Writes docs/reference and dark.css. With --check, only lists what is out of date."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="only list what is out of date")

    def handle(self, *_args: Any, **options: Any) -> None:
        folder: Path = settings.BASE_DIR / "docs" / "reference"
        styles: Path = settings.BASE_DIR / "ipuhub" / "static" / "ipuhub"
        sentences = ((str(reason), text) for reason, text in SENTENCES.items())
        made = {
            folder / "settings.md": settings_page(settings.ENV.declared.values()),
            folder / "openapi.yaml": openapi_text(),
            folder / "problems.md": problems_page(KINDS, PREFIX),
            folder / "metrics.md": metrics_page(METRICS),
            folder / "reasons.md": reasons_page(sentences, ADVICE),
            styles / "dark.css": dark_style_sheet(_read(styles / name) for name in SHEETS),
        }
        stale = [path for path, text in made.items() if _read(path) != text]
        if options["check"] and stale:
            names = ", ".join(path.name for path in stale)
            raise CommandError(f"out of date: {names}; run make reference")
        for path in stale:
            path.write_text(made[path], encoding="utf-8")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
