"""/v1 as the operator uses it, and error responses of every endpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from partitions.vipu.errors import NoAnswer
from tests.fakes.configmaps import unreachable
from tests.integration.proxy.conftest import lose_patience

if TYPE_CHECKING:
    from tests.integration.proxy.conftest import Site


# ---------------------------------------------------------------------- /v1


async def test_put_answers_200_when_active_and_202_while_it_waits(site: Site) -> None:
    status, text = await site.put()
    assert status == 200
    assert json.loads(text) == {
        "uid": "uid-job",
        "namespace": "default",
        "name": "job",
        "instance": 0,
        "attempt": 0,
        "id": "p-job-default-0",
        "size": 4,
        "phase": "active",
        "controller": "v1:8090",
        "nodeSelector": {"vipu-ctrl": "v1"},
        "reason": "",
        "message": "",
        "needed": None,
        "free": None,
        "reservedAt": "2026-11-21T08:00:00.000Z",
        "activeAt": "2026-11-21T08:00:00.000Z",
        "releasedAt": None,
        "key": "uid-job.0.1795248000000",
        "lostAt": None,
        "releaseError": "",
        "podKey": "",
    }
    status, text = await site.put("big", size=32)
    waiting = json.loads(text)
    assert status == 202
    assert (waiting["phase"], waiting["reason"]) == ("waiting", "NoCapacity")
    assert (waiting["needed"], waiting["free"]) == (32, 28)


async def test_put_answers_202_creating_when_it_takes_longer_than_the_answer(site: Site) -> None:
    site.world.vipu.polls = 10**6
    object.__setattr__(site.proxy.service._options, "answer_seconds", 0.3)
    status, text = await site.put()
    assert (status, json.loads(text)["phase"]) == (202, "creating")


async def test_put_of_a_stale_attempt_is_409(site: Site) -> None:
    await site.put(attempt=3)
    status, text = await site.put(attempt=2)
    assert (status, json.loads(text)["type"]) == (409, "urn:ipuhub:problem:stale-attempt")
    assert "attempt 3" in json.loads(text)["detail"]


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"size": 6}, 422, "4 or 8"),
        ({"size": 128}, 422, "at most 64"),
        ({"size": 0}, 400, "size must be a whole number from 1"),
        ({"size": True}, 400, "size"),
        ({"size": 2.0}, 400, "size"),
        ({"size": None}, 400, "size"),
        ({"attempt": -1}, 400, "attempt"),
        ({"attempt": "1"}, 400, "attempt"),
        ({"name": "Upper"}, 400, "name"),
        ({"name": "x" * 64}, 400, "63"),
        ({"namespace": ""}, 400, "namespace"),
        ({"namespace": None}, 400, "namespace"),
        ({"numGcds": -1}, 400, "numGcds"),
        ({"numReplicas": 2**40}, 400, "numReplicas"),
    ],
)
async def test_a_bad_put_is_refused_with_a_sentence_and_changes_nothing(
    site: Site, change: dict[str, Any], status: int, says: str
) -> None:
    body = {"namespace": "default", "name": "job", "size": 4, "attempt": 0, **change}
    answered, text = await site.send("PUT", "/v1/partitions/uid-job/0", user="operator", json=body)
    assert answered == status
    assert says in json.loads(text)["detail"]
    assert site.world.entries() == []


@pytest.mark.parametrize("path", ["a.b/0", "uid/x", "uid/-1", "uid/1234567", "uid/%C2%B2"])
async def test_a_path_that_names_no_holder_is_400(site: Site, path: str) -> None:
    status, text = await site.get(f"/v1/partitions/{path}", user="operator")
    assert status == 400
    assert json.loads(text)["detail"]


async def test_reset_release_and_get_of_one_partition(site: Site) -> None:
    await site.put()
    path = "/v1/partitions/uid-job/0"
    status, text = await site.send("POST", path + "/reset", user="operator", json={"attempt": 1})
    assert (status, json.loads(text)["attempt"]) == (200, 1)
    assert json.loads((await site.get(path, user="operator"))[1])["phase"] == "active"
    status, text = await site.send("DELETE", path, user="operator")
    assert (status, json.loads(text)["phase"]) == (200, "released")
    assert (await site.send("DELETE", path, user="operator"))[0] == 200
    status, _ = await site.send("POST", path + "/reset", user="operator", json={"attempt": 2})
    assert status == 404


async def test_nothing_known_is_404(site: Site) -> None:
    for method in ("GET", "DELETE"):
        status, text = await site.send(method, "/v1/partitions/nobody/0", user="operator")
        assert (status, json.loads(text)["type"]) == (404, "urn:ipuhub:problem:not-found")


async def test_delete_answers_202_while_the_controller_is_away(site: Site) -> None:
    await site.put()
    site.world.vipu.down = NoAnswer("refused")
    object.__setattr__(site.proxy.service._options, "answer_seconds", 0.01)
    status, text = await site.send("DELETE", "/v1/partitions/uid-job/0", user="operator")
    assert (status, json.loads(text)["phase"]) == (202, "releasing")


async def test_the_list_has_an_etag_that_changes_with_any_entry(site: Site) -> None:
    await site.put()
    url, headers = site.url + "/v1/partitions", {"Authorization": "Bearer operator"}
    async with site.http.get(url, headers=headers) as answer:
        assert [item["id"] for item in (await answer.json())["items"]] == ["p-job-default-0"]
        etag = answer.headers["ETag"]
    async with site.http.get(url, headers={**headers, "If-None-Match": etag}) as answer:
        assert (answer.status, await answer.text()) == (304, "")
        assert answer.headers["ETag"] == etag
    await site.put("other")
    async with site.http.get(url, headers={**headers, "If-None-Match": etag}) as answer:
        assert answer.status == 200
        assert len((await answer.json())["items"]) == 2


async def test_recorded_acknowledges_tombstones(site: Site) -> None:
    await site.put()
    await site.send("DELETE", "/v1/partitions/uid-job/0", user="operator")
    status, text = await site.send(
        "POST", "/v1/recorded", user="prober", json={"uids": ["uid-job", "unknown"]}
    )
    assert (status, json.loads(text)) == (200, {"acknowledged": 1})
    assert site.world.entry().recorded


@pytest.mark.parametrize("body", [{}, {"uids": "uid"}, {"uids": [1]}, {"uids": ["u"] * 10_001}])
async def test_recorded_refuses_what_is_no_list_of_names(site: Site, body: object) -> None:
    status, _ = await site.send("POST", "/v1/recorded", user="prober", json=body)
    assert status == 400


async def test_controllers_shows_who_answers_drains_and_holds_strangers(site: Site) -> None:
    await site.put()
    site.world.vipu.by_hand("a-persons", 2)
    await site.proxy.sweep.once()
    status, text = await site.get("/v1/controllers", user="operator")
    assert status == 200
    assert json.loads(text) == {
        "items": [
            {
                "address": "v1:8090",
                "nodeSelector": {"vipu-ctrl": "v1"},
                "partitions": 1,
                "untracked": 1,
                "reachable": True,
                "message": "",
                "circuit": {"state": "closed", "since": None, "nextTry": None, "orders": []},
                "hasNode": True,
                "draining": False,
                "total": 32,
                "free": 26,
                "cordoned": 0,
                "faulty": 0,
            }
        ],
        "problem": "",
    }
    site.world.add_vipu("v2:8090", down=NoAnswer("v2:8090: refused"))
    site.world.listed = "v2:8090:vipu-ctrl=v2"
    site.proxy.fleet.reload()
    items = json.loads((await site.get("/v1/controllers", user="operator"))[1])["items"]
    assert [(one["address"], one["reachable"], one["draining"]) for one in items] == [
        ("v2:8090", False, False),
        ("v1:8090", None, True),
    ]
    assert items[0]["message"] == "v2:8090: refused"


async def test_controllers_says_what_is_wrong_with_the_list(site: Site) -> None:
    site.world.listed = "nonsense"
    site.proxy.fleet.reload()
    found = json.loads((await site.get("/v1/controllers", user="operator"))[1])
    assert "'nonsense'" in found["problem"]
    assert len(found["items"]) == 1


# ---------------------------------------------------------------------- faults


async def test_writes_are_503_while_the_api_server_is_away_and_reads_go_on(site: Site) -> None:
    await site.put()
    lose_patience(site.proxy)
    site.world.maps.down = unreachable()
    status, text = await site.put("other")
    assert status == 503
    assert "connection refused" in json.loads(text)["detail"]
    assert (await site.get("/stats"))[0] == 200
    assert (await site.get("/v1/partitions", user="operator"))[0] == 200
    assert (await site.put())[0] == 200  # nothing to write


async def test_unknown_paths_and_methods_are_problems_too(site: Site) -> None:
    status, text = await site.get("/nothing")
    assert (status, json.loads(text)["detail"]) == (404, "there is nothing at /nothing")
    async with site.http.delete(site.url + "/stats") as answer:
        assert answer.status == 405
        assert "GET" in answer.headers["Allow"]
        assert answer.content_type == "application/problem+json"


async def test_a_fault_inside_is_500_without_its_details(site: Site) -> None:
    async def broken() -> None:
        raise RuntimeError("secret detail")

    site.proxy.fleet.recent_views = broken  # type: ignore[assignment,method-assign]
    status, text = await site.get("/stats")
    assert status == 500
    assert "secret" not in text


async def test_readyz_names_what_is_missing(site: Site) -> None:
    site.health.ask("V-IPU controllers", lambda: site.proxy.fleet.problem)
    assert await site.get("/readyz") == (200, "ok")
    site.world.vipu.down = NoAnswer("v1:8090: refused")
    await site.proxy.fleet.views()
    status, text = await site.get("/readyz")
    assert (status, text) == (503, "V-IPU controllers: v1:8090: refused\n")
    assert (await site.get("/health"))[0] == 200
