"""glue: the V-IPU Proxy's options, from the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from django.conf import settings

from ipuhub import composition
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ConfigError
from partitions.proxy.controllers import PartitionSettings, PlacementRule
from partitions.proxy.nodes.advertising import VisibilityOptions
from partitions.proxy.process import ProxyOptions
from partitions.proxy.queue import QueueOptions
from partitions.proxy.service import ServiceOptions
from partitions.proxy.sweep import SweepOptions
from partitions.vipu.tlsfiles import ClientTls, TlsFilesError

# With HTTP, the tracker's last write and the Lease it has to fit into 30 s.
_MOST_FINISH_SECONDS: Final = 20.0


def configured(host: str, port: int) -> ProxyOptions:
    """Return them, to listen at `host`:`port`. Raises ConfigError."""
    if settings.PROXY_FINISH_SECONDS > _MOST_FINISH_SECONDS:
        raise ConfigError(
            f"IPUHUB_PROXY_FINISH_SECONDS={settings.PROXY_FINISH_SECONDS:g}: use at most "
            f"{_MOST_FINISH_SECONDS:g}, so that the process ends within 30 s"
        )
    return ProxyOptions(
        cluster=load_config(settings.KUBECONFIG, settings.KUBE_CONTEXT),
        namespace=settings.NAMESPACE,
        election=composition.leadership_options("ipuhub-proxy"),
        metrics_token=settings.METRICS_TOKEN,
        host=host,
        port=port,
        mutations_port=settings.PROXY_MUTATIONS_PORT or None,
        tracker=settings.TRACKER_CONFIGMAP,
        controllers=settings.VIPU_CONTROLLERS,
        controllers_path=settings.VIPU_CONTROLLERS_PATH,
        controllers_configmap=settings.VIPU_CONTROLLERS_CONFIGMAP,
        deadline_seconds=settings.VIPU_DEADLINE_SECONDS,
        tls=vipu_tls(),
        access_path=vipu_access(),
        pod=settings.POD_NAME,
        finish_seconds=settings.PROXY_FINISH_SECONDS,
        defaults=PartitionSettings(
            cluster_id=settings.VIPU_CLUSTER_NAME,
            allocation_id=settings.VIPU_ALLOCATION_ID,
            num_gcds=settings.VIPU_NUM_GCDS,
            num_replicas=settings.VIPU_NUM_REPLICAS,
            reconfigurable=settings.VIPU_RECONFIGURABLE,
        ),
        service=ServiceOptions(
            rule=PlacementRule(settings.PLACEMENT),
            queue=QueueOptions(reserve_after_seconds=settings.PROXY_RESERVE_AFTER_SECONDS),
        ),
        visibility=VisibilityOptions(
            owner=installation(), on_masters=settings.IPU_VISIBILITY_ON_MASTER
        )
        if settings.IPU_VISIBILITY
        else None,
        sweep=SweepOptions(
            every_seconds=settings.SWEEP_SECONDS,
            tombstone_seconds=settings.TRACKER_TOMBSTONE_SECONDS,
            needs_recorder=settings.TRACKER_RECORDER,
        ),
    )


def installation() -> str:
    """Return the name with which this installation marks nodes: the name of its tracker."""
    return f"{settings.NAMESPACE}/{settings.TRACKER_CONFIGMAP}"


def vipu_access() -> Path | None:
    """The folder with access to each V-IPU controller. Raises ConfigError if there is none."""
    if not settings.VIPU_ACCESS_PATH:
        return None
    folder = Path(settings.VIPU_ACCESS_PATH)
    if not folder.is_dir():
        raise ConfigError(
            f"IPUHUB_VIPU_ACCESS_PATH: {folder} is not a folder; make a folder with a "
            "subfolder for each V-IPU controller, or a subfolder called default"
        )
    return folder


def vipu_tls() -> ClientTls | None:
    """TLS to the V-IPU controllers; None without a CA. Raises ConfigError."""
    ours = (settings.VIPU_CERTIFICATE_PATH, settings.VIPU_KEY_PATH)
    if not settings.VIPU_CA_PATH:
        if any(ours):
            raise ConfigError(
                "IPUHUB_VIPU_CERTIFICATE_PATH and IPUHUB_VIPU_KEY_PATH need IPUHUB_VIPU_CA_PATH"
            )
        return None
    try:
        files = (Path(path) if path else None for path in ours)
        return ClientTls(Path(settings.VIPU_CA_PATH), *files)
    except TlsFilesError as error:
        raise ConfigError(f"TLS to V-IPU (IPUHUB_VIPU_CA_PATH): {error}") from error
