"""io: the context of the handlers of the embedded API.

A separate module, because the routes import the handlers, and neither handlers nor their helpers
may import the routes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from aiohttp import web

    from devcluster.nodelink import NodeLink
    from devcluster.requests import ApiRequest
    from devcluster.schemas.registry import Registry
    from devcluster.security.authentication import Authenticator
    from devcluster.security.authorization import Authorizer
    from devcluster.storage.objects import Objects
    from devcluster.storage.store import Store
    from devcluster.storage.watchers import Watchers
    from devcluster.webhooks.admitted import AdmittedWrites

    Handler = Callable[["Api", ApiRequest], Awaitable[web.StreamResponse]]
    """Answers the requests of one verb on objects, on a collection or on a subresource."""


@dataclass(frozen=True, slots=True)
class Api:
    """The parts of the embedded API that handlers work with."""

    store: Store
    registry: Registry
    objects: Objects
    admitted: AdmittedWrites
    watchers: Watchers
    authenticator: Authenticator
    authorizer: Authorizer
    nodes: NodeLink
    clock: Callable[[], datetime]
