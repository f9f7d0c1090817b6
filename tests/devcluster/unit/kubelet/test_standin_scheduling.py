"""The choice of a node for a pod, and the message if there is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.kubelet.scheduling import (
    Ledger,
    choose_node,
    judge_claims,
    matches_node,
    needs_node,
    pod_request,
    tolerates,
)

TAINTED = "0/1 nodes are available: 1 node(s) had taint {ipu: only}, that the pod didn't tolerate."


def node(name: str, *, labels: dict[str, str] | None = None, **more: Any) -> Any:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10", **more.pop("amounts", {})}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": more,
        "status": {"allocatable": amounts},
    }


def pod(name: str = "a", *, requests: dict[str, str] | None = None, **spec: Any) -> Any:
    main = {"name": "main", "resources": {"requests": requests or {}}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"schedulerName": "default-scheduler", "containers": [main], **spec},
        "status": {"phase": "Pending"},
    }


def placed(name: str, on: str, **more: Any) -> Any:
    made = pod(name, nodeName=on, **more)
    made["status"]["phase"] = "Running"
    return made


def affinity(*expressions: dict[str, Any], **term: Any) -> Any:
    terms = [{"matchExpressions": list(expressions), **term}]
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": rule}


class TestChoosing:
    def test_the_node_with_the_fewest_pods_is_taken_then_the_first_name(self) -> None:
        nodes = [node("b"), node("a"), node("c")]
        ledger = Ledger.of([placed("x", "a")])
        assert choose_node(pod(), nodes, ledger).node == "b"

    def test_an_ended_pod_takes_no_place(self) -> None:
        ended = placed("x", "a")
        ended["status"]["phase"] = "Succeeded"
        full = node("a", amounts={"pods": "1"})
        assert choose_node(pod(), [full], Ledger.of([ended])).node == "a"

    @pytest.mark.parametrize(
        ("name", "nodes", "asking", "want"),
        [
            (
                "no node at all",
                [],
                pod(),
                "no nodes available to schedule pods",
            ),
            (
                "the selector matches none",
                [node(f"n{i}") for i in range(4)],
                pod(nodeSelector={"vipu-ctrl": "vctl1"}),
                "0/4 nodes are available: 4 node(s) didn't match node selector.",
            ),
            (
                "a selector value that differs",
                [node("n", labels={"vipu-ctrl": "vctl2"})],
                pod(nodeSelector={"vipu-ctrl": "vctl1"}),
                "0/1 nodes are available: 1 node(s) didn't match node selector.",
            ),
            (
                "several resources are short",
                [node("n")],
                pod(requests={"cpu": "5", "graphcore.ai/ipu": "1"}),
                "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient graphcore.ai/ipu.",
            ),
            (
                "reasons are counted and sorted",
                [node("n1"), node("n2"), node("n3", unschedulable=True)],
                pod(requests={"memory": "9Gi"}),
                "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient memory.",
            ),
            (
                "a taint",
                [node("n", taints=[{"key": "ipu", "value": "only", "effect": "NoSchedule"}])],
                pod(),
                TAINTED,
            ),
        ],
    )
    def test_a_pod_that_fits_nowhere(
        self, name: str, nodes: list[Any], asking: Any, want: str
    ) -> None:
        placement = choose_node(asking, nodes, Ledger())
        assert (placement.node, placement.message) == ("", want), name

    def test_a_full_node(self) -> None:
        ledger = Ledger.of([placed("x", "n")])
        placement = choose_node(pod(), [node("n", amounts={"pods": "1"})], ledger)
        assert placement.message == "0/1 nodes are available: 1 Too many pods."

    @pytest.mark.parametrize(
        ("taint", "tolerated"),
        [
            ({"key": "a", "effect": "PreferNoSchedule"}, True),
            ({"key": "a", "effect": "NoExecute"}, False),
        ],
    )
    def test_only_hard_taints_keep_pods_away(self, taint: Any, tolerated: bool) -> None:
        assert bool(choose_node(pod(), [node("n", taints=[taint])], Ledger()).node) == tolerated

    def test_a_cordoned_node_takes_what_tolerates_it(self) -> None:
        toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
        asking = pod(tolerations=[toleration])
        assert choose_node(asking, [node("n", unschedulable=True)], Ledger()).node == "n"


class TestAffinity:
    @pytest.mark.parametrize(
        ("expression", "want"),
        [
            ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
            ({"key": "zone", "operator": "In", "values": ["c"]}, False),
            ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
            ({"key": "rack", "operator": "NotIn", "values": ["1"]}, True),
            ({"key": "zone", "operator": "Exists"}, True),
            ({"key": "rack", "operator": "Exists"}, False),
            ({"key": "zone", "operator": "DoesNotExist"}, False),
            ({"key": "rack", "operator": "DoesNotExist"}, True),
            ({"key": "size", "operator": "Gt", "values": ["3"]}, True),
            ({"key": "size", "operator": "Gt", "values": ["4"]}, False),
            ({"key": "size", "operator": "Lt", "values": ["5"]}, True),
            ({"key": "zone", "operator": "Lt", "values": ["5"]}, False),
        ],
    )
    def test_an_expression(self, expression: dict[str, Any], want: bool) -> None:
        where = node("n", labels={"zone": "a", "size": "4"})
        assert matches_node(pod(affinity=affinity(expression)), where) == want

    def test_all_expressions_of_one_term_must_hold(self) -> None:
        both = affinity(
            {"key": "zone", "operator": "Exists"}, {"key": "rack", "operator": "Exists"}
        )
        assert not matches_node(pod(affinity=both), node("n", labels={"zone": "a"}))

    def test_one_term_is_enough_and_an_empty_one_matches_nothing(self) -> None:
        rule = affinity({"key": "zone", "operator": "Exists"})
        terms = rule["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        terms["nodeSelectorTerms"].insert(0, {})
        assert matches_node(pod(affinity=rule), node("n", labels={"zone": "a"}))
        terms["nodeSelectorTerms"].pop()
        assert not matches_node(pod(affinity=rule), node("n", labels={"zone": "a"}))

    def test_a_node_can_be_named(self) -> None:
        fields = [{"key": "metadata.name", "operator": "In", "values": ["n"]}]
        rule = affinity(matchFields=fields)
        assert matches_node(pod(affinity=rule), node("n"))
        assert not matches_node(pod(affinity=rule), node("m"))

    @pytest.mark.parametrize(
        ("toleration", "want"),
        [
            ({"operator": "Exists"}, True),
            ({"key": "ipu", "operator": "Exists"}, True),
            ({"key": "ipu", "value": "only"}, True),
            ({"key": "ipu", "value": "other"}, False),
            ({"key": "gpu", "operator": "Exists"}, False),
            ({"key": "ipu", "operator": "Exists", "effect": "NoExecute"}, False),
            ({"value": "only"}, False),
        ],
    )
    def test_a_toleration(self, toleration: dict[str, str], want: bool) -> None:
        taint = {"key": "ipu", "value": "only", "effect": "NoSchedule"}
        assert tolerates(toleration, taint) == want


class TestRequests:
    def test_init_containers_count_by_the_largest_and_overhead_is_added(self) -> None:
        def one(name: str, cpu: str) -> Any:
            return {"name": name, "resources": {"requests": {"cpu": cpu}}}

        asking = pod(
            containers=[one("a", "500m"), one("b", "1")],
            initContainers=[one("i", "2"), one("j", "1")],
            overhead={"cpu": "250m"},
        )
        assert pod_request(asking) == {"cpu": 2250, "pods": 1000}

    def test_a_forgotten_pod_frees_what_it_had(self) -> None:
        ledger = Ledger.of([placed("x", "n", requests={"cpu": "3"})])
        assert ledger.used("n")["cpu"] == 3000
        ledger.forget("uid-x")
        ledger.forget("uid-x")
        assert ledger.used("n")["cpu"] == 0

    def test_a_pod_is_counted_once_however_often_it_is_seen(self) -> None:
        seen = placed("x", "n", requests={"cpu": "1"})
        ledger = Ledger.of([seen, seen])
        ledger.assume(seen, "n")
        assert ledger.used("n") == {"cpu": 1000, "pods": 1000}

    def test_an_assumption_gives_way_to_the_binding_that_is_seen(self) -> None:
        ledger = Ledger()
        ledger.assume(pod("x"), "n1")
        ledger.observe(pod("x"))
        assert ledger.has("uid-x")
        ledger.observe(placed("x", "n2"))
        assert ledger.used("n1")["pods"] == 0
        assert ledger.used("n2")["pods"] == 1000

    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.booleans()), max_size=60))
    def test_the_ledger_always_equals_a_fresh_count(
        self, changes: list[tuple[int, int, bool]]
    ) -> None:
        ledger, world = Ledger(), {}
        for number, on, gone in changes:
            seen = placed(f"p{number}", f"n{on}", requests={"cpu": f"{number}"})
            if gone:
                world.pop(number, None)
                ledger.forget(seen["metadata"]["uid"])
            else:
                world[number] = seen
                ledger.observe(seen)
        fresh = Ledger.of(world.values())
        for on in range(4):
            assert +ledger.used(f"n{on}") == +fresh.used(f"n{on}")


class TestClaims:
    def test_claims_are_found_missing_or_unbound(self) -> None:
        asking = pod(volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "nfs"}}])
        bound, unbound = {"status": {"phase": "Bound"}}, {"status": {"phase": "Pending"}}
        assert judge_claims(asking, {}) == 'persistentvolumeclaim "nfs" not found'
        assert judge_claims(asking, {"nfs": bound}) == ""
        problem = judge_claims(asking, {"nfs": unbound})
        placement = choose_node(asking, [node("a"), node("b")], Ledger(), problem)
        assert placement.message == (
            "0/2 nodes are available: 2 pod has unbound immediate PersistentVolumeClaims."
        )


@pytest.mark.parametrize(
    ("name", "change", "want"),
    [
        ("a new pod", {}, True),
        ("one with a node", {"spec": {"nodeName": "n"}}, False),
        ("one being deleted", {"metadata": {"deletionTimestamp": "2026-03-01T12:00:00Z"}}, False),
        ("one of another scheduler", {"spec": {"schedulerName": "volcano"}}, False),
        ("one that is held back", {"spec": {"schedulingGates": [{"name": "quota"}]}}, False),
        ("one that failed", {"status": {"phase": "Failed"}}, False),
    ],
)
def test_which_pods_need_a_node(name: str, change: dict[str, Any], want: bool) -> None:
    asking = pod()
    for part, values in change.items():
        asking[part] |= values
    assert needs_node(asking, "default-scheduler") == want, name
