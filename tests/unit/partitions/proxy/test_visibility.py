"""The nodes that advertise IPUs, and their numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from partitions.proxy.nodes.visibility import (
    LABEL_FREE,
    LABEL_TOTAL,
    MARK_CAPACITY,
    MARK_OWNER,
    RESOURCE,
    Count,
    ShownNode,
    nodes_with,
    plan_visibility,
)

if TYPE_CHECKING:
    from partitions.proxy.nodes.visibility import NodeChange

OWNER = "ipuhub-system/ipu-partitions-tracker"
V1, V2 = Count("vipu-ctrl=v1", 32, 28), Count("vipu-ctrl=v2", 16, 16)
MASTER = "node-role.kubernetes.io/control-plane"


def node(name: str, controller: str = "v1", **given: Any) -> ShownNode:
    labels = {"vipu-ctrl": controller, **given.pop("labels", {})}
    return ShownNode(name, labels, **given)


def merged(present: Any, patch: Any) -> dict[str, str]:
    both = {**present, **(patch or {})}
    return {key: value for key, value in both.items() if value is not None}


def applied(before: ShownNode, change: NodeChange) -> ShownNode:
    metadata, status = change.metadata.get("metadata", {}), change.status.get("status", {})

    def amount(path: str, present: str) -> str:
        return (status[path][RESOURCE] or "") if path in status else present

    return replace(
        before,
        labels=merged(before.labels, metadata.get("labels")),
        marks=merged(before.marks, metadata.get("annotations")),
        capacity=amount("capacity", before.capacity),
        allocatable=amount("allocatable", before.allocatable),
    )


def settle(
    nodes: list[ShownNode], *counts: Count, owner: str = OWNER, on_masters: bool = False
) -> dict[str, ShownNode]:
    """Return the nodes after the changes; a second look changes nothing."""
    changes = plan_visibility(nodes, counts, owner, on_masters=on_masters)
    by_node = {change.node: change for change in changes}
    after = [applied(n, by_node[n.name]) if n.name in by_node else n for n in nodes]
    assert plan_visibility(after, counts, owner, on_masters=on_masters) == []
    return {n.name: n for n in after}


def capacities(nodes: dict[str, ShownNode]) -> dict[str, str]:
    return {name: n.capacity for name, n in nodes.items() if n.capacity}


def test_one_node_of_each_controller_has_the_capacity_and_all_have_labels() -> None:
    after = settle([node("b"), node("a"), node("c", "v2"), ShownNode("bare")], V1, V2)
    assert capacities(after) == {"a": "32", "c": "16"}
    assert after["a"].allocatable == "32"
    for name in ("a", "b"):
        assert (after[name].labels[LABEL_TOTAL], after[name].labels[LABEL_FREE]) == ("32", "28")
    assert after["bare"] == ShownNode("bare")


def test_controllers_of_one_node_add_up() -> None:
    both = node("a", labels={"rack": "1"})
    after = settle([both, node("b")], V1, Count("rack=1", 8, 4))
    assert capacities(after) == {"a": "40"}
    assert (after["a"].labels[LABEL_TOTAL], after["b"].labels[LABEL_TOTAL]) == ("40", "32")


def test_masters_show_nothing_unless_asked() -> None:
    nodes = [node("a", labels={MASTER: ""}), node("b")]
    assert capacities(settle(nodes, V1)) == {"b": "32"}
    assert settle(nodes, V1)["a"] == nodes[0]
    settled = settle(nodes, V1, on_masters=True)
    assert capacities(settled) == {"a": "32"}
    # No longer asked: it goes.
    assert settle([*settled.values()], V1)["a"] == nodes[0]


def test_what_a_kubelet_zeroed_is_written_again() -> None:
    after = settle([node("a")], V1)
    for capacity, allocatable in (("0", "0"), ("", ""), ("32", "0"), ("0", "32")):
        reset = replace(after["a"], capacity=capacity, allocatable=allocatable)
        assert settle([reset], V1) == after


def test_the_capacity_stays_where_it_is_while_it_can() -> None:
    after = settle([node("b"), node("c")], V1)
    with_new = settle([node("a"), *after.values()], V1)
    assert capacities(with_new) == {"b": "32"}
    broken = {**with_new, "b": replace(with_new["b"], is_usable=False)}
    moved = settle([*broken.values()], V1)
    assert capacities(moved) == {"a": "32"}
    assert MARK_CAPACITY not in moved["b"].marks
    # Without any node that takes pods it stays: nothing is gained by a move.
    alone = settle([replace(after["b"], is_usable=False)], V1)
    assert capacities(alone) == {"b": "32"}


def test_a_silent_controller_has_what_it_had() -> None:
    after = settle([node("a"), node("b")], V1)
    nodes = [*after.values()]
    silent = replace(V1, total=None, free=None)
    assert plan_visibility(nodes, [silent], OWNER, on_masters=False) == []


def test_what_nobody_shows_any_more_is_taken_away() -> None:
    bare = [node("a"), node("b")]
    after = settle(bare, V1)
    assert [*settle([*after.values()]).values()] == bare
    # A node that lost the label, too.
    unlabelled = replace(after["a"], labels={LABEL_TOTAL: "32", LABEL_FREE: "28"})
    moved = settle([unlabelled, after["b"]], V1)
    assert (moved["a"], capacities(moved)) == (ShownNode("a"), {"b": "32"})


def test_numbers_of_a_device_plugin_and_of_another_installation_stay() -> None:
    plugin = node("a", capacity="4", allocatable="4")
    after = settle([plugin, node("b")], V1)
    assert (after["a"].capacity, after["b"].capacity) == ("4", "32")
    assert [*settle([*after.values()]).values()] == [plugin, node("b")]
    theirs = [*settle([node("c")], V1, owner="other/tracker").values()]
    assert plan_visibility(theirs, [V1], OWNER, on_masters=False) == []
    assert plan_visibility(theirs, [], OWNER, on_masters=True) == []


def test_a_zero_that_a_kubelet_writes_after_the_number_went_is_taken_away() -> None:
    late = node("a", is_usable=False, capacity="0", allocatable="0", marks={MARK_OWNER: OWNER})
    after = settle([late, node("b")], V1)
    assert (after["a"].capacity, after["a"].allocatable, after["b"].capacity) == ("", "", "32")


def test_a_number_is_never_without_its_mark() -> None:
    (show,) = plan_visibility([node("a")], [V1], OWNER, on_masters=False)
    assert [subresource for subresource, _ in show.patches] == [None, "status"]
    (hide,) = plan_visibility([*settle([node("a")], V1).values()], [], OWNER, on_masters=False)
    assert [subresource for subresource, _ in hide.patches] == ["status", None]


NODES = st.lists(
    st.builds(
        ShownNode,
        name=st.sampled_from("abcde"),
        labels=st.fixed_dictionaries(
            {},
            optional={
                "vipu-ctrl": st.sampled_from(["v1", "v2"]),
                "rack": st.just("1"),
                MASTER: st.just(""),
            },
        ),
        marks=st.fixed_dictionaries(
            {},
            optional={
                MARK_OWNER: st.just(OWNER),
                MARK_CAPACITY: st.sampled_from(["vipu-ctrl=v1", "rack=1", ""]),
            },
        ).filter(lambda marks: MARK_CAPACITY not in marks or MARK_OWNER in marks),
        capacity=st.sampled_from(["", "0", "8"]),
        is_usable=st.booleans(),
    ),
    unique_by=lambda each: each.name,
)


@given(NODES, st.booleans())
def test_a_sum_over_the_nodes_counts_each_controller_once(
    nodes: list[ShownNode], on_masters: bool
) -> None:
    counts = [V1, V2, Count("rack=1", 8, 0)]
    after = settle(nodes, *counts, on_masters=on_masters)
    able = [n for n in nodes if not n.has_plugin and (on_masters or not n.is_master)]
    want = sum(c.total or 0 for c in counts if nodes_with(c.label, able))
    ours = [n for n in after.values() if MARK_CAPACITY in n.marks]
    assert sum(int(n.capacity) for n in ours) == want
    assert {*settle([*after.values()], owner=OWNER)} == {n.name for n in nodes}
    left = settle([*after.values()]).values()
    assert not any(n.marks or LABEL_TOTAL in n.labels for n in left)
