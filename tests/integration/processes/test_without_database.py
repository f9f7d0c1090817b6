"""Operator, proxy, embedded API and stand-in nodes know nothing of a database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOADED = (
    "import sys; sys.argv = ['manage.py', '{command}', '--help']; "
    "import atexit; atexit.register(lambda: print('LOADED', "
    "sorted({{'psycopg', 'django.contrib.auth.models', 'kubernetes'}} & set(sys.modules)))); "
    "import runpy; runpy.run_path({manage!r}, run_name='__main__')"
)


@pytest.mark.parametrize(
    "command",
    [
        "run_operator",
        "run_vipu_proxy",
        "run_devcluster",
        "run_kubelet",
        "demo",
        "run_demo_load",
        "run_webhooks",
    ],
)
def test_it_starts_without_the_driver_the_models_and_the_kubernetes_package(command: str) -> None:
    code = LOADED.format(command=command, manage=str(ROOT / "manage.py"))
    environment = {key: value for key, value in os.environ.items() if "DJANGO" not in key}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    assert done.stdout.splitlines()[-1] == "LOADED []"


def test_the_webhooks_know_the_fields_of_a_pod_without_the_kubernetes_package() -> None:
    code = (
        "import sys, django; django.setup(); "
        "from jobs.management.commands.run_webhooks import webhook_rules; "
        "fields = webhook_rules().template_schema['properties']['spec']['properties']; "
        "print('containers' in fields, {'kubernetes', 'yaml', 'jobs.operator.plan'} & "
        "set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "ipuhub.settings_lean"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    assert done.stdout.strip() == "True set()"
