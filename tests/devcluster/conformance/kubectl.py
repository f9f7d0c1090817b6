"""io: the real kubectl, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Kubectl:
    """kubectl with one kubeconfig and a cache of its own."""

    kubeconfig: Path
    home: Path

    def environment(self) -> dict[str, str]:
        """The process environment: nothing of the user's own configuration."""
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(self.home),
            "KUBECACHEDIR": str(self.home / "cache"),
        }

    def call(self, *args: str, stdin: Any = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl; `stdin` is text or an object that is sent as JSON."""
        text = stdin if isinstance(stdin, str | None) else json.dumps(stdin)
        return subprocess.run(
            ["kubectl", *args],
            input=text,
            capture_output=True,
            text=True,
            env=self.environment(),
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    def run(self, *args: str, stdin: Any = None) -> str:
        """Return the output of a kubectl that must succeed."""
        done = self.call(*args, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr}"
        return done.stdout

    def fails(self, *args: str, stdin: Any = None) -> str:
        """Return what a kubectl that must fail says on standard error."""
        done = self.call(*args, stdin=stdin)
        assert done.returncode != 0, f"kubectl {' '.join(args)} succeeded: {done.stdout}"
        return done.stderr

    def wait_established(self, crd: str) -> None:
        """Return when the kind of a CRD is served."""
        command = ("wait", "--for=condition=Established", f"crd/{crd}", "--timeout=60s")
        deadline = time.monotonic() + TIMEOUT_SECONDS
        # Right after its creation a CRD may have null conditions, over which kubectl stumbles.
        while (done := self.call(*command)).returncode != 0:
            assert time.monotonic() < deadline, done.stderr

    def json(self, *args: str, stdin: Any = None) -> Any:
        """Return the object that kubectl prints with `-o json`."""
        return json.loads(self.run(*args, "-o", "json", stdin=stdin))

    def rows(self, *args: str) -> list[list[str]]:
        """Return the printed table: the header and the rows, split at two or more spaces."""
        lines = self.run(*args).splitlines()
        return [[cell for cell in line.split("  ") if cell.strip()] for line in lines]
