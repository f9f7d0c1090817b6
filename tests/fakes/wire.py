"""The link between one operator and the world: crashes, lost answers, errors, interleavings."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ipuhub.kube.errors import Conflict, ServerError, TooManyRequests, Unreachable
from jobs.ipujob.names import LABEL_ROLE
from tests.fakes.kube import Killed
from tests.fakes.partitions import ProxyAwayError

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from ipuhub.partition import Partition, PodKey
    from tests.fakes.jobworld import WatchfulPartitions
    from tests.fakes.kube import FakeKube, Manifest

READS = frozenset({"get", "list", "try_create"})


class Mischief:
    """Breaks a share of all calls: refused, failed or unanswered, with or without effect."""

    def __init__(self, chance: random.Random, share: float = 0.2) -> None:
        self._chance = chance
        self.share = share
        self.broken = 0

    def before(self, verb: str, *, is_proxy: bool) -> Exception | None:
        """The error instead of the call; None: it is carried out."""
        if self._chance.random() >= self.share / 2:
            return None
        self.broken += 1
        if is_proxy:
            return ProxyAwayError("connection refused")
        errors = [
            TooManyRequests(429, "TooManyRequests", "slow down", retry_after=1.0),
            ServerError(500, "InternalError", "etcd is away"),
            Unreachable("timed out"),
        ]
        if verb not in {*READS, "create"}:
            errors.append(Conflict(409, "Conflict", "the object has been modified"))
        return self._chance.choice(errors)

    def after(self, *, is_proxy: bool) -> Exception | None:
        """The error instead of the answer to a call that took effect."""
        if self._chance.random() >= self.share / 2:
            return None
        self.broken += 1
        return ProxyAwayError("connection reset") if is_proxy else Unreachable("timed out")


class Wire:
    """One operator process's calls. Dead after its `kill_at`-th write, at once and for good.

    `mischief` breaks calls; `turns` gives how many turns of the loop a call takes on its way.
    """

    def __init__(
        self,
        *,
        on_write: Callable[[str], bool],
        mischief: Mischief | None,
        turns: Callable[[], int] | None,
    ) -> None:
        self._on_write = on_write
        self._mischief = mischief
        self._turns = turns
        self.is_dead = False

    async def call(
        self, verb: str, act: Callable[[], Awaitable[Any]], *, is_proxy: bool, what: str = ""
    ) -> Any:
        await self._travel()
        if self._mischief is not None:
            error = self._mischief.before(verb, is_proxy=is_proxy)
            if error is not None:
                raise error
        answer = await act()
        if verb not in READS and self._on_write(f"{verb} {what}"):
            self.is_dead = True
            raise Killed
        await self._travel()
        if self._mischief is not None:
            error = self._mischief.after(is_proxy=is_proxy)
            if error is not None:
                raise error
        return answer

    async def _travel(self) -> None:
        for _ in range(self._turns() if self._turns is not None else 0):
            await asyncio.sleep(0)
        if self.is_dead:
            raise Killed


def _written(resource: Any, *args: Any) -> str:
    """Return the kind of object of a call: of pods the role, of a status the state as well."""
    manifests = (arg for arg in args if isinstance(arg, dict))
    return f"{resource.plural} {' '.join(map(kind_of, manifests))}"


def kind_of(manifest: Manifest) -> str:
    """Return what tells this state of an object, or a patch of it, from others."""
    meta, status = manifest.get("metadata") or {}, manifest.get("status") or {}
    facts = (
        (meta.get("labels") or {}).get(LABEL_ROLE),
        status.get("launcherStatus") or status.get("phase"),
        "ends" if meta.get("deletionTimestamp") else "",
    )
    return " ".join(filter(None, facts))


class WiredKube:
    """The API server, as one operator reaches it."""

    def __init__(self, kube: FakeKube, wire: Wire) -> None:
        self._kube = kube
        self._wire = wire

    async def _call(self, verb: str, *args: Any, **options: Any) -> Any:
        method = getattr(self._kube, verb)
        return await self._wire.call(
            verb, lambda: method(*args, **options), is_proxy=False, what=_written(*args)
        )

    async def get(self, *args: Any, **options: Any) -> Manifest:
        return await self._call("get", *args, **options)

    async def list(self, *args: Any, **options: Any) -> Any:
        return await self._call("list", *args, **options)

    async def create(self, *args: Any, **options: Any) -> Manifest:
        return await self._call("create", *args, **options)

    async def try_create(self, *args: Any, **options: Any) -> Manifest:
        return await self._call("try_create", *args, **options)

    async def patch(self, *args: Any, **options: Any) -> Manifest:
        return await self._call("patch", *args, **options)

    async def delete(self, *args: Any, **options: Any) -> Manifest:
        return await self._call("delete", *args, **options)


class WiredPartitions:
    """The V-IPU Proxy, as one operator reaches it."""

    def __init__(self, partitions: WatchfulPartitions, wire: Wire) -> None:
        self._partitions = partitions
        self._wire = wire

    async def list(self) -> list[Partition]:
        return await self._wire.call("list", self._partitions.list, is_proxy=True)

    async def ensure(self, **request: Any) -> Partition:
        act = self._partitions.ensure
        return await self._wire.call("ensure", lambda: act(**request), is_proxy=True)

    async def release(self, uid: str, instance: int) -> Partition | None:
        act = self._partitions.release
        return await self._wire.call("release", lambda: act(uid, instance), is_proxy=True)

    async def make_key(self, uid: str, instance: int, attempt: int) -> PodKey | None:
        act = self._partitions.make_key
        return await self._wire.call("make_key", lambda: act(uid, instance, attempt), is_proxy=True)

    async def store_key(self, uid: str, instance: int, attempt: int, key_id: str) -> Partition:
        act = self._partitions.store_key
        return await self._wire.call(
            "store_key", lambda: act(uid, instance, attempt, key_id), is_proxy=True
        )
