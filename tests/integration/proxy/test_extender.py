"""The proxy's answers to kube-scheduler, over sockets."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from ipuhub.kube.resources import NODES as KUBE_NODES
from ipuhub.process.connections import CountedSite
from ipuhub.process.health import Health, build_runner
from partitions.proxy.app import Access, Parts, build_app
from partitions.proxy.metrics import EXTENDED
from partitions.proxy.nodes.extender import MAX_QUESTION_BYTES, Extender, allow_node_lists
from partitions.proxy.nodes.informer import Node
from partitions.proxy.process import running
from tests.fakes.proxylab import JOB, try_ensure
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import FakeReviews, Site, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fakes.proxylab import Lab
    from tests.integration.proxy.conftest import World

NODES = {
    "near": Node("near", {"vipu-ctrl": "v1"}),
    "v1": Node("v1", {"vipu-ctrl": "v1"}),
    "far": Node("far", {"vipu-ctrl": "v2"}),
}
LARGE = "x" * 200_000  # beyond what any other page of the proxy takes


@asynccontextmanager
async def serving(world: World, standby: str = "", deadline: float = 5.0) -> AsyncIterator[Site]:
    proxy = await world.start()
    reviews, health = FakeReviews(), Health()
    parts = Parts(
        proxy.store,
        proxy.fleet,
        proxy.service,
        proxy.sweep,
        Access(reviews),
        health,
        lambda: standby,
    )
    routes = Extender(proxy.store, NODES.get, deadline).routes()
    runner = build_runner(build_app(parts, routes, [allow_node_lists]))
    await runner.setup()
    await CountedSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with aiohttp.ClientSession() as http:
        yield Site(world, proxy, reviews, health, url, http)
    await runner.cleanup()


def pod(name: str = "job", **spec: Any) -> dict[str, Any]:
    labels = {"graphcore.ai/ipujob-uid": f"uid-{name}", "graphcore.ai/instance": "0"}
    return {"metadata": {"name": f"{name}-worker-0", "labels": labels}, "spec": spec}


def asked_of(verb: str, who: str) -> float:
    return float(EXTENDED.labels(verb, who)._value.get())


async def ask(site: Site, verb: str, **question: Any) -> Any:
    body = {"Pod": pod(), "Nodes": None, "NodeNames": None} | question
    status, text = await site.send("POST", f"/scheduler/{verb}", json=body)
    assert status == 200, text
    return json.loads(text)


async def test_names_of_nodes_pass_by_the_labels_that_the_proxy_knows(world: World) -> None:
    async with serving(world) as site:
        await site.proxy.service.ensure(request())
        before = asked_of("filter", "job")
        answer = await ask(site, "filter", NodeNames=["near", "far", "v1", "new"])
        assert answer["NodeNames"] == ["near", "v1", "new"]
        assert [*answer["FailedAndUnresolvableNodes"]] == ["far"]
        assert asked_of("filter", "job") == before + 1
        ranks = await ask(site, "prioritize", NodeNames=["near", "far", "v1", "new"])
        assert {row["Host"]: row["Score"] for row in ranks} == {
            "near": 5,
            "far": 0,
            "v1": 10,
            "new": 0,
        }


async def test_whole_nodes_pass_by_their_own_labels_however_long(world: World) -> None:
    async with serving(world) as site:
        await site.proxy.service.ensure(request())
        # As the question says, not as the proxy remembers: "far" has been labelled meanwhile.
        nodes = [
            {
                "metadata": {
                    "name": "far",
                    "labels": {"vipu-ctrl": "v1"},
                    "annotations": {"a": LARGE},
                }
            },
            {"metadata": {"name": "near"}},
        ]
        answer = await ask(site, "filter", Nodes={"items": nodes})
        assert answer["Nodes"]["items"] == nodes[:1]
        assert answer["NodeNames"] is None


@pytest.mark.parametrize("name", ["stranger", "gone"])
async def test_a_pod_whose_ipus_are_unknown_passes_everywhere(world: World, name: str) -> None:
    async with serving(world) as site:
        await site.proxy.service.ensure(request("gone"))
        await site.proxy.service.release("uid-gone", 0)
        body = {"Pod": pod(name), "NodeNames": ["near", "far"]}
        assert (await ask(site, "filter", **body))["NodeNames"] == ["near", "far"]
        ranks = await ask(site, "prioritize", **body)
        assert [row["Score"] for row in ranks] == [0, 0]


async def test_a_pod_that_is_no_jobs_passes_unchanged(world: World) -> None:
    async with serving(world) as site:
        before = asked_of("filter", "other")
        other = {"metadata": {"name": "web"}, "spec": {"containers": []}}
        answer = await ask(site, "filter", Pod=other, NodeNames=["near", "far"])
        assert answer["NodeNames"] == ["near", "far"]
        assert asked_of("filter", "other") == before + 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"Pod": 1, "NodeNames": []}',
        b'{"Pod": {"metadata": {}}, "NodeNames": {"a": 1}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_garbage_is_400_with_a_sentence(world: World, verb: str, body: bytes) -> None:
    async with serving(world) as site:
        status, text = await site.send(
            "POST",
            f"/scheduler/{verb}",
            data=body,
            headers={"Content-Type": "application/json"},
        )
        assert status == 400
        assert json.loads(text)["detail"]


async def test_too_large_a_question_says_how_large_one_may_be(world: World) -> None:
    async with serving(world) as site:
        body = {"Pod": pod(), "NodeNames": ["x" * MAX_QUESTION_BYTES]}
        status, text = await site.send("POST", "/scheduler/filter", json=body)
        assert status == 400
        assert str(MAX_QUESTION_BYTES) in json.loads(text)["detail"]
        # The other pages keep their own limit.
        status, text = await site.send("POST", "/query", json={"size": 2, "more": LARGE})
        assert status == 400
        assert "65536" in json.loads(text)["detail"]


async def test_a_question_that_does_not_come_is_answered_in_time(world: World) -> None:
    async with serving(world, deadline=0.05) as site:

        async def forever() -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.Event().wait()

        status, text = await site.send(
            "POST",
            "/scheduler/filter",
            data=forever(),
            headers={"Content-Type": "application/json"},
        )
        assert status == 503
        assert "did not arrive" in json.loads(text)["detail"]


async def test_a_replica_that_stands_by_answers_503(world: World) -> None:
    async with serving(world, standby="another replica leads") as site:
        body = {"Pod": pod(), "NodeNames": ["near"]}
        for verb in ("filter", "prioritize"):
            status, _ = await site.send("POST", f"/scheduler/{verb}", json=body)
            assert status == 503


async def test_only_post_is_answered(world: World) -> None:
    async with serving(world) as site:
        assert (await site.get("/scheduler/filter"))[0] == 405
        assert (await site.get("/scheduler/bind"))[0] == 404


async def test_a_whole_proxy_knows_nodes_and_partitions(lab: Lab) -> None:
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}}
    try:
        await lab.client.create(KUBE_NODES, bare)
        async with running(lab.options) as proxy, lab.operator(proxy) as operator:
            await eventually(lambda: proxy.nodes.find("bare"))
            await eventually(lambda: try_ensure(operator))
            labels = {"graphcore.ai/ipujob-uid": JOB["uid"], "graphcore.ai/instance": "0"}
            question = {"Pod": {"metadata": {"labels": labels}}, "NodeNames": ["bare", "proxytest"]}
            url = f"http://127.0.0.1:{proxy.port}/scheduler/filter"
            async with aiohttp.ClientSession() as http, http.post(url, json=question) as answer:
                assert answer.status == 200
                found = await answer.json()
            assert found["NodeNames"] == ["proxytest"]
            assert [*found["FailedAndUnresolvableNodes"]] == ["bare"]
            await operator.release(JOB["uid"], 0)
    finally:
        await lab.client.delete(KUBE_NODES, "bare")
