"""Stand-in nodes, the claims and the attempts of pods."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from devcluster.kubelet.behaviour import are_workers_ready, attempt_of, waits_for_workers
from devcluster.kubelet.nodes import (
    StandInNode,
    build_conditions,
    build_node,
    build_status,
    has_reported,
    stand_in_nodes,
)
from devcluster.kubelet.options import StandInOptions
from devcluster.kubelet.volumes import (
    build_volume,
    choose_volume,
    is_abandoned,
    is_provisioned,
    needs_volume,
)
from ipuhub.times import format_time
from tests.devcluster.unit.kubelet.standin_pods import NOON


def node(ready: str = "True") -> Any:
    conditions = [
        {"type": "MemoryPressure", "status": "False"},
        {"type": "Ready", "status": ready, "lastTransitionTime": "2026-03-01T00:00:00Z"},
    ]
    return {"metadata": {"name": "node-0"}, "spec": {}, "status": {"conditions": conditions}}


class TestNodeObjects:
    def test_nodes_have_names_labels_and_addresses_by_number(self) -> None:
        options = StandInOptions(nodes=2, prefix="ipu-", labels={"rack": "r{i}"})
        nodes = stand_in_nodes(options)
        assert list(nodes) == ["ipu-0", "ipu-1"]
        body = build_node(nodes["ipu-1"], options)
        assert body["metadata"]["labels"]["rack"] == "r1"
        assert body["metadata"]["labels"]["kubernetes.io/hostname"] == "ipu-1"
        assert nodes["ipu-0"].ip != nodes["ipu-1"].ip

    def test_pod_addresses_are_the_first_free_ones_and_of_one_node_only(self) -> None:
        first, second = StandInNode(0, "a"), StandInNode(1, "b")
        taken: set[str] = set()
        for _ in range(300):
            taken.add(first.choose_pod_ip(taken))
        assert len(taken) == 300
        assert second.choose_pod_ip(set()) not in taken
        taken.discard("10.128.0.7")
        assert first.choose_pod_ip(taken) == "10.128.0.7"

    def test_capacity_is_an_option(self) -> None:
        status = build_status(StandInNode(0, "n"), StandInOptions(cpu="8"), node(), NOON)["status"]
        assert status["allocatable"]["cpu"] == "8"

    def test_conditions_keep_their_times(self) -> None:
        fine = {one["type"]: one for one in build_conditions(node(), NOON)}
        assert fine["Ready"]["lastTransitionTime"] == "2026-03-01T00:00:00Z"
        assert fine["DiskPressure"]["lastTransitionTime"] == format_time(NOON)

    def test_a_report_is_due_when_the_object_shows_something_else(self) -> None:
        found = node("Unknown")
        assert not has_reported(found, NOON)
        found["status"]["conditions"] = build_conditions(found, NOON)
        assert has_reported(found, NOON + timedelta(hours=1))


class TestAttempts:
    def pod(self, role: str, *, ready: bool = True, deleting: bool = False) -> Any:
        labels = {"ipujob-uid": "u", "role": role, "instance": "0", "attempt": "1"}
        metadata = {"labels": {f"graphcore.ai/{key}": value for key, value in labels.items()}}
        if deleting:
            metadata["deletionTimestamp"] = format_time(NOON)  # type: ignore[assignment]
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        return {"metadata": metadata, "spec": {}, "status": {"conditions": conditions}}

    def launcher(self, workers: str | None) -> Any:
        made = self.pod("launcher", ready=False)
        env = [] if workers is None else [{"name": "IPUHUB_WORKERS", "value": workers}]
        made["spec"]["initContainers"] = [{"name": "ipuhub-launcher", "env": env}]
        return made

    @pytest.mark.parametrize(
        ("name", "wanted", "workers", "want"),
        [
            ("none is there", None, [], False),
            ("all that are there are ready", None, [{}, {}], True),
            ("one is not ready", None, [{}, {"ready": False}], False),
            ("one is still missing", "2", [{}], False),
            ("all wanted containers are ready", "2", [{}, {}], True),
            ("one is being deleted", "2", [{}, {"deleting": True}], False),
            ("a number that cannot be read", "two", [{}], True),
        ],
    )
    def test_when_the_launcher_may_begin(
        self, name: str, wanted: str | None, workers: list[Any], want: bool
    ) -> None:
        launcher = self.launcher(wanted)
        pods = [launcher, *(self.pod("worker", **worker) for worker in workers)]
        assert are_workers_ready(launcher, pods) == want, name

    def test_only_pods_of_jobs_have_attempts(self) -> None:
        assert attempt_of(self.pod("worker")) == "u/0/1"
        assert attempt_of({"metadata": {}}) == ""
        assert waits_for_workers(self.launcher(None))
        assert not waits_for_workers(self.pod("launcher"))


class TestClaims:
    def claim(self, size: str = "5Gi", **spec: Any) -> Any:
        wish = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        metadata = {"name": "data", "namespace": "default", "uid": "uid-c"}
        return {"metadata": metadata, "spec": wish | spec, "status": {"phase": "Pending"}}

    def volume(self, name: str, size: str = "5Gi", **spec: Any) -> Any:
        modes = ["ReadWriteOnce", "ReadWriteMany"]
        holds = {"capacity": {"storage": size}, "accessModes": modes}
        return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": holds | spec}

    @pytest.mark.parametrize(
        ("name", "volumes", "claim", "want"),
        [
            ("none", [], {}, None),
            ("the smallest large enough", [("v9", "9Gi"), ("v6", "6Gi"), ("v1", "1Gi")], {}, "v6"),
            ("a mode that none has", [("v", "9Gi")], {"accessModes": ["ReadOnlyMany"]}, None),
            ("the one it names", [("v6", "6Gi"), ("v9", "9Gi")], {"volumeName": "v9"}, "v9"),
        ],
    )
    def test_a_volume_is_chosen(
        self, name: str, volumes: list[tuple[str, str]], claim: Any, want: str | None
    ) -> None:
        chosen = choose_volume(self.claim(**claim), [self.volume(*one) for one in volumes])
        assert (chosen["metadata"]["name"] if chosen else None) == want, name

    def test_a_volume_of_the_same_class_comes_first_but_another_will_do(self) -> None:
        slow = self.volume("slow", "5Gi", storageClassName="slow")
        fast = self.volume("fast", "9Gi", storageClassName="fast")
        claim = self.claim(storageClassName="fast")
        assert choose_volume(claim, [slow, fast]) is fast
        assert choose_volume(claim, [slow]) is slow

    def test_a_volume_that_is_another_claims_is_never_taken_its_own_always(self) -> None:
        claim = self.claim()
        other = {"namespace": "default", "name": "other", "uid": "uid-o"}
        mine = {"namespace": "default", "name": "data", "uid": "uid-c"}
        taken, own = self.volume("v1", claimRef=other), self.volume("v2", "1Gi", claimRef=mine)
        assert choose_volume(claim, [taken]) is None
        assert choose_volume(claim, [taken, self.volume("v0"), own]) is own

    def test_a_made_volume_is_the_claims_and_goes_with_it(self) -> None:
        claim = self.claim("7Gi")
        made = build_volume(claim)
        assert made["spec"]["capacity"] == {"storage": "7Gi"}
        assert choose_volume(claim, [made]) is made
        assert is_provisioned(made)
        assert not is_abandoned(made, [claim])
        assert is_abandoned(made, [])
        assert not is_abandoned(self.volume("free"), [])

    def test_a_held_or_bound_claim_needs_no_volume(self) -> None:
        claim = self.claim()
        assert needs_volume(claim)
        claim["metadata"]["annotations"] = {"sim/unbound": "true"}
        assert not needs_volume(claim)
        claim["metadata"]["annotations"] = {}
        claim["status"]["phase"] = "Bound"
        assert not needs_volume(claim)
