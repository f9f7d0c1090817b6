"""The list of V-IPU controllers, and which of them takes a partition."""

from __future__ import annotations

import pytest

from ipuhub.partition import Reason
from partitions.errors import InvalidControllers
from partitions.proxy.controllers import (
    ControllerSpec,
    ControllerView,
    PartitionSettings,
    PlacementRule,
    order_candidates,
    parse_controllers,
)
from partitions.proxy.shortage import explain_shortage
from partitions.proxy.tracker import MAX_CONTROLLER_LENGTH
from partitions.vipu.topology import IpuId
from partitions.vipu.types import ReadyState, VipuPartition
from tests.builders.fleets import fleet_of_machines


def view(address: str, machines: int = 8, used: int = 0, **given: object) -> ControllerView:
    ipus = tuple(IpuId(0, position) for position in range(used))
    partitions = (VipuPartition("p", used, ipus, ReadyState.ACTIVE),) if used else ()
    return ControllerView(
        ControllerSpec(address, "a=b"),
        fleet_of_machines(machines, allocation="x"),
        partitions,
        **given,  # type: ignore[arg-type]
    )


def silent(address: str) -> ControllerView:
    return ControllerView(ControllerSpec(address, "a=b"), problem=f"{address}: refused")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", []),
        (" , ,\n\n# nothing yet\n", []),
        ("pod001:8090:ipunode=node1", [("pod001:8090", "ipunode=node1")]),
        (
            "pod001:8090:ipunode=node1,pod002:8091:ipunode=node2",
            [("pod001:8090", "ipunode=node1"), ("pod002:8091", "ipunode=node2")],
        ),
        ("a:1:k=v\nb:2:k=w # spare\n", [("a:1", "k=v"), ("b:2", "k=w")]),
        (" a:1:k=v , b:2:k=w ", [("a:1", "k=v"), ("b:2", "k=w")]),
        ("10.0.0.1:8090:graphcore.ai/pod=x_1", [("10.0.0.1:8090", "graphcore.ai/pod=x_1")]),
        ("[fd00::1]:8090:k=v", [("[fd00::1]:8090", "k=v")]),
        ("a:08090:k=v", [("a:8090", "k=v")]),
        ("a:1:k=", [("a:1", "k=")]),
    ],
)
def test_lists_that_can_be_read(text: str, want: list[tuple[str, str]]) -> None:
    assert [(spec.address, spec.label) for spec in parse_controllers(text)] == want


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pod001", "write host:port:label=value"),
        ("pod001:8090", "write host:port:label=value"),
        (":8090:k=v", "'' is not a host name"),
        ("bad_host:8090:k=v", "'bad_host' is not a host name"),
        ("pod001:http:k=v", "'http' is not a port"),
        ("pod001:0:k=v", "'0' is not a port"),
        ("pod001:65536:k=v", "'65536' is not a port"),
        ("pod001:²:k=v", "is not a port"),
        ("pod001:8090:novalue", "is not a node label"),
        ("pod001:8090:k=v=w", "is not a node label"),
        ("pod001:8090:-k=v", "is not a node label"),
        ("pod001:8090:k=" + "v" * 64, "is not a node label"),
        ("a:1:k=v,a:1:k=w", "a:1 is in the list twice"),
        ("h" * 100 + ":8090:k=" + "v" * 30, f"at most {MAX_CONTROLLER_LENGTH} characters"),
        ("a:1:k=v;colour=red", "'colour=red' is not an option; valid options: cluster="),
        ("a:1:k=v;cluster", "'cluster' is not an option"),
        ("a:1:k=v;gcds=two", "gcds=two: write a whole number"),
        ("a:1:k=v;reconfigurable=maybe", "write on or off"),
        ("good:1:k=v,bad", "'bad'"),
    ],
)
def test_lists_that_cannot_be_read_say_what_to_write(text: str, says: str) -> None:
    with pytest.raises(InvalidControllers) as refused:
        parse_controllers(text)
    assert says in str(refused.value)


def test_settings_are_the_defaults_unless_a_controller_has_its_own() -> None:
    defaults = PartitionSettings(
        cluster_id="c", allocation_id="a", num_gcds=2, num_replicas=4, reconfigurable=True
    )
    plain, own = parse_controllers(
        "a:1:k=v,b:2:k=v;cluster=c2;allocation=;gcds=1;replicas=0;reconfigurable=off", defaults
    )
    assert plain.settings == defaults
    assert own.settings == PartitionSettings(
        cluster_id="c2", allocation_id="", num_gcds=1, num_replicas=0, reconfigurable=False
    )


def test_first_fit_keeps_the_order_of_the_list_and_leaves_out_what_is_full() -> None:
    views = [view("a", used=32), view("b"), silent("c"), view("d", machines=1)]
    found = order_candidates(views, 4, PlacementRule.FIRST_FIT)
    assert [one.spec.address for one in found] == ["b", "d"]


def test_best_fit_takes_the_smallest_block_and_then_the_order_of_the_list() -> None:
    views = [view("a"), view("b", machines=2), view("c", machines=2), view("d", used=4)]
    found = order_candidates(views, 4, PlacementRule.BEST_FIT)
    assert [one.spec.address for one in found] == ["d", "b", "c", "a"]


def test_a_controller_without_a_node_takes_nothing() -> None:
    assert order_candidates([view("a", has_node=False)], 1, PlacementRule.FIRST_FIT) == []


@pytest.mark.parametrize(
    ("views", "size", "reason", "free", "says"),
    [
        ([], 4, Reason.NO_CONTROLLERS, 0, "add a controller as host:port:label=value"),
        ([view("a", has_node=False)], 4, Reason.NO_LABELLED_NODE, 0, "label a node with a=b"),
        ([silent("a")], 4, Reason.CONTROLLER_UNAVAILABLE, 0, "answers: a"),
        ([silent("a"), view("b", has_node=False)], 4, Reason.CONTROLLER_UNAVAILABLE, 0, "a"),
        (
            [view("a", used=30)],
            4,
            Reason.NO_CAPACITY,
            2,
            "4 IPUs in one block are needed and not free now; blocks have up to 32",
        ),
        ([view("a", used=30), silent("b")], 4, Reason.NO_CAPACITY, 2, "; not answering: b"),
        ([view("a", used=2)], 32, Reason.NO_CAPACITY, 30, "not free now; blocks have up to 32"),
        ([view("a", used=4)], 16, Reason.NO_CAPACITY, 28, "not free now"),
        ([view("a", used=20)], 8, Reason.NO_CAPACITY, 12, "8 IPUs in one block are needed"),
        ([view("a")], 64, Reason.NO_CAPACITY, 32, "no V-IPU controller has 64"),
        (
            [view("a", machines=2), view("b", has_node=False)],
            32,
            Reason.NO_CAPACITY,
            8,
            ", and no node has the label of a controller with such a block: label a node with a=b",
        ),
        (
            [view("a", machines=2), view("b", has_node=False)],
            64,
            Reason.NO_CAPACITY,
            8,
            "no V-IPU controller has 64 IPUs in one block, the largest has 32",
        ),
        (
            [silent("a"), view("b"), view("c", has_node=False)],
            32,
            Reason.NO_CAPACITY,
            32,
            "not free",
        ),
    ],
)
def test_a_shortage_says_why_and_counts_what_is_free(
    views: list[ControllerView], size: int, reason: Reason, free: int, says: str
) -> None:
    shortage = explain_shortage(views, size)
    assert (shortage.reason, shortage.free) == (reason, free)
    assert says in shortage.message


def test_a_view_counts_its_cluster_and_allocation_only() -> None:
    spec = ControllerSpec("a", "k=v", PartitionSettings(allocation_id="other"))
    other = ControllerView(spec, fleet_of_machines(8, allocation="x"))
    assert (other.total, other.free, other.fitting(1)) == (0, 0, 0)
    assert (silent("a").total, silent("a").free, silent("a").fitting(1)) == (0, 0, 0)
    assert silent("a").smallest_fitting_block(1) == 0
    assert view("a", used=32).smallest_fitting_block(1) == 0


def test_faulty_counts_the_ipus_of_partitions_in_error_once_and_only_ours() -> None:
    spec = ControllerSpec("v1", "a=b", PartitionSettings(allocation_id="x"))
    partitions = (
        VipuPartition("good", 4, tuple(IpuId(0, n) for n in range(4)), ReadyState.ACTIVE),
        VipuPartition("bad", 4, tuple(IpuId(0, n) for n in range(4, 8)), ReadyState.ERROR),
        VipuPartition("far", 2, (IpuId(7, 0), IpuId(7, 1)), ReadyState.ERROR),
    )
    found = ControllerView(spec, fleet_of_machines(8, allocation="x"), partitions)
    assert (found.total, found.free, found.faulty) == (32, 24, 4)
    assert silent("v2").faulty == 0
