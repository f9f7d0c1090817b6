"""io: stand-in nodes: they schedule pods and simulate their lives on any API server."""

from __future__ import annotations

from devcluster.kubelet.options import Durations, StandInOptions
from devcluster.kubelet.standin import StandInNodes

__all__ = ["Durations", "StandInNodes", "StandInOptions"]
