"""Authorization of reads and changes over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.fakes.configmaps import unreachable

if TYPE_CHECKING:
    from tests.integration.proxy.conftest import Site


async def test_the_open_pages_need_no_token_and_all_others_do(site: Site) -> None:
    for path in ("/stats", "/health"):
        assert (await site.get(path))[0] == 200
    for method, path in [
        ("GET", "/v1/partitions"),
        ("GET", "/v1/controllers"),
        ("POST", "/v1/recorded"),
        ("GET", "/v1/partitions/u/0"),
        ("PUT", "/v1/partitions/u/0"),
        ("DELETE", "/v1/partitions/u/0"),
        ("POST", "/v1/partitions/u/0/reset"),
    ]:
        for user in ("", "invalid"):
            status, text = await site.send(method, path, user=user)
            assert (status, json.loads(text)["status"]) == (401, 401), (method, path, user)
    async with site.http.get(site.url + "/v1/partitions") as answer:
        assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_the_access_review_is_about_partitions_of_ipujobs(site: Site) -> None:
    await site.put()
    assert set(site.reviews.resources) == {("graphcore.ai", "ipujobs", "partitions")}


async def test_a_user_may_do_only_what_he_may_in_the_jobs_namespace(site: Site) -> None:
    site.reviews.rights |= {("blue", verb, "blue") for verb in ("get", "update", "delete")}
    await site.put("red", namespace="red")
    assert (await site.put("mine", namespace="blue", user="blue"))[0] == 200
    assert (await site.put("other", namespace="red", user="blue"))[0] == 403
    # Naming his own namespace does not give him somebody else's job.
    assert (await site.put("red", namespace="blue", user="blue"))[0] == 409
    for method in ("GET", "DELETE"):
        path = "/v1/partitions/uid-red/0"
        assert (await site.send(method, path, user="blue"))[0] == 403
        # And the answer does not tell which jobs exist.
        assert (await site.send(method, "/v1/partitions/nobody/0", user="blue"))[0] == 403
    reset = {"json": {"attempt": 1}}
    assert (await site.send("POST", "/v1/partitions/uid-red/0/reset", user="blue", **reset))[
        0
    ] == 403
    for path in ("/v1/partitions", "/v1/controllers"):
        assert (await site.get(path, user="blue"))[0] == 403
    # Who reserves does not record, and the other way round.
    for user in ("blue", "operator"):
        assert (await site.send("POST", "/v1/recorded", user=user, json={"uids": []}))[0] == 403
    assert (await site.put("own", user="prober"))[0] == 403
    assert (await site.send("DELETE", "/v1/partitions/uid-mine/0", user="blue"))[0] == 200


async def test_a_refusal_names_user_verb_and_namespace(site: Site) -> None:
    _, text = await site.put("other", namespace="red", user="blue")
    assert json.loads(text)["detail"] == ("blue may not update ipujobs/partitions in namespace red")


async def test_when_reviews_cannot_be_had_nobody_gets_in(site: Site) -> None:
    site.reviews.down = unreachable()
    async with site.http.get(
        site.url + "/v1/partitions", headers={"Authorization": "Bearer operator"}
    ) as answer:
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "2"
