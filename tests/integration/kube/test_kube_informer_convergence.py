"""The cache converges to the server's state by valid steps, whatever the server does."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from ipuhub.kube.informer import Informer
from ipuhub.kube.resources import PODS

from .conftest import BRISK, break_off, event, events, gone_event, page, pod, status

if TYPE_CHECKING:
    from aiohttp import web

    from ipuhub.kube.client import KubeClient

    from .conftest import ScriptedApi


class FickleServer:
    """Changes pods at random and serves them badly until its troubles are used up."""

    def __init__(self, seed: int, api: ScriptedApi) -> None:
        self.random = random.Random(seed)
        self.api = api
        self.version = 100
        self.pods: dict[str, dict[str, Any]] = {}
        self.history: list[dict[str, Any]] = []
        self.troubles = 25

    def change(self) -> None:
        name = f"p{self.random.randrange(5)}"
        self.version += 1
        known = self.pods.get(name)
        if known is None:
            self._tell("ADDED", pod(name, str(self.version), f"{name}-{self.version}"))
        elif self.random.random() < 0.5:
            self._tell("MODIFIED", pod(name, str(self.version), known["metadata"]["uid"]))
        else:
            self._tell("DELETED", pod(name, str(self.version), known["metadata"]["uid"]))

    def finish(self) -> None:
        self.version += 1
        self._tell("ADDED", pod("end", str(self.version)))

    def _tell(self, kind: str, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        if kind == "DELETED":
            del self.pods[name]
        else:
            self.pods[name] = manifest
        self.history.append(event(kind, manifest))

    def _change_some(self) -> None:
        for _ in range(self.random.randrange(6)):
            self.change()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        serve = self._watch if "watch" in request.query else self._list
        return await serve(request)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if self.troubles > 0 and self.random.random() < 0.3:
            self.troubles -= 1
            return await status(500, "InternalError")(request)
        answer = page(*self.pods.values(), version=str(self.version))
        if self.troubles > 0:
            self._change_some()  # between the list and the watch
        return await answer(request)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        after = int(request.query["resourceVersion"])
        if self.troubles <= 0:
            if "end" not in self.pods:
                self.finish()
            return await events(*self._since(after), then=self.api.hang)(request)
        self.troubles -= 1
        self._change_some()
        missed = self._since(after)
        delivered = missed[: self.random.randrange(len(missed) + 1)]
        half = orjson.dumps(event("ADDED", pod("ghost", "9")))[:-20]
        trouble = self.random.choice(
            [
                status(410, "Expired"),
                status(500, "InternalError"),
                events(*delivered, gone_event()),
                events(*delivered),
                events(*delivered, then=break_off),
                events(*delivered, half, then=break_off),
                events(*delivered, half),
                events(*delivered, b"<html>\n"),
            ]
        )
        return await trouble(request)

    def _since(self, version: int) -> list[dict[str, Any]]:
        return [
            e for e in self.history if int(e["object"]["metadata"]["resourceVersion"]) > version
        ]


class Ledger:
    """Keeps its own copy from the handler's calls, and checks each step."""

    def __init__(self) -> None:
        self.copy: dict[str, tuple[str, str]] = {}
        self.ended = asyncio.Event()
        self.unlawful: list[str] = []

    def __call__(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        metadata = (new or old or {})["metadata"]
        name, uid, version = metadata["name"], metadata["uid"], metadata["resourceVersion"]
        known = self.copy.get(name)
        if (old is None) != (known is None) or (known is not None and known[0] != uid):
            self.unlawful.append(f"{name}: {known} -> {old} {new}")
        if new is None:
            self.copy.pop(name, None)
        else:
            self.copy[name] = (uid, version)
        if name == "end":
            self.ended.set()


@pytest.mark.parametrize("seed", range(12))
async def test_a_cache_follows_a_fickle_server_to_the_truth(
    api: ScriptedApi, client: KubeClient, seed: int
) -> None:
    server = FickleServer(seed, api)
    api.answers += [server.answer] * 200
    api.watches += [server.answer] * 200
    ledger = Ledger()
    informer = Informer(client, PODS, pace=BRISK)
    informer.add_handler(ledger)
    following = asyncio.create_task(informer.run())
    await asyncio.wait_for(ledger.ended.wait(), 90)
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    truth = {
        name: (item["metadata"]["uid"], item["metadata"]["resourceVersion"])
        for name, item in server.pods.items()
    }
    assert ledger.unlawful == []
    assert ledger.copy == truth
    held = {m["metadata"]["name"]: m["metadata"]["resourceVersion"] for m in informer.all()}
    assert held == {name: version for name, (_, version) in truth.items()}
