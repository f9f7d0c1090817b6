"""glue: the options of a V-IPU Proxy that the settings ask for."""

from __future__ import annotations

from django.conf import settings

from ipuhub import processes
from ipuhub.kube.config import load_config
from partitions.controllers import PartitionSettings, PlacementRule
from partitions.proxy.run import ProxyOptions
from partitions.service import ServiceOptions
from partitions.sweep import SweepOptions


def configured(host: str, port: int) -> ProxyOptions:
    """Return them, to listen at `host`:`port`. Raises ConfigError."""
    return ProxyOptions(
        cluster=load_config(settings.KUBECONFIG, settings.KUBE_CONTEXT),
        namespace=settings.NAMESPACE,
        election=processes.leadership_options("ipuhub-proxy"),
        metrics_token=settings.METRICS_TOKEN,
        host=host,
        port=port,
        tracker=settings.TRACKER_CONFIGMAP,
        controllers=settings.VIPU_CONTROLLERS,
        controllers_path=settings.VIPU_CONTROLLERS_PATH,
        deadline_seconds=settings.VIPU_DEADLINE_SECONDS,
        defaults=PartitionSettings(
            cluster_id=settings.VIPU_CLUSTER_NAME,
            allocation_id=settings.VIPU_ALLOCATION_ID,
            num_gcds=settings.VIPU_NUM_GCDS,
            num_replicas=settings.VIPU_NUM_REPLICAS,
            reconfigurable=settings.VIPU_RECONFIGURABLE,
        ),
        service=ServiceOptions(rule=PlacementRule(settings.PLACEMENT)),
        sweep=SweepOptions(
            settings.SWEEP_SECONDS,
            settings.TRACKER_TOMBSTONE_SECONDS,
            settings.TRACKER_RECORDER,
        ),
    )
