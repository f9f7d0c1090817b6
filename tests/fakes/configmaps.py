"""An API server's ConfigMaps in memory: resource versions, merge patches, labels, faults."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ipuhub.kube.errors import AlreadyExists, Conflict, NotFound, Unreachable
from ipuhub.kube.resources import ListResult
from tests.fakes.jsoncopy import copied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ipuhub.kube.errors import ApiError
    from ipuhub.kube.resources import Manifest, Resource


class FakeConfigMaps:
    """`on_write` is awaited after each write that took effect, before the answer."""

    def __init__(self) -> None:
        self.objects: dict[str, Manifest] = {}
        self.version = 100
        self.lists = 0
        self.gets = 0
        self.patches: list[Manifest] = []
        self.down: ApiError | None = None
        self.on_write: Callable[[], Awaitable[None]] | None = None

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Manifest:
        self.gets += 1
        await self._arrive()
        return copied(self._find(name))

    async def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = ""
    ) -> ListResult:
        self.lists += 1
        await self._arrive()
        key, _, value = label_selector.partition("=")
        found = [
            copied(one)
            for one in self.objects.values()
            if one["metadata"].get("labels", {}).get(key) == value
        ]
        return ListResult(found, str(self.version))

    async def create(
        self, resource: Resource, body: Manifest, namespace: str | None = None
    ) -> Manifest:
        await self._arrive()
        name = body["metadata"]["name"]
        if name in self.objects:
            raise AlreadyExists(409, "AlreadyExists", f"{name} exists")
        self.objects[name] = copied(body)
        return await self._written(name)

    async def patch(
        self, resource: Resource, name: str, body: Any, namespace: str | None = None
    ) -> Manifest:
        await self._arrive()
        found = self._find(name)
        metadata = body.get("metadata", {})
        wanted = metadata.get("resourceVersion")
        if wanted is not None and wanted != found["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", f"{name} changed")
        self.patches.append(copied(body))
        found["metadata"].setdefault("labels", {}).update(metadata.get("labels", {}))
        data = {**found.get("data", {}), **body.get("data", {})}
        found["data"] = {key: text for key, text in data.items() if text is not None}
        return await self._written(name)

    def edit(self, name: str, **data: str) -> None:
        """Change a map as another writer."""
        self.version += 1
        self.objects[name].setdefault("data", {}).update(data)
        self.objects[name]["metadata"]["resourceVersion"] = str(self.version)

    def texts(self) -> dict[str, str]:
        return {k: v for one in self.objects.values() for k, v in one.get("data", {}).items()}

    def _find(self, name: str) -> Manifest:
        if name not in self.objects:
            raise NotFound(404, "NotFound", f"{name} not found")
        return self.objects[name]

    async def _arrive(self) -> None:
        await asyncio.sleep(0)
        if self.down is not None:
            raise self.down

    async def _written(self, name: str) -> Manifest:
        self.version += 1
        self.objects[name]["metadata"]["resourceVersion"] = str(self.version)
        answer = copied(self.objects[name])
        if self.on_write is not None:
            await self.on_write()
        await asyncio.sleep(0)
        return answer


def unreachable() -> Unreachable:
    return Unreachable("connection refused")
