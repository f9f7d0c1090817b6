"""IPUHub: runs and accounts for IPU work on Kubernetes."""

from __future__ import annotations

__version__ = "0.1.0"
