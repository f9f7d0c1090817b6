"""IPUHub runs Graphcore IPU jobs on Kubernetes and reports who used how many IPU-hours."""

from __future__ import annotations

__version__ = "0.1.0"
VERSION_ANNOTATION = "ipuhub.io/version"
"""Of a Lease: the release of the replica that holds it."""
