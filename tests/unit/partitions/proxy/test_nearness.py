"""The nodes that kube-scheduler gets for a job's pod."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.ipujob import names
from partitions.errors import InvalidQuestion
from partitions.proxy.nodes import nearness
from partitions.proxy.nodes.nearness import Place, filter_nodes, rank_nodes, read_question

PLACE = Place("pod001:8090", "vipu-ctrl", "v1")
NEAR, FAR = {"vipu-ctrl": "v1"}, {"vipu-ctrl": "v2"}


def pod(uid: str = "uid-job", instance: str = "0", **spec: Any) -> dict[str, Any]:
    labels = {"graphcore.ai/ipujob-uid": uid, "graphcore.ai/instance": instance}
    return {"metadata": {"name": "job-worker-0", "labels": labels}, "spec": spec}


def node(name: str, labels: dict[str, str] | None = None, *addresses: str) -> dict[str, Any]:
    listed = [{"type": "InternalIP", "address": address} for address in addresses]
    return {"metadata": {"name": name, "labels": labels or {}}, "status": {"addresses": listed}}


def whole(*nodes: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"Pod": pod(**spec), "Nodes": {"items": [*nodes]}, "NodeNames": None}


def names_of(answer: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in answer["Nodes"]["items"]]


def test_the_labels_are_those_that_the_operator_writes() -> None:
    assert nearness.LABEL_JOB_UID == names.LABEL_JOB_UID
    assert nearness.LABEL_INSTANCE == names.LABEL_INSTANCE


def test_a_jobs_pod_passes_only_on_nodes_of_its_controller() -> None:
    body = whole(node("near", NEAR), node("far", FAR), node("bare"))
    answer = filter_nodes(read_question(body), PLACE)
    assert names_of(answer) == ["near"]
    assert answer["Nodes"]["items"][0] == body["Nodes"]["items"][0]
    assert answer["NodeNames"] is None
    assert answer["FailedNodes"] == {}
    assert answer["FailedAndUnresolvableNodes"].keys() == {"far", "bare"}
    assert "vipu-ctrl=v1" in answer["FailedAndUnresolvableNodes"]["far"]
    assert answer["Error"] == ""


def test_names_are_answered_with_names() -> None:
    body = {"Pod": pod(), "Nodes": None, "NodeNames": ["a", "b"]}
    answer = filter_nodes(read_question(body), PLACE)
    # Nodes of which only the name is known may have the label: the pod's selector judges them.
    assert (answer["NodeNames"], answer["Nodes"]) == (["a", "b"], None)


def test_a_pod_without_a_place_passes_unchanged() -> None:
    question = read_question(whole(node("a", NEAR), node("b")))
    answer = filter_nodes(question, None)
    assert (names_of(answer), answer["FailedAndUnresolvableNodes"]) == (["a", "b"], {})
    assert rank_nodes(question, None) == [{"Host": "a", "Score": 0}, {"Host": "b", "Score": 0}]


def test_a_selector_of_the_template_wins_over_the_controllers_label() -> None:
    body = whole(node("near", NEAR), node("far", FAR), nodeSelector=FAR)
    question = read_question(body)
    assert names_of(filter_nodes(question, PLACE)) == ["far"]
    assert rank_nodes(question, PLACE) == [
        {"Host": "near", "Score": 0},
        {"Host": "far", "Score": 5},
    ]


@pytest.mark.parametrize(
    ("controller", "host"),
    [
        ("pod001:8090", node("pod001", NEAR)),
        ("10.0.0.7:8090", node("other", NEAR, "10.0.0.7")),
        ("[fd00::7]:8090", node("other", NEAR, "fd00::7")),
    ],
)
def test_the_controllers_own_host_ranks_first(controller: str, host: dict[str, Any]) -> None:
    place = Place(controller, "vipu-ctrl", "v1")
    body = whole(node("labelled", NEAR, "10.0.0.8"), host, node("bare", {}, "10.0.0.9"))
    scores = {row["Host"]: row["Score"] for row in rank_nodes(read_question(body), place)}
    assert scores == {"labelled": 5, host["metadata"]["name"]: 10, "bare": 0}


@pytest.mark.parametrize(
    ("labels", "want_holder"),
    [
        ({"graphcore.ai/ipujob-uid": "u", "graphcore.ai/instance": "3"}, ("u", 3)),
        ({"graphcore.ai/ipujob-uid": "u"}, ("u", 0)),
        ({"graphcore.ai/ipujob-uid": "u", "graphcore.ai/instance": "x"}, None),
        ({"graphcore.ai/ipujob-uid": "u", "graphcore.ai/instance": "²"}, None),
        ({"graphcore.ai/ipujob-uid": "u", "graphcore.ai/instance": "9" * 5000}, None),
        ({"app": "web"}, None),
        (None, None),
    ],
)
def test_whose_pod_it_is(labels: dict[str, str] | None, want_holder: object) -> None:
    body = {"Pod": {"metadata": {"labels": labels}}, "NodeNames": []}
    assert read_question(body).holder == want_holder


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"Pod": None}, "Pod must be an object"),
        ({"Pod": []}, "Pod must be an object"),
        ({"Pod": {}}, "Pod.metadata must be an object"),
        ({"Pod": {"metadata": {"labels": {"a": 1}}}}, "Pod.metadata.labels must be a map"),
        ({"Pod": {"metadata": {}, "spec": [1]}}, "Pod.spec must be an object"),
        ({"Pod": {"metadata": {}, "spec": {"nodeSelector": [1]}}}, "nodeSelector"),
        ({"NodeNames": None}, "exactly one of Nodes and NodeNames"),
        ({"Nodes": {"items": []}}, "exactly one of Nodes and NodeNames"),
        ({"NodeNames": "n1"}, "NodeNames must be a list"),
        ({"NodeNames": [1]}, "NodeNames must be a list of names"),
        ({"NodeNames": None, "Nodes": []}, "Nodes must be an object"),
        ({"NodeNames": None, "Nodes": {"items": {"a": 1}}}, "Nodes.items must be a list"),
        ({"NodeNames": None, "Nodes": {"items": [1]}}, "Nodes.items must be an object"),
        ({"NodeNames": None, "Nodes": {"items": [{}]}}, "Nodes.items.metadata"),
        ({"NodeNames": None, "Nodes": {"items": [{"metadata": {}}]}}, "a node's name"),
    ],
)
def test_a_question_that_makes_no_sense_names_its_field(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidQuestion, match=says):
        read_question({"Pod": pod(), "NodeNames": ["a"]} | change)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "status", "items", "labels", "name", "addresses"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["Pod", "Nodes", "NodeNames"]), ANYTHING))
def test_any_question_is_answered_or_refused(found: dict[str, Any]) -> None:
    try:
        question = read_question(found)
    except InvalidQuestion:
        return
    answer = filter_nodes(question, PLACE)
    passed = answer["NodeNames"] if question.nodes is None else names_of(answer)
    refused = answer["FailedAndUnresolvableNodes"]
    assert {*passed} | refused.keys() == {candidate.name for candidate in question.candidates}
    assert len(rank_nodes(question, PLACE)) == len(question.candidates)
