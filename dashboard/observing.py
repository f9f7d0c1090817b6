"""glue: health checks of components by the web process, without a database connection: Leases in
the cluster, the V-IPU Proxy with everything that it reaches, and the webhooks' port.

The web process has these rights for its pages anyway. It records the results as heartbeats for the
worker, which can reach none of these components.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.db import transaction

from dashboard import components
from dashboard.components import Component, Signs
from ipuhub.addresses import host_of
from ipuhub.kube.errors import ApiError, ConfigError, NoCredentials, NotFound
from ipuhub.kube.resources import LEASES
from ipuhub.models import Heartbeat
from ipuhub.web.readings import NO_CONFIG, PATIENCE_SECONDS, Latest, Reading, attempt
from partitions.connections import sources
from partitions.errors import PartitionsError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

    from ipuhub.kube.client import KubeClient
    from partitions.connections import Sources
    from partitions.fleetjson import FleetJson

OPERATOR: Final = "ipu-operator"
PROXY: Final = "ipuhub-proxy"
PROBER: Final = "ipuhub-prober"
WEBHOOKS: Final = "ipuhub-webhooks"
_LEASES: Final = (OPERATOR, PROXY, PROBER, WEBHOOKS)
_NO_CREDENTIALS: Final = "The web process has no credentials for the Kubernetes API"
_FRESH_SECONDS: Final = 2.0
_MOST_BYTES: Final = 4096
_LONGEST_VERSION: Final = 100
_FOUND: Final = ("looked_at", "state", "detail", "holder", "members", "absent", "version")


@dataclass(frozen=True)
class ComponentReadings:
    """The state of the components. `webhooks`: why their port does not answer (empty: it does), and
    the release that it says; `kubernetes`: the version of the API server (empty: not said)."""

    leases: Mapping[str, Signs]
    fleet: Reading[FleetJson] = field(default_factory=lambda: Reading({}))
    webhooks: tuple[str, str] = ("", "")
    kubernetes: str = ""


def read_now(now: dt.datetime) -> ComponentReadings:
    """Return what is seen now; readers within 2 s share one look."""
    return _reader().at(now)


def observed(sights: ComponentReadings, now: dt.datetime) -> list[Component]:
    """Return the components that have no database connection, in the order in which a job meets
    them."""
    leases, fleet = sights.leases, sights.fleet
    kubernetes = components.of_kubernetes(leases.values(), sights.kubernetes)
    proxy = components.by_lease(components.PROXY, leases[PROXY], now)
    problem = fleet.detail if fleet.problem else ""
    known = {} if fleet.problem else fleet.value
    return [
        kubernetes,
        components.by_lease("IPU Operator", leases[OPERATOR], now),
        *_webhooks(sights, kubernetes, now),
        components.of_answering(proxy, problem, kubernetes),
        *components.of_controllers(known),
        *components.of_agents(known),
    ]


def _webhooks(
    sights: ComponentReadings, kubernetes: Component, now: dt.datetime
) -> list[Component]:
    """Webhooks have a Lease only where they make their own certificate."""
    signs = sights.leases[WEBHOOKS]
    judged = components.by_lease("Webhooks", signs, now)
    if settings.WEBHOOK_ADDRESS:
        problem, version = sights.webhooks
        judged = replace(judged, version=judged.version or version)
        return [components.of_answering(judged, problem, kubernetes)]
    return [] if signs.lease is None and not signs.problem else [judged]


def recorded(rows: Iterable[Heartbeat], now: dt.datetime) -> list[Component]:
    """Return the same components as these rows, read by `looked_at`, last recorded them."""
    return [_recorded(row, now) for row in rows if row.looked_at is not None]


def missing(found: Iterable[Component], known: Iterable[Component]) -> list[Component]:
    """Return recorded components that were not found and whose state no other source reports, V-IPU
    agents after the controllers."""
    states = {each.name: each.state for each in found}
    kept = (each for each in known if each.name not in states and not _is_gone(each.name, states))
    return sorted(kept, key=lambda each: bool(each.members))


def _is_gone(name: str, states: Mapping[str, str]) -> bool:
    """Return whether a component that was not found is off the list of the proxy, or of its
    controller: that they answer, and do not name it, says so."""
    controller = components.controller_of(name)
    return states.get(components.PROXY) == components.UP and (
        states.get(controller) != components.DOWN
    )


def _recorded(row: Heartbeat, now: dt.datetime) -> Component:
    members, absent = tuple(row.members), tuple(row.absent)
    found = Component(
        row.name, row.state, row.detail, row.holder, row.at, members, absent, row.version
    )
    return components.remembered(found, row.looked_at or now, now)


@transaction.atomic
def record(found: Iterable[Component], now: dt.datetime) -> None:
    """Record the state found at `now`; a component that is down keeps its last heartbeat."""
    seen = list(found)
    for state in (components.UP, components.DOWN, components.UNKNOWN):
        rows = [_row(each, now) for each in seen if each.state == state]
        fields = [*_FOUND, *(("at",) if state == components.UP else ())]
        Heartbeat.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["name"], update_fields=fields
        )
    states = {each.name: each.state for each in seen}
    old = Heartbeat.objects.filter(looked_at__lt=now).values_list("name", flat=True)
    if gone := [name for name in old if _is_gone(name, states)]:
        Heartbeat.objects.filter(name__in=gone).delete()


def _row(each: Component, now: dt.datetime) -> Heartbeat:
    at = (each.since or now) if each.state == components.UP else each.since
    return Heartbeat(
        name=each.name,
        at=at,
        looked_at=now,
        state=each.state,
        detail=each.detail,
        holder=each.holder,
        members=list(each.members),
        absent=list(each.absent),
        version=each.version,
    )


@lru_cache(maxsize=1)
def _reader() -> Latest[ComponentReadings]:
    """Return the process's one reader of all this."""
    nothing = ComponentReadings(
        dict.fromkeys(_LEASES, Signs(problem="not asked yet", is_silent=True))
    )
    return Latest(nothing, _read, lambda seen: not seen.fleet.problem, fresh_seconds=_FRESH_SECONDS)


def _read(last: ComponentReadings, now: dt.datetime) -> ComponentReadings:
    try:
        connected = sources()
    except ConfigError as error:
        signs = Signs(problem=f"{NO_CONFIG}: {error}", is_silent=True)
        fleet = replace(last.fleet, problem=NO_CONFIG, detail=str(error))
        return ComponentReadings(dict.fromkeys(_LEASES, signs), fleet)
    return connected.kube.run(_see_all, connected, last, now)


async def _see_all(
    connected: Sources, last: ComponentReadings, now: dt.datetime
) -> ComponentReadings:
    request = connected.proxy.fleet()
    leases, fleet, webhooks, kubernetes = await asyncio.gather(
        _ask_all(connected.kube.client),
        attempt(request, last.fleet, now, "The V-IPU Proxy", (ApiError, PartitionsError)),
        _ask_webhooks(settings.WEBHOOK_ADDRESS),
        _ask_version(connected.kube.client),
    )
    return ComponentReadings(leases, fleet, webhooks, kubernetes)


async def _ask_all(client: KubeClient) -> dict[str, Signs]:
    found = await asyncio.gather(*(_ask(client, name) for name in _LEASES))
    return dict(zip(_LEASES, found, strict=True))


async def _ask(client: KubeClient, name: str) -> Signs:
    request = client.get(LEASES, f"{settings.LEASE_PREFIX}{name}", settings.NAMESPACE)
    try:
        return Signs(await asyncio.wait_for(request, PATIENCE_SECONDS))
    except NotFound:
        return Signs()
    except NoCredentials as error:  # the server was not asked: it is no more known than if silent
        return Signs(problem=f"{_NO_CREDENTIALS}: {error}", is_silent=True)
    except (ApiError, TimeoutError) as error:
        is_silent = not getattr(error, "status", 0)
        return Signs(problem=str(error) or _silence(), is_silent=is_silent)


async def _ask_version(client: KubeClient) -> str:
    """Return the version of the API server; empty if it does not say."""
    try:
        answer = await asyncio.wait_for(client.request("GET", "/version"), PATIENCE_SECONDS)
    except (ApiError, NoCredentials, TimeoutError):
        return ""
    return str(answer.get("gitVersion", "")) if isinstance(answer, dict) else ""


async def _ask_webhooks(address: str) -> tuple[str, str]:
    """Return why no TLS handshake succeeds at `host:port` (empty: one does), and the release that
    answers (empty: an earlier one, or one that asks for a client certificate).

    The certificate is not verified: only the API server has to verify it.
    """
    if not address:
        return "", ""
    port = address.rpartition(":")[2]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(host_of(address), int(port), ssl=context)
    except (OSError, TimeoutError) as error:
        return f"{address}: {error}" if str(error) else f"{address}: {_silence()}", ""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            writer.write(b"GET /version HTTP/1.0\r\n\r\n")
            await reader.readexactly(_MOST_BYTES)
    except asyncio.IncompleteReadError as ended:
        return "", _version_in(ended.partial)
    except (OSError, TimeoutError):
        return "", ""
    finally:
        writer.transport.abort()
    return "", ""


def _version_in(answer: bytes) -> str:
    """Return the release in the whole answer to `/version`; empty if it says none."""
    try:
        body = json.loads(answer.partition(b"\r\n\r\n")[2])
    except (ValueError, RecursionError):
        return ""
    version = body.get("version") if isinstance(body, dict) else None
    if not isinstance(version, str) or not version.isprintable():
        return ""
    return version[:_LONGEST_VERSION]


def _silence() -> str:
    return f"no answer within {PATIENCE_SECONDS:g} s"
