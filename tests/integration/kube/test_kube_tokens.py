"""Tokens and reviews against a scripted server: renewal, memory, and refusal when in doubt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from ipuhub.kube.access import Reviewer, User
from ipuhub.kube.errors import ServerError
from ipuhub.kube.token import TokenSource

from .conftest import reply, status

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient

    from .conftest import Answer, ScriptedApi

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROBOT = User("robot", "u1", ("g1",), (("scopes", ("a", "b")),))


def granted(token: str, expires: datetime) -> Answer:
    stamp = expires.strftime("%Y-%m-%dT%H:%M:%SZ")
    return reply({"status": {"token": token, "expirationTimestamp": stamp}}, 201)


def reviewed(**state: Any) -> Answer:
    user = {"username": "robot", "uid": "u1", "groups": ["g1"], "extra": {"scopes": ["a", "b"]}}
    return reply({"status": {"user": user, **state}}, 201)


async def test_a_token_is_renewed_when_four_fifths_of_its_life_are_over(
    api: ScriptedApi, client: KubeClient
) -> None:
    now = NOON
    api.answers += [
        granted("one", NOON + timedelta(minutes=10)),
        granted("two", NOON + timedelta(hours=2)),
    ]
    source = TokenSource(client, "x/robot", "aud", now=lambda: now)
    assert await source() == "one"
    now = NOON + timedelta(minutes=7, seconds=59)
    assert await source() == "one"
    now = NOON + timedelta(minutes=8)
    assert await source() == "two"
    assert len(api.seen) == 2
    assert api.seen[0].path == "/api/v1/namespaces/x/serviceaccounts/robot/token"
    assert orjson.loads(api.seen[0].body)["spec"] == {
        "audiences": ["aud"],
        "expirationSeconds": 3600,
    }


async def test_while_the_server_is_away_the_old_token_serves_until_its_end(
    api: ScriptedApi, client: KubeClient
) -> None:
    now = NOON
    api.answers += [granted("one", NOON + timedelta(minutes=10))]
    api.answers += [status(500, "InternalError")] * 2
    source = TokenSource(client, "x/robot", "aud", now=lambda: now)
    await source()
    now = NOON + timedelta(minutes=9)
    assert await source() == "one"
    assert await source() == "one"
    assert len(api.seen) == 2, "a failed renewal is not repeated for each caller"
    now = NOON + timedelta(minutes=11)
    with pytest.raises(ServerError):
        await source()


def test_a_service_account_without_its_namespace_is_refused(client: KubeClient) -> None:
    with pytest.raises(ValueError, match="use namespace/name"):
        TokenSource(client, "robot", "aud")


async def test_an_answer_about_a_token_is_remembered_for_ten_seconds(
    api: ScriptedApi, client: KubeClient
) -> None:
    now = 0.0
    api.answers += [
        reviewed(authenticated=True, audiences=["aud"]),
        reviewed(authenticated=False),
        reviewed(authenticated=False, error="expired"),
    ]
    reviewer = Reviewer(client, "aud", clock=lambda: now)
    assert await reviewer.authenticate("good") == ROBOT
    assert await reviewer.authenticate("bad") is None
    now = 9.9
    assert await reviewer.authenticate("good") == ROBOT
    assert await reviewer.authenticate("bad") is None
    assert len(api.seen) == 2
    now = 10.0
    assert await reviewer.authenticate("good") is None


@pytest.mark.parametrize("audiences", [None, [], ["other"]])
async def test_a_server_that_does_not_confirm_the_audience_is_not_believed(
    api: ScriptedApi, client: KubeClient, audiences: list[str] | None
) -> None:
    api.answers.append(reviewed(authenticated=True, audiences=audiences))
    assert await Reviewer(client, "aud").authenticate("good") is None


async def test_permissions_are_asked_with_all_that_is_known_of_the_user_and_remembered(
    api: ScriptedApi, client: KubeClient
) -> None:
    now = 0.0
    api.answers += [
        reply({"status": {"allowed": True}}, 201),
        reply({"status": {"allowed": True, "denied": True}}, 201),
        reply({"status": {"allowed": False}}, 201),
    ]
    reviewer = Reviewer(client, "aud", clock=lambda: now)
    what = {"group": "graphcore.ai", "resource": "ipujobs", "subresource": "partitions"}
    for _ in range(2):
        assert await reviewer.authorize(ROBOT, verb="get", namespace="x", **what)
    assert not await reviewer.authorize(ROBOT, verb="delete", namespace="x", **what)
    assert len(api.seen) == 2
    assert orjson.loads(api.seen[0].body)["spec"] == {
        "user": "robot",
        "uid": "u1",
        "groups": ["g1"],
        "extra": {"scopes": ["a", "b"]},
        "resourceAttributes": {"verb": "get", "namespace": "x", **what},
    }
    now = 10.0
    assert not await reviewer.authorize(ROBOT, verb="get", namespace="x", **what)


async def test_a_server_that_cannot_answer_is_an_error_and_no_permission(
    api: ScriptedApi, client: KubeClient
) -> None:
    api.answers += [status(500, "InternalError")] * 2
    reviewer = Reviewer(client, "aud")
    with pytest.raises(ServerError):
        await reviewer.authenticate("good")
    with pytest.raises(ServerError):
        await reviewer.authorize(ROBOT, verb="get", group="", resource="pods")


async def test_a_flood_of_wrong_tokens_does_not_fill_the_memory(
    api: ScriptedApi, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ipuhub.kube.access as module

    monkeypatch.setattr(module, "_REMEMBER_ENTRIES", 3)
    api.answers += [reviewed(authenticated=False)] * 6
    reviewer = Reviewer(client, "aud", clock=lambda: 0.0)
    for number in (1, 2, 3, 4, 5):
        await reviewer.authenticate(f"wrong-{number}")
    await reviewer.authenticate("wrong-5")
    assert len(api.seen) == 5
    await reviewer.authenticate("wrong-1")
    assert len(api.seen) == 6
