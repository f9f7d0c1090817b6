"""io: connects the API server to nodes that run processes: exec, attach and logs.

A node publishes its address in its status and its certificate in an annotation. As on any cluster,
every client that may write nodes is trusted. Only loopback addresses are called.
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from ipuhub.certificates import write_private

if TYPE_CHECKING:
    from pathlib import Path

    from devcluster.security.certificates import Authority
    from devcluster.storage.store import Store

CERTIFICATE: Final = "ipuhub.io/kubelet-certificate"
CLIENT: Final = "kube-apiserver-kubelet-client"
_CONNECT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """The address of a node, and its certificate."""

    url: str
    certificate: str


class NodeLink:
    """Connections to nodes, as the API server."""

    def __init__(self, store: Store, authority: Authority, folder: Path) -> None:
        self._store, self._pem = store, folder / "kubelet-client.pem"
        issued = authority.issue(CLIENT, ("system:masters",))
        write_private(self._pem, issued.key + issued.certificate)
        self._session: aiohttp.ClientSession | None = None
        self._trust: dict[str, ssl.SSLContext] = {}

    def address_of(self, pod: dict[str, Any]) -> NodeAddress | None:
        """Return the address of the pod's node; None: it runs no processes."""
        node = self._store.get("nodes", "", pod["spec"].get("nodeName") or "")
        if node is None:
            return None
        status, metadata = node.body.get("status") or {}, node.body["metadata"]
        endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
        certificate = (metadata.get("annotations") or {}).get(CERTIFICATE, "")
        addresses = [
            address["address"]
            for address in status.get("addresses") or ()
            if address["type"] == "InternalIP" and _is_loopback(address["address"])
        ]
        if not (endpoint.get("Port") and certificate and addresses):
            return None
        return NodeAddress(f"https://{addresses[0]}:{endpoint['Port']}", certificate)

    def get(self, address: NodeAddress, path: str, query: Any) -> Any:
        """An HTTP GET, as an async context."""
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS)
        url = f"{address.url}{path}"
        return self._open().get(url, params=query, ssl=self._context(address), timeout=timeout)

    def open_socket(self, address: NodeAddress, path: str, query: Any, protocol: str) -> Any:
        """A WebSocket, as an async context."""
        return self._open().ws_connect(
            f"{address.url}{path}",
            params=query,
            protocols=(protocol,),
            ssl=self._context(address),
            max_msg_size=0,
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session

    def _context(self, address: NodeAddress) -> ssl.SSLContext:
        context = self._trust.get(address.certificate)
        if context is None:
            context = ssl.create_default_context(cadata=address.certificate)
            context.load_cert_chain(self._pem)
            self._trust = {address.certificate: context}
        return context


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
