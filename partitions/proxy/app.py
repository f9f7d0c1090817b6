"""io: the routes of the V-IPU Proxy, and their authorization by the API server's access reviews."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from ipuhub.partition import Phase, partition_to_json, pod_key_to_json
from partitions.errors import UnknownPartition
from partitions.proxy import capacity, requests
from partitions.proxy.fleetanswer import FleetAnswer, FleetParts
from partitions.proxy.requests import Problem, answer_problems, unavailable
from partitions.proxy.vipuapi import find_removals
from partitions.vipu.errors import VipuError
from partitions.vipu.telemetry import heartbeat_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aiohttp.typedefs import Middleware

    from ipuhub.kube.access import Reviewer, User
    from ipuhub.partition import Partition
    from ipuhub.process.health import Health
    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.fleet import Fleet
    from partitions.proxy.requests import Handler
    from partitions.proxy.service import PartitionService
    from partitions.proxy.sweep import Sweep
    from partitions.proxy.trackerstore import TrackerStore

_HOLDER: Final = "/v1/partitions/{uid}/{instance}"
# Recording is a separate right: it does not allow reserving or resetting partitions.
_ACKNOWLEDGE: Final = "acknowledge"
_OF_THE_FLEET: Final = frozenset({"/stats", "/query"})
_OF_PARTITIONS: Final = ("/v1/", "/scheduler/")
_DONE: Final = frozenset({Phase.ACTIVE.value, Phase.ERROR.value})


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the proxy that the routes answer from."""

    store: TrackerStore
    fleet: Fleet
    service: PartitionService
    sweep: Sweep
    access: Access
    health: Health
    standby: Callable[[], str] = lambda: ""


def build_app(
    parts: Parts,
    more: Iterable[web.RouteDef] = (),
    around: Iterable[Middleware] = (),
    *,
    is_open: bool = False,
) -> web.Application:
    """The proxy as an aiohttp application; `/stats`, `/query` and `/health` need no token.

    With `is_open` it is for everybody: `/v1` is answered on another port.

    A replica that stands by answers for itself only: what it would say of partitions is not
    what the leader knows. `more` are pages beside ours, `around` sees every request and answer.
    """

    @web.middleware
    async def refuse_on_standby(request: web.Request, handler: Handler) -> web.StreamResponse:
        reason = parts.standby()
        if reason and (request.path in _OF_THE_FLEET or request.path.startswith(_OF_PARTITIONS)):
            raise unavailable(reason)
        return await handler(request)

    middlewares = (*around, answer_problems, refuse_on_standby)
    app = web.Application(middlewares=middlewares, client_max_size=requests.MAX_BODY_BYTES)
    routes = Routes(parts)
    app.add_routes(
        [
            web.get("/stats", routes.stats),
            web.post("/query", routes.query),
            web.get("/health", routes.health),
            *([] if is_open else routes.of_jobs()),
            *parts.health.routes(),
            *more,
        ]
    )
    return app


class Routes:
    """One method per route."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._answer = FleetAnswer()

    def of_jobs(self) -> list[web.RouteDef]:
        """`/v1`: for operator and recorders, with a token."""
        return [
            web.get("/v1/partitions", self.list_partitions),
            web.get("/v1/controllers", self.list_controllers),
            web.get("/v1/fleet", self.fleet),
            web.get("/v1/fleet/machine", self.machine),
            web.post("/v1/recorded", self.acknowledge),
            web.get(_HOLDER, self.get_partition),
            web.put(_HOLDER, self.ensure),
            web.delete(_HOLDER, self.release),
            web.post(_HOLDER + "/reset", self.reset),
            web.post(_HOLDER + "/key", self.make_key),
            web.put(_HOLDER + "/key", self.store_key),
        ]

    async def stats(self, request: web.Request) -> web.Response:
        """`GET /stats`: used and free IPUs; 503 while the tracker or every controller is
        unavailable.

        The last numbers of a controller that does not answer count for a while; other numbers are
        cached for a second. `Age` is their age. With `?detail=true` the answer has more fields, in
        another format.
        """
        detail = requests.read_flag(request, "detail")
        entries = list(self._parts.store.tracker.entries.values())
        views, age = await self._parts.fleet.recent_views()
        if views and not any(view.is_reachable for view in views):
            raise unavailable("; ".join(view.problem for view in views))
        answer = capacity.stats(entries, views)
        if detail:
            return _with_age(
                _json(capacity.stats_in_detail(answer, views, self._parts.sweep.drift)), age
            )
        return _with_age(_json(answer), age)

    async def query(self, request: web.Request) -> web.Response:
        """`POST /query`: how many partitions of a size fit now."""
        question = await requests.read_question(request)
        views, age = await self._parts.fleet.recent_views()
        if question.controller:
            views = _only(views, question.controller)
        answer = capacity.query(views, question.size, question.count)
        if question.detail:
            return _with_age(_json(answer | capacity.query_in_detail(views, question.size)), age)
        return _with_age(_json(answer), age)

    async def health(self, _: web.Request) -> web.Response:
        """`GET /health`: the process answers; `/readyz` says whether it can do its work."""
        return web.Response(text="ok")

    async def list_partitions(self, request: web.Request) -> web.Response:
        """`GET /v1/partitions`: all partitions and tombstones; 304 when nothing has changed."""
        await self._require(request, "list")
        etag = self._parts.store.tracker.revision
        if _has(request, etag):
            answer = web.Response(status=304)
        else:
            items = [partition_to_json(record) for record in self._parts.service.records()]
            answer = _json({"items": items})
        answer.etag = etag
        return answer

    async def list_controllers(self, request: web.Request) -> web.Response:
        """`GET /v1/controllers`: who answers, what is free, what the last sweep found."""
        await self._require(request, "list")
        parts = self._parts
        views = await parts.fleet.views()
        entries = parts.store.tracker.entries.values()
        problem = parts.fleet.list_problem
        return _json(capacity.controllers_to_json(views, entries, parts.sweep.drift, problem))

    async def fleet(self, request: web.Request) -> web.Response:
        """`GET /v1/fleet`: each IPU, who holds it, who waits and for what, from one reading.

        A controller that does not answer keeps its last state, however old; `Age` is the age of the
        oldest. 304 when nothing has changed.
        """
        await self._require(request, "list")
        tracker, service = self._parts.store.tracker, self._parts.service
        views, age = await self._parts.fleet.recent_views(remember_seconds=math.inf)
        entries = tracker.entries.values()
        removals = await find_removals(views, entries, self._parts.fleet.api)
        reserve_after = service.waiting.reserve_after_seconds
        last = self._answer
        last.update(FleetParts(views, tracker, service.in_turn(), removals, reserve_after))
        if _has(request, last.etag):
            answer = web.Response(status=304)
        else:
            answer = web.Response(text=last.text, content_type="application/json")
        answer.etag = last.etag
        return _with_age(answer, age)

    async def machine(self, request: web.Request) -> web.Response:
        """`GET /v1/fleet/machine?controller=&agent=`: the last heartbeat of a machine's agent.

        The request goes to its controller now. 404 for a machine that the last answers do not have.
        """
        await self._require(request, "list")
        address, agent = request.query.get("controller", ""), request.query.get("agent", "")
        views, _ = await self._parts.fleet.recent_views()
        (view,) = _only(views, address)
        if view.topology is None or all(ipu.agent != agent for ipu in view.topology.ipus):
            raise Problem(404, f"{address} has no IPU-Machine of this name")
        try:
            heard = await self._parts.fleet.api(address).heartbeat(agent)
        except VipuError as error:
            raise unavailable(f"{address}: {error}") from error
        return _json(heartbeat_to_json(heard))

    async def acknowledge(self, request: web.Request) -> web.Response:
        """`POST /v1/recorded`: a recorder has stored these tombstones."""
        await self._require(request, _ACKNOWLEDGE)
        names = await requests.read_names(request)
        return _json({"acknowledged": await self._parts.service.acknowledge(names)})

    async def get_partition(self, request: web.Request) -> web.Response:
        """`GET` of one holder's partition."""
        uid, instance = await self._require_holder(request, "get")
        return _json(partition_to_json(self._parts.service.find(uid, instance)))

    async def ensure(self, request: web.Request) -> web.Response:
        """`PUT`: 200 when the partition is as it will be, 202 while it waits or is made."""
        user = await self._parts.access.user(request)
        wanted = await requests.read_request(request)
        await self._parts.access.require(user, "update", wanted.namespace)
        return _record(await self._parts.service.ensure(wanted), done=_DONE)

    async def reset(self, request: web.Request) -> web.Response:
        """`POST .../reset`: a clean partition for another attempt."""
        uid, instance = await self._require_holder(request, "update")
        attempt = await requests.read_attempt(request)
        return _record(await self._parts.service.reset(uid, instance, attempt), done=_DONE)

    async def make_key(self, request: web.Request) -> web.Response:
        """`POST .../key`: a new key for the pods of an active partition; null: they need none."""
        uid, instance = await self._require_holder(request, "update")
        attempt = await requests.read_attempt(request)
        made = await self._parts.service.make_key(uid, instance, attempt)
        answer = _json({"key": pod_key_to_json(made) if made else None})
        answer.headers["Cache-Control"] = "no-store"
        return answer

    async def store_key(self, request: web.Request) -> web.Response:
        """`PUT .../key`: the pods can use the key that was made last."""
        uid, instance = await self._require_holder(request, "update")
        attempt, key_id = await requests.read_stored_key(request)
        return _json(
            partition_to_json(await self._parts.service.store_key(uid, instance, attempt, key_id))
        )

    async def release(self, request: web.Request) -> web.Response:
        """`DELETE`: 200 when the partition is gone, 202 while it goes."""
        uid, instance = await self._require_holder(request, "delete")
        record = await self._parts.service.release(uid, instance)
        return _record(record, done=frozenset({Phase.RELEASED.value}))

    async def _require(self, request: web.Request, verb: str) -> None:
        """The asker must be allowed in all namespaces."""
        await self._parts.access.require(await self._parts.access.user(request), verb)

    async def _require_holder(self, request: web.Request, verb: str) -> tuple[str, int]:
        """Require that the caller is allowed in the job's namespace, or in all namespaces if the
        job is unknown.

        Otherwise the difference between 403 and 404 would reveal which jobs exist.
        """
        user = await self._parts.access.user(request)
        uid, instance = requests.read_holder(request)
        try:
            namespace = self._parts.service.find(uid, instance).namespace
        except UnknownPartition:
            namespace = ""
        await self._parts.access.require(user, verb, namespace)
        return uid, instance


def _only(views: Sequence[ControllerView], address: str) -> list[ControllerView]:
    found = [view for view in views if view.spec.address == address]
    if not found:
        known = ", ".join(view.spec.address for view in views) or "none"
        raise Problem(400, f"there is no V-IPU controller {address}; there is {known}")
    return found


def _record(record: Partition, *, done: frozenset[str]) -> web.Response:
    return _json(partition_to_json(record), status=200 if record.phase in done else 202)


def _has(request: web.Request, etag: str) -> bool:
    """Return whether the caller has the answer with this tag."""
    return any(tag.value == etag for tag in request.if_none_match or ())


def _with_age(answer: web.Response, age_seconds: float) -> web.Response:
    """The answer with the age of the oldest numbers in it, in whole seconds, unless all are of
    now."""
    if age_seconds:
        answer.headers["Age"] = f"{age_seconds:.0f}"
    return answer


def _json(body: Any, status: int = 200) -> web.Response:
    """Compact JSON in the order of its keys, without a newline at the end."""
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    return web.Response(status=status, text=text, content_type="application/json")


AUDIENCE: Final = "ipuhub-proxy"


class Access:
    """The authorization of `/v1`. Raises ApiError if `reviews` cannot reach the API server."""

    def __init__(self, reviews: Reviewer) -> None:
        self._reviews = reviews

    async def user(self, request: web.Request) -> User:
        """Return the caller; raises Problem 401."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        challenge = {"WWW-Authenticate": "Bearer"}
        if scheme.lower() != "bearer" or not token.strip():
            raise Problem(
                401,
                f"a bearer token with audience {AUDIENCE} is required (TokenRequest)",
                challenge,
            )
        user = await self._reviews.authenticate(token.strip())
        if user is None:
            sentence = f"the token is not valid, or not for audience {AUDIENCE}"
            raise Problem(401, sentence, challenge, "invalid-token")
        return user

    async def may(self, user: User, verb: str, namespace: str = "") -> bool:
        """Return whether `user` may do `verb` to partitions of jobs in a namespace, or
        everywhere."""
        return await self._reviews.authorize(
            user,
            verb=verb,
            group="graphcore.ai",
            resource="ipujobs",
            subresource="partitions",
            namespace=namespace,
        )

    async def require(self, user: User, verb: str, namespace: str = "") -> None:
        """Raise Problem 403 unless `user` may."""
        if not await self.may(user, verb, namespace):
            where = f"in namespace {namespace}" if namespace else "in all namespaces"
            raise Problem(403, f"{user.username} may not {verb} ipujobs/partitions {where}")
