"""io: where the operator's objects live in the API."""

from __future__ import annotations

from ipuhub.kube.resources import (
    CONFIG_MAPS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Resource,
)
from jobs.ipujob.names import GROUP, KIND, VERSION
from jobs.operator.actions import Kind

IPUJOBS = Resource(GROUP, VERSION, "ipujobs", KIND)
RESOURCE_OF: dict[Kind, Resource] = {
    Kind.POD: PODS,
    Kind.CONFIG_MAP: CONFIG_MAPS,
    Kind.SERVICE_ACCOUNT: SERVICE_ACCOUNTS,
    Kind.ROLE: ROLES,
    Kind.ROLE_BINDING: ROLE_BINDINGS,
}
