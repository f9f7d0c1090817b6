"""glue: builds the web process's readers from settings, once."""

from __future__ import annotations

from functools import lru_cache

from django.conf import settings

from ipuhub.kube.blocking import BlockingKubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.token import FixedToken, TokenSource
from ipuhub.web.live import LiveReader, Sources
from partitions.proxyclient import ProxyClient

PROXY_AUDIENCE = "ipuhub-proxy"
TIMEOUT_SECONDS = 5.0  # a page waits no longer for one source


@lru_cache(maxsize=1)
def live_reader() -> LiveReader:
    """Return the process's one reader."""
    return LiveReader(_connect)


def _connect() -> Sources:
    """Open nothing yet: both clients connect at their first request."""
    config = load_config(settings.KUBECONFIG, settings.KUBE_CONTEXT)
    kube = BlockingKubeClient(config, timeout_seconds=TIMEOUT_SECONDS)
    token = (
        TokenSource(kube.client, settings.SERVICE_ACCOUNT, PROXY_AUDIENCE)
        if settings.SERVICE_ACCOUNT and not settings.PROXY_TOKEN
        else FixedToken(settings.PROXY_TOKEN)
    )
    return Sources(kube, ProxyClient(settings.PROXY_URL, token, timeout_seconds=TIMEOUT_SECONDS))
