"""PrimeHub Usage's faults in what its prober does over time, and what ours does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import IntegrityError, connection

from ipuhub.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from tests.builders.lifetimes import store_pod as stored_pod
from tests.fakes.meter import NODE, spans
from usage.models import PodLifetime
from usage.pods.recorder import PodSelection

if TYPE_CHECKING:
    from tests.fakes.meter import Meter
    from tests.integration.usage.peerfaults.conftest import Accountant

pytestmark = pytest.mark.embedded_only
BEGAN = "2026-10-01T00:00:00Z"


def test_12_a_pod_that_ended_while_no_prober_ran_ends_when_it_did(
    meter: Meter, accountant: Accountant
) -> None:
    """There, an unobserved end is lost, or guessed by the monitor."""
    meter.pod("quick", spans(BEGAN), nodeName=NODE)
    with meter.probing():
        pass
    meter.change("quick", spans(BEGAN, "2026-10-01T03:00:00Z"))
    meter.delete("quick")
    with meter.probing():
        pass
    accountant.make()
    (row,) = accountant.rows("details")
    assert (row["end_time"], row["estimated"]) == ("2026-10-01T03:00:00Z", "N")
    assert accountant.listed("gaps") == []


def test_12_a_pod_that_went_beyond_the_history_ends_estimated_and_the_gap_is_shown(
    meter: Meter, accountant: Accountant
) -> None:
    """There, nothing compares a list with the rows: such a pod runs on."""
    meter.pod("gone", spans(BEGAN), nodeName=NODE)
    meter.pod("stays", spans(BEGAN), nodeName=NODE)
    with meter.probing():
        pass
    meter.delete("gone")
    meter.restart_api()
    meter.pod("next", spans(BEGAN), nodeName=NODE)
    with meter.probing():
        pass
    pods = {pod["pod_name"]: pod for pod in accountant.listed("lifetimes")}
    assert pods["stays"]["finished_at"] is None
    assert (pods["gone"]["end_source"], pods["gone"]["estimated"]) == ("relist", True)
    (gap,) = accountant.listed("gaps")
    assert "history" in gap["cause"]
    assert pods["gone"]["finished_at"] == gap["began_at"]


def test_13_two_probers_at_once_store_a_pod_once(meter: Meter, accountant: Accountant) -> None:
    """There, the UID is not unique: two probers make two rows, and each later event fails."""
    with meter.probing() as first:
        for number in range(5):
            meter.pod(f"pod-{number}", spans(BEGAN), requests={"cpu": "1"})
        meter.recorded()
        with meter.probing():
            for number in range(5):
                meter.change(f"pod-{number}", spans(BEGAN, "2026-10-01T01:00:00Z"))
            meter.pod("late", spans(BEGAN, "2026-10-01T01:00:00Z"), requests={"cpu": "1"})
        assert "another prober took this watch over" in " ".join(first.not_ready())
    accountant.make()
    (total,) = accountant.rows("summary", profile="primehub")
    assert (total["cpu_core_hours"], total["running"]) == ("6.00000", "N")
    with pytest.raises(IntegrityError, match="uid"):
        stored_pod(BEGAN[:16], uid=PodLifetime.objects.values_list("uid", flat=True)[0])


def _versions() -> list[Any]:
    """The row versions in the table: a row that was written again has another version."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT uid, xmin::text, ctid::text FROM usage_podlifetime ORDER BY uid")
        return cursor.fetchall()


def test_14_a_list_of_known_pods_writes_none_of_them_again(meter: Meter) -> None:
    """There, each start of the watch rewrites every pod, a transaction and four indexes each."""
    for number in range(20):
        ended = BEGAN.replace("T00", "T05") if number % 2 else None
        meter.pod(f"pod-{number}", spans(BEGAN, ended))
    meter.list_once()
    before = _versions()
    meter.list_once()
    assert len(before) == 20
    assert _versions() == before


def test_15_the_prober_of_one_namespace_reads_no_pod_of_another(
    meter: Meter, accountant: Accountant
) -> None:
    """There, all pods of the cluster are read and decoded, and pods of other namespaces thrown
    away; here rights on the one namespace are enough."""
    for namespace in ("team-a", "team-b"):
        meter.pod("train", spans(BEGAN), namespace=namespace, requests={"cpu": "1"})
    account = {"kind": "ServiceAccount", "name": "prober", "namespace": "team-a"}
    meter.apply(SERVICE_ACCOUNTS, {"metadata": {"name": "prober"}}, "team-a")
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
    which = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
    which["resourceNames"] = ["kube-system"]  # says which cluster it is
    for role, binding, kind, rule, namespace in (
        (ROLES, ROLE_BINDINGS, "Role", pods, "team-a"),
        (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, "ClusterRole", which, None),
    ):
        meter.apply(role, {"metadata": {"name": "prober"}, "rules": [rule]}, namespace)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "prober"}
        body = {"metadata": {"name": "prober"}, "roleRef": reference, "subjects": [account]}
        meter.apply(binding, body, namespace)
    with meter.probing(
        PodSelection(frozenset({"team-a"})), kubeconfig=meter.kubeconfig_of("team-a/prober")
    ):
        meter.change("train", spans(BEGAN, "2026-10-01T01:00:00Z"), "team-a")
    accountant.make()
    (row,) = accountant.rows("details")
    assert (row["namespace"], row["end_time"]) == ("team-a", "2026-10-01T01:00:00Z")
