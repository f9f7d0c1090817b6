"""A component with a wrong setting says so in one line, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "command",
    ["run_operator", "run_webhooks", "run_vipu_proxy", "run_prober", "run_monitor"],
)
def test_a_wrong_setting_is_one_line(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", command],
        env={**os.environ, "IPUHUB_SECRET_KEY": "x", "IPUHUB_LOG_LEVEL": "nonsense"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    want = "IPUHUB_LOG_LEVEL must be one of debug, info, warning, error, not 'nonsense'."
    assert (done.stdout, done.stderr.splitlines()) == ("", [want])
