"""Stand-in nodes, their health, the claims and the attempts of pods."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from devcluster.kubelet.behaviour import are_workers_ready, attempt_of, waits_for_workers
from devcluster.kubelet.nodehealth import evict_at, judge_node, ready_status
from devcluster.kubelet.nodes import (
    StandInNode,
    build_conditions,
    build_node,
    build_status,
    has_reported,
    stand_in_nodes,
)
from devcluster.kubelet.options import StandInOptions, Taint, to_text
from devcluster.kubelet.volumes import (
    build_volume,
    choose_volume,
    is_abandoned,
    is_provisioned,
    needs_volume,
)
from tests.devcluster.unit.kubelet.standin_pods import NOON

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"


def node(ready: str = "True", *taints: Any, **annotations: str) -> Any:
    conditions = [
        {"type": "MemoryPressure", "status": "False"},
        {"type": "Ready", "status": ready, "lastTransitionTime": "2026-03-01T00:00:00Z"},
    ]
    notes = {"sim/" + key.replace("_", "-"): value for key, value in annotations.items()}
    return {
        "metadata": {"name": "node-0", "annotations": notes},
        "spec": {"taints": list(taints)},
        "status": {"conditions": conditions},
    }


def taint(key: str, effect: str = "NoExecute", **more: str) -> Any:
    return {"key": key, "effect": effect, **more}


class TestNodeObjects:
    def test_nodes_have_names_labels_and_addresses_by_number(self) -> None:
        options = StandInOptions(nodes=2, first=3, prefix="ipu-", labels={"rack": "r{i}"})
        nodes = stand_in_nodes(options)
        assert list(nodes) == ["ipu-3", "ipu-4"]
        body = build_node(nodes["ipu-4"], options)
        assert body["metadata"]["labels"]["rack"] == "r4"
        assert body["metadata"]["labels"]["kubernetes.io/hostname"] == "ipu-4"
        assert nodes["ipu-3"].ip != nodes["ipu-4"].ip

    def test_pod_addresses_are_the_first_free_ones_and_of_one_node_only(self) -> None:
        first, second = StandInNode(0, "a"), StandInNode(1, "b")
        taken: set[str] = set()
        for _ in range(300):
            taken.add(first.choose_pod_ip(taken))
        assert len(taken) == 300
        assert second.choose_pod_ip(set()) not in taken
        taken.discard("10.128.0.7")
        assert first.choose_pod_ip(taken) == "10.128.0.7"

    def test_capacity_and_taints_are_options(self) -> None:
        options = StandInOptions(
            cpu="8", extended={"graphcore.ai/ipu": "4"}, taints=(Taint.parse("a=b:NoSchedule"),)
        )
        one = StandInNode(0, "n")
        status = build_status(one, options, node(), NOON)["status"]
        assert status["allocatable"]["cpu"] == "8"
        assert status["capacity"]["graphcore.ai/ipu"] == "4"
        wanted = [{"key": "a", "value": "b", "effect": "NoSchedule"}]
        assert build_node(one, options)["spec"]["taints"] == wanted

    @pytest.mark.parametrize("text", ["a=b", "a=b:Sometimes", ":NoExecute"])
    def test_a_taint_that_cannot_be_read_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="write key=value:NoSchedule"):
            Taint.parse(text)

    def test_conditions_keep_their_times_and_follow_the_annotation(self) -> None:
        fine = {one["type"]: one for one in build_conditions(node(), NOON)}
        assert fine["Ready"]["lastTransitionTime"] == "2026-03-01T00:00:00Z"
        assert fine["DiskPressure"]["lastTransitionTime"] == to_text(NOON)
        broken = {one["type"]: one for one in build_conditions(node(not_ready="true"), NOON)}
        assert broken["Ready"]["status"] == "False"
        assert broken["Ready"]["lastTransitionTime"] == to_text(NOON)

    def test_a_report_is_due_when_the_object_shows_something_else(self) -> None:
        found = node("Unknown")
        assert not has_reported(found, NOON)
        found["status"]["conditions"] = build_conditions(found, NOON)
        assert has_reported(found, NOON + timedelta(hours=1))


class TestNodeHealth:
    def test_a_silent_node_becomes_unknown_and_is_tainted(self) -> None:
        verdict = judge_node(node(), NOON, 40, NOON + timedelta(seconds=40))
        assert verdict.conditions is not None
        assert {one["status"] for one in verdict.conditions} == {"Unknown"}
        assert {one["reason"] for one in verdict.conditions} == {"NodeStatusUnknown"}
        assert verdict.taints is not None
        assert [(one["key"], one["effect"]) for one in verdict.taints] == [
            (UNREACHABLE, "NoSchedule"),
            (UNREACHABLE, "NoExecute"),
        ]

    @pytest.mark.parametrize(
        ("name", "found", "want"),
        [
            ("a healthy node", node(), None),
            ("a node that is not ready", node("False"), [NOT_READY, NOT_READY]),
            (
                "one that is ready again keeps other taints only",
                node("True", taint(NOT_READY), taint("mine")),
                ["mine"],
            ),
            (
                "one that went from unreachable to not ready",
                node("False", taint(UNREACHABLE), taint(UNREACHABLE, "NoSchedule")),
                [NOT_READY, NOT_READY],
            ),
        ],
    )
    def test_taints_follow_the_ready_condition(
        self, name: str, found: Any, want: list[str] | None
    ) -> None:
        verdict = judge_node(found, NOON, 40, NOON + timedelta(seconds=39))
        keys = None if verdict.taints is None else [one["key"] for one in verdict.taints]
        assert keys == want, name
        assert verdict.conditions is None

    def test_a_node_that_is_marked_already_is_left_alone(self) -> None:
        dead = node("Unknown", taint(UNREACHABLE), taint(UNREACHABLE, "NoSchedule"))
        dead["status"]["conditions"][0]["status"] = "Unknown"
        verdict = judge_node(dead, NOON, 40, NOON + timedelta(hours=1))
        assert (verdict.conditions, verdict.taints) == (None, None)

    def test_a_node_without_a_spec_is_judged_like_any_other(self) -> None:
        """One made by hand; the controller must not end over it."""
        verdict = judge_node({"metadata": {"name": "n"}}, NOON, 40, NOON)
        assert verdict.taints is not None
        assert {one["key"] for one in verdict.taints} == {UNREACHABLE}

    def test_a_node_without_conditions_counts_as_unknown(self) -> None:
        assert ready_status({"metadata": {"name": "n"}, "spec": {}}) == "Unknown"

    @pytest.mark.parametrize(
        ("name", "tolerations", "option", "want_seconds"),
        [
            ("no toleration", [], None, 0),
            (
                "as long as the pod says",
                [{"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 300}],
                None,
                300,
            ),
            (
                "the option replaces the pod's seconds",
                [{"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 300}],
                5.0,
                5,
            ),
            ("for ever", [{"operator": "Exists"}], 5.0, None),
        ],
    )
    def test_pods_are_evicted(
        self, name: str, tolerations: list[Any], option: float | None, want_seconds: int | None
    ) -> None:
        dead = node("Unknown", taint(UNREACHABLE, timeAdded=to_text(NOON)))
        at = evict_at({"spec": {"tolerations": tolerations}}, dead, option)
        want = None if want_seconds is None else NOON + timedelta(seconds=want_seconds)
        assert at == want, name

    def test_taints_that_only_keep_new_pods_away_evict_nobody(self) -> None:
        tainted = node("True", taint(UNREACHABLE, "NoSchedule", timeAdded=to_text(NOON)))
        assert evict_at({"spec": {}}, tainted, None) is None


class TestAttempts:
    def pod(self, role: str, *, ready: bool = True, deleting: bool = False) -> Any:
        labels = {"ipujob-uid": "u", "role": role, "instance": "0", "attempt": "1"}
        metadata = {"labels": {f"graphcore.ai/{key}": value for key, value in labels.items()}}
        if deleting:
            metadata["deletionTimestamp"] = to_text(NOON)  # type: ignore[assignment]
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
            ("all wanted ones are ready", "2", [{}, {}], True),
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
