"""Authentication and authorization: certificates, tokens, reviews, impersonation."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from devcluster.server import DevCluster
from tests.builders.kubeconfigs import write_account_kubeconfig

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authentication.k8s.io/v1"
ACCESS = "/apis/authorization.k8s.io/v1"


async def token_of(http: Any, name: str = "default", **spec: Any) -> str:
    answer = await http.make(f"{ACCOUNTS}/{name}/token", {"spec": spec})
    return answer["status"]["token"]


async def review(http: Any, token: str, *audiences: str) -> dict[str, Any]:
    spec = {"token": token, "audiences": list(audiences)}
    answer = await http.make(f"{REVIEWS}/tokenreviews", {"spec": spec})
    return answer["status"]


async def may(http: Any, user: str, groups: tuple[str, ...] = (), **attributes: str) -> bool:
    spec = {"user": user, "groups": list(groups), "resourceAttributes": attributes}
    answer = await http.make(f"{ACCESS}/subjectaccessreviews", {"spec": spec})
    return answer["status"]["allowed"]


async def test_without_credentials_only_health_answers(cluster, http):
    connector = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(connector=connector) as stranger:
        async with stranger.get(f"{cluster.url}/api/v1/pods") as answer:
            assert answer.status == 401
            assert (await answer.json())["reason"] == "Unauthorized"
        bad = {"Authorization": "Bearer nonsense"}
        async with stranger.get(f"{cluster.url}/api/v1/pods", headers=bad) as answer:
            assert answer.status == 401
        async with stranger.get(f"{cluster.url}/readyz") as answer:
            assert answer.status == 200


async def test_the_state_is_readable_by_its_owner_only(cluster):
    folder = cluster.kubeconfig.parent
    assert folder.stat().st_mode & 0o077 == 0
    for name in ("admin.kubeconfig", "pki/ca.key", "pki/sa.key", "pki/server.pem"):
        assert (folder / name).stat().st_mode & 0o077 == 0, name


async def test_a_kubeconfig_of_an_account_acts_as_that_account(cluster, http, tmp_path, open_http):
    path = tmp_path / "account.kubeconfig"
    await write_account_kubeconfig(cluster.kubeconfig, path, "default/default")
    client = open_http(path)
    answer = await client.make(f"{REVIEWS}/selfsubjectreviews", {})
    assert answer["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"
    await client.session.close()


async def test_a_token_is_good_for_its_audience_only(cluster, http):
    token = await token_of(http, audiences=["ipuhub-proxy"])
    found = await review(http, token, "ipuhub-proxy", "other")
    assert found["authenticated"] is True
    assert found["audiences"] == ["ipuhub-proxy"]
    assert found["user"]["username"] == "system:serviceaccount:default:default"
    assert "system:serviceaccounts:default" in found["user"]["groups"]
    assert not (await review(http, token)).get("authenticated")
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.get(f"{cluster.url}/version", headers=headers) as answer,
    ):
        assert answer.status == 401


async def test_a_token_ends_with_its_account_and_with_the_pod_it_is_bound_to(http):
    pods = "/api/v1/namespaces/default/pods"
    spec = {"containers": [{"name": "m", "image": "i"}]}
    await http.make(pods, {"metadata": {"name": "p"}, "spec": spec})
    bound = await token_of(http, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "p"})
    await http.make(ACCOUNTS, {"metadata": {"name": "mine"}})
    free = await token_of(http, "mine")
    assert (await review(http, bound))["authenticated"]
    assert (await review(http, free))["authenticated"]
    await http.delete(f"{pods}/p")
    await http.delete(f"{ACCOUNTS}/mine")
    await http.make(ACCOUNTS, {"metadata": {"name": "mine"}})
    assert not (await review(http, bound)).get("authenticated")
    assert not (await review(http, free)).get("authenticated")


async def test_a_token_expires_by_the_clusters_clock(tmp_path, open_http):
    now = [datetime(2030, 1, 1, tzinfo=UTC)]
    cluster = DevCluster(tmp_path, clock=lambda: now[0])
    await cluster.start()
    http = open_http(cluster.kubeconfig)
    token = await token_of(http, expirationSeconds=600)
    assert (await review(http, token))["authenticated"]
    now[0] += timedelta(seconds=601)
    assert not (await review(http, token)).get("authenticated")
    await http.session.close()
    await cluster.stop()


async def test_a_token_of_less_than_ten_minutes_is_refused(http):
    body = {"spec": {"expirationSeconds": 599}}
    answer = await http.call("POST", f"{ACCOUNTS}/default/token", body)
    assert answer.status == 422
    assert "may not specify a duration less than 10 minutes" in answer.body["message"]


async def test_tokens_stay_good_over_a_restart(tmp_path, open_http):
    cluster = DevCluster(tmp_path)
    await cluster.start()
    http = open_http(cluster.kubeconfig)
    token, authority = await token_of(http), (tmp_path / "pki" / "ca.crt").read_bytes()
    await http.session.close()
    await cluster.stop()
    again = DevCluster(tmp_path)
    await again.start()
    http = open_http(again.kubeconfig)
    assert (await review(http, token))["authenticated"]
    assert (tmp_path / "pki" / "ca.crt").read_bytes() == authority
    await http.session.close()
    await again.stop()


async def test_access_reviews_judge_by_the_stored_roles(http):
    namespaced = f"{RBAC}/namespaces/default"
    rule = {"apiGroups": ["graphcore.ai"], "resources": ["ipujobs"], "verbs": ["get"]}
    await http.make(f"{namespaced}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "b"},
        "subjects": [{"kind": "User", "name": "ann"}],
        "roleRef": {"kind": "Role", "name": "r"},
    }
    await http.make(f"{namespaced}/rolebindings", binding)
    wanted = {"group": "graphcore.ai", "resource": "ipujobs", "namespace": "default"}
    assert await may(http, "ann", verb="get", **wanted)
    assert not await may(http, "ann", verb="delete", **wanted)
    assert not await may(http, "charlie", verb="get", **wanted)
    assert not await may(http, "ann", verb="get", **{**wanted, "namespace": "kube-system"})
    assert await may(http, "root", ("system:masters",), verb="delete", **wanted)


async def test_a_stranger_cannot_impersonate_and_an_administrator_can(
    cluster, http, tmp_path, open_http
):
    path = f"{REVIEWS}/selfsubjectreviews"
    headers = {"Impersonate-User": "ann", "Impersonate-Group": "team"}
    answer = await http.call("POST", path, {}, **headers)
    assert answer.body["status"]["userInfo"]["username"] == "ann"
    assert "team" in answer.body["status"]["userInfo"]["groups"]
    config = tmp_path / "charlie.kubeconfig"
    await write_account_kubeconfig(cluster.kubeconfig, config, "default/default")
    charlie = open_http(config)
    answer = await charlie.call("POST", path, {}, **headers)
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    await charlie.session.close()


async def test_a_watch_ends_when_its_client_goes_away(cluster, http):
    async with http.watch("/api/v1/pods?resourceVersion=0"):
        watchers = cluster._watchers._open["pods"]
        while not watchers:
            await asyncio.sleep(0.01)
    while watchers:
        await asyncio.sleep(0.01)
