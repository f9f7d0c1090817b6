"""domain: what an IPUJob means when it leaves a field out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.ipujob.sessionlimits import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobs.ipujob.sessionlimits import SessionLimits

CLEAN_POD_POLICY = "None"
RESTART_TYPE = "Never"
BACK_OFF_LIMIT = 3
WORKER_REPLICAS = 1
JOB_INSTANCES = 1


def with_defaults(spec: Mapping[str, Any], limits: SessionLimits = UNLIMITED) -> dict[str, Any]:
    """A copy of `spec` with the defaults filled in; applying it twice changes nothing."""
    filled = dict(spec)
    if filled.get("cleanPodPolicy") is None:
        filled["cleanPodPolicy"] = CLEAN_POD_POLICY
    restart = filled.get("restartPolicy")
    if restart is None or isinstance(restart, dict):
        filled["restartPolicy"] = {"type": RESTART_TYPE, "backOffLimit": BACK_OFF_LIMIT} | (
            restart or {}
        )
    workers = filled.get("workers")
    if isinstance(workers, dict):
        filled["workers"] = {"replicas": WORKER_REPLICAS} | workers
    interactive = filled.get("interactive")
    if isinstance(interactive, dict) and interactive.get("ttl") is None and limits.default_seconds:
        filled["interactive"] = interactive | {"ttl": limits.default_seconds}
    # kubectl scale reads the number of instances here.
    if filled.get("ipusPerJobInstance") is not None and filled.get("jobInstances") is None:
        filled["jobInstances"] = JOB_INSTANCES
    return filled
