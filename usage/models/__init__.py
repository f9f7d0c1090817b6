"""glue: the tables of usage reporting."""

from __future__ import annotations

from usage.models.lifetimes import PodLifetime

__all__ = ["PodLifetime"]
