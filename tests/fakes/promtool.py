"""Debian's promtool, which knows what metrics should look like."""

from __future__ import annotations

import subprocess


def complaints(text: bytes) -> str:
    """Return the complaints of `promtool check metrics` about an answer of /metrics; empty:
    none."""
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, check=False, timeout=90
    )
    output = (done.stdout + done.stderr).decode()
    return output if output or done.returncode else ""


def families(text: bytes) -> set[str]:
    """The names that an answer of /metrics tells the types of."""
    lines = text.decode().splitlines()
    return {line.split()[2] for line in lines if line.startswith("# TYPE ")}
