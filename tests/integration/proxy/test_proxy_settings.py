"""Each setting of the proxy sets its option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from partitions.configured import configured
from tests.fakes.proxylab import SYSTEM

if TYPE_CHECKING:
    from tests.fakes.proxylab import Lab


@pytest.mark.parametrize(
    ("setting", "value", "part", "option"),
    [
        ("SWEEP_SECONDS", 7.5, "sweep", "every_seconds"),
        ("TRACKER_TOMBSTONE_SECONDS", 123.0, "sweep", "tombstone_seconds"),
        ("TRACKER_RECORDER", True, "sweep", "needs_recorder"),
        ("TRACKER_RECORDER", False, "sweep", "needs_recorder"),
        ("VIPU_CLUSTER_NAME", "c", "defaults", "cluster_id"),
        ("VIPU_ALLOCATION_ID", "a", "defaults", "allocation_id"),
        ("VIPU_NUM_GCDS", 2, "defaults", "num_gcds"),
        ("VIPU_NUM_REPLICAS", 4, "defaults", "num_replicas"),
        ("VIPU_RECONFIGURABLE", True, "defaults", "reconfigurable"),
        ("PLACEMENT", "best-fit", "service", "rule"),
        ("VIPU_DEADLINE_SECONDS", 7.5, "", "deadline_seconds"),
    ],
)
async def test_a_setting_reaches_its_option(
    lab: Lab, settings: Any, setting: str, value: object, part: str, option: str
) -> None:
    settings.KUBECONFIG, settings.KUBE_CONTEXT, settings.NAMESPACE = lab.kubeconfig, "", SYSTEM
    setattr(settings, setting, value)
    options = configured("127.0.0.1", 0)
    assert getattr(getattr(options, part) if part else options, option) == value


async def test_no_setting_moves_what_has_none(lab: Lab, settings: Any) -> None:
    settings.KUBECONFIG, settings.KUBE_CONTEXT, settings.NAMESPACE = lab.kubeconfig, "", SYSTEM
    settings.TRACKER_TOMBSTONE_SECONDS, settings.TRACKER_RECORDER = 900.0, True
    assert configured("127.0.0.1", 0).sweep.overhear_seconds == 0.5
