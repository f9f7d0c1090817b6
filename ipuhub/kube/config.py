"""io: finds the cluster to speak to, the way kubectl and in-cluster clients do."""

from __future__ import annotations

import os
from pathlib import Path

from ipuhub.kube.cluster import ClusterConfig, Trust
from ipuhub.kube.errors import ConfigError

__all__ = ["ClusterConfig", "ConfigError", "Trust", "load_config"]


def load_config(kubeconfig: str = "", context: str = "") -> ClusterConfig:
    """Return the cluster of `kubeconfig`, else of KUBECONFIG, of the pod, or of ~/.kube/config.

    `context` chooses one of a kubeconfig; empty means its current one.
    Raises ConfigError with a sentence that says what to do.
    """
    from ipuhub.kube.kubeconfig import read_in_cluster, read_kubeconfig

    named = kubeconfig or os.environ.get("KUBECONFIG", "")
    if named:
        return read_kubeconfig(named, context)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return read_in_cluster()
    home = Path("~/.kube/config").expanduser()
    if home.is_file():
        return read_kubeconfig(str(home), context)
    raise ConfigError(
        "No cluster is configured: set KUBECONFIG to a kubeconfig file, or run inside a pod with a "
        "service account."
    )
