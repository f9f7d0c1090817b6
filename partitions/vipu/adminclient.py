"""io: the client of the V-IPU admin API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from partitions.vipu.client import VipuClient
from partitions.vipu.protos import vipu_admin_pb2 as pb
from partitions.vipu.protos.vipu_admin_pb2_grpc import AdminServiceStub

if TYPE_CHECKING:
    from google.protobuf.message import Message


class AdminClient(VipuClient):
    """The admin end-point of one controller; errors and connection as of VipuClient."""

    async def ask(self, method: str, question: Message) -> Any:
        """Call a method of AdminService by its name; raises VipuError."""
        return await self._call(getattr(AdminServiceStub(self._connection), method), question)

    async def version(self) -> str:
        """The version of the controller."""
        server: pb.Server = await self.ask("GetServer", pb.GetServerRequest())
        return server.version
