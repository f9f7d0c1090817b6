"""Lists: pages, consistency, and what a resource version means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.devcluster.conformance.kinds import config_map, maps, widget, widgets_path

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.kinds import Json
    from tests.devcluster.conformance.kubectl import Kubectl
    from tests.devcluster.conformance.servers import Server


def names(found: Json) -> list[str]:
    return [item["metadata"]["name"] for item in found["items"]]


async def make(api: Api, namespace: str, count: int) -> None:
    for number in range(count):
        body = config_map(f"n{number}", labels={"own": "yes"})
        (await api.create(maps(namespace), body)).ok(201)


async def test_pages_are_disjoint_and_complete(api: Api, namespace: str) -> None:
    await make(api, namespace, 7)
    seen: list[str] = []
    token, sizes = "", []
    while True:
        params = {"limit": 3, "labelSelector": "own"} | ({"continue": token} if token else {})
        page = (await api.get(maps(namespace), **params)).ok(200)
        seen += names(page)
        sizes.append(len(page["items"]))
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert seen == [f"n{number}" for number in range(7)]
    assert sizes == [3, 3, 1]


async def test_remaining_items_are_counted_without_a_selector(
    api: Api, namespace: str, widgets: str
) -> None:
    path = widgets_path(widgets, namespace)
    for number in range(5):
        (await api.create(path, widget(widgets, f"n{number}"))).ok(201)
    page = (await api.get(path, limit=2)).ok(200)
    assert page["metadata"]["remainingItemCount"] == 3
    rest = (await api.get(path, limit=10, **{"continue": page["metadata"]["continue"]})).ok(200)
    assert names(rest) == ["n2", "n3", "n4"]
    assert "continue" not in rest["metadata"] or not rest["metadata"]["continue"]


async def test_all_pages_show_one_moment(api: Api, namespace: str, widgets: str) -> None:
    path = widgets_path(widgets, namespace)
    for number in range(4):
        (await api.create(path, widget(widgets, f"n{number}", count=1))).ok(201)
    page = (await api.get(path, limit=2)).ok(200)
    (await api.delete(f"{path}/n2")).ok(200)
    (await api.create(path, widget(widgets, "n5"))).ok(201)
    (await api.patch(f"{path}/n3", {"spec": {"count": 9}})).ok(200)
    rest = (await api.get(path, limit=10, **{"continue": page["metadata"]["continue"]})).ok(200)
    assert names(rest) == ["n2", "n3"]
    assert rest["items"][1]["spec"]["count"] == 1
    assert rest["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]


@pytest.mark.parametrize("token", ["nonsense", "e30="])
async def test_a_bad_continue_token_is_400(api: Api, namespace: str, token: str) -> None:
    answer = await api.get(maps(namespace), limit=1, **{"continue": token})
    status = answer.refused(400, "BadRequest")
    assert "continue" in status["message"]


# Kubernetes 1.37 answers a token of a compacted version, too: from snapshots of its watch cache.
@pytest.mark.embedded_only
async def test_an_expired_continue_token_is_410_with_a_way_on(
    api: Api, namespace: str, server: Server
) -> None:
    await make(api, namespace, 4)
    page = (await api.get(maps(namespace), limit=2)).ok(200)
    await make_history_expire(api, namespace, server)
    token = page["metadata"]["continue"]
    answer = await api.get(maps(namespace), limit=2, **{"continue": token})
    status = answer.refused(410, "Expired")
    assert "too old" in status["message"]
    # The answer carries a token that goes on from there, without the one moment.
    again = status["metadata"]["continue"]
    (await api.get(maps(namespace), limit=2, **{"continue": again})).ok(200)


async def make_history_expire(api: Api, namespace: str, server: Server) -> None:
    """Make every version of now too old; a write after it, since the last one always stays."""
    assert server.expire_history is not None
    (await api.create(maps(namespace), config_map("later"))).ok(201)
    server.expire_history()


@pytest.mark.parametrize("version", ["", "0", "exact"])
async def test_a_list_at_a_version_is_not_older(api: Api, namespace: str, version: str) -> None:
    made = (await api.create(maps(namespace), config_map("a"))).ok(201)
    own = made["metadata"]["resourceVersion"]
    params = {"resourceVersion": own if version == "exact" else version} if version else {}
    found = (await api.get(maps(namespace), **params)).ok(200)
    if version != "0":
        assert "a" in names(found)
        assert int(found["metadata"]["resourceVersion"]) >= int(own)
    assert int(found["metadata"]["resourceVersion"]) > 0


async def test_a_version_of_the_future_is_refused(api: Api, namespace: str) -> None:
    found = (await api.get(maps(namespace))).ok(200)
    future = int(found["metadata"]["resourceVersion"]) + 1_000_000
    answer = await api.get(maps(namespace), resourceVersion=future)
    status = answer.refused(504, "Timeout")
    assert "Too large resource version" in status["message"]


async def test_a_version_that_is_no_number_is_refused(api: Api, namespace: str) -> None:
    answer = await api.get(maps(namespace), resourceVersion="abc")
    assert answer.status in {400, 422, 500}, answer.body


async def test_versions_rise_with_every_write_over_all_kinds(
    api: Api, namespace: str, widgets: str
) -> None:
    versions = []
    for number in range(3):
        made = (await api.create(maps(namespace), config_map(f"n{number}"))).ok(201)
        versions.append(int(made["metadata"]["resourceVersion"]))
        body = widget(widgets, f"n{number}")
        made = (await api.create(widgets_path(widgets, namespace), body)).ok(201)
        versions.append(int(made["metadata"]["resourceVersion"]))
    assert versions == sorted(set(versions))
    listed = (await api.get(maps(namespace))).ok(200)
    assert int(listed["metadata"]["resourceVersion"]) >= versions[-1]


async def test_names_are_listed_in_order_of_namespace_and_name(
    api: Api, namespace: str, widgets: str
) -> None:
    for name in ("b", "a-1", "a.1", "a"):
        (await api.create(widgets_path(widgets, namespace), widget(widgets, name))).ok(201)
    found = (await api.get(widgets_path(widgets, namespace))).ok(200)
    assert names(found) == ["a", "a-1", "a.1", "b"]


async def test_a_list_over_all_namespaces_finds_each(api: Api, namespace: str) -> None:
    (await api.create(maps(namespace), config_map("a", labels={"in": namespace}))).ok(201)
    found = (await api.get("/api/v1/configmaps", labelSelector=f"in={namespace}")).ok(200)
    assert [item["metadata"]["namespace"] for item in found["items"]] == [namespace]


def test_kubectl_reads_in_chunks(kubectl: Kubectl, namespace: str) -> None:
    items = [config_map(f"n{number}", labels={"own": "yes"}) for number in range(5)]
    body = {"apiVersion": "v1", "kind": "List", "items": items}
    kubectl.run("create", "-n", namespace, "-f", "-", stdin=body)
    output = kubectl.run("get", "cm", "-n", namespace, "-l", "own", "--chunk-size=2", "-o", "name")
    assert output.split() == [f"configmap/n{number}" for number in range(5)]
