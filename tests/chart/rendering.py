"""Rendering the chart with values, for tests of what comes out. Needs helm, no cluster."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.builders.documents import read_documents

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/ipuhub"
VIPU = "vipuServer.enabled=true"
LAUNCHER = "global.launcherImage=r/launcher@sha256:0b"
CERTIFICATE = "admissionWebhooks.certificate"


@cache
def render(*values: str, release: str = "gc", namespace: str = "ipus") -> list[dict[str, Any]]:
    done = template(*values, release=release, namespace=namespace)
    assert done.returncode == 0, done.stderr
    return read_documents(done.stdout)


def template(
    *values: str, release: str = "gc", namespace: str = "ipus", options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    sets = [word for value in values for word in ("--set", value)]
    return _helm_template(release, namespace, *sets, *options)


def template_of(
    values: dict[str, Any], release: str = "gc", namespace: str = "ipus"
) -> subprocess.CompletedProcess[str]:
    """The same with the values as a file has them."""
    return _helm_template(release, namespace, "-f", "-", stdin=json.dumps(values))


def notes(*values: str) -> str:
    """Return the notes that helm prints after an installation with these values."""
    helm = str(Path(os.environ["CLUSTER_BIN"]) / "helm")
    sets = [word for value in values for word in ("--set", value)]
    command = [helm, "install", "gc", str(CHART), "-n", "ipus", "--dry-run=client", *sets]
    output = subprocess.check_output(command, text=True, timeout=60)
    return output.partition("\nNOTES:\n")[2]


def _helm_template(
    release: str, namespace: str, *options: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    helm = str(Path(os.environ["CLUSTER_BIN"]) / "helm")
    return subprocess.run(
        [helm, "template", release, str(CHART), "-n", namespace, *options],
        env={**os.environ, "GOGC": "off"},  # collecting garbage would be a third of its work
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def named(documents: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in documents if each["kind"] == kind}


def container(deployment: dict[str, Any]) -> dict[str, Any]:
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment(deployment: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(deployment)["env"]}
