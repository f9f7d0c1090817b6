"""glue: the web process's connections to the cluster and to the V-IPU Proxy, opened once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from django.conf import settings

from ipuhub.kube.blocking import BlockingKubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.token import FixedToken, TokenSource
from ipuhub.web.readings import PATIENCE_SECONDS
from partitions.client import ProxyClient

PROXY_AUDIENCE = "ipuhub-proxy"
_OPENING: Final = threading.Lock()


@dataclass(frozen=True)
class Sources:
    """Open connections: the cluster, and the proxy on the same event loop."""

    kube: BlockingKubeClient
    proxy: ProxyClient

    def close(self) -> None:
        """End them and their thread."""
        self.kube.run(self.proxy.close)
        self.kube.close()


def sources() -> Sources:
    """Return the process's connections; both clients connect at their first request.

    Raises ConfigError without a usable kubeconfig, and tries again at the next call.
    """
    with _OPENING:  # threads that come together at the start would open one each
        return opened()


@lru_cache(maxsize=1)
def opened() -> Sources:
    """The connections of `sources`, which alone calls it."""
    config = load_config(settings.KUBECONFIG, settings.KUBE_CONTEXT)
    kube = BlockingKubeClient(config, timeout_seconds=PATIENCE_SECONDS)
    token = (
        TokenSource(kube.client, settings.SERVICE_ACCOUNT, PROXY_AUDIENCE)
        if settings.SERVICE_ACCOUNT and not settings.PROXY_TOKEN
        else FixedToken(settings.PROXY_TOKEN)
    )
    proxy = ProxyClient(settings.PROXY_URL, token, timeout_seconds=PATIENCE_SECONDS)
    return Sources(kube, proxy)
