"""io: users over the admin API, and keys for pods over the user API."""

# gRPC calls the methods by the names of the interface.
# ruff: noqa: N802
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp

from partitions.vipu.errors import NotReady
from partitions.vipu.protos import vipu_users_pb2 as pb
from partitions.vipu.protos.vipu_users_pb2_grpc import (
    PartitionKeyServiceServicer,
    UserAdminServiceServicer,
)
from partitions.vipu.server import users
from partitions.vipu.server.services.partitions import answering, answering_caller
from partitions.vipu.server.userrecords import UserRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from grpc import ServicerContext

    from partitions.vipu.server.controller import Controller
    from partitions.vipu.server.state import Draft


class UserAdminService(UserAdminServiceServicer):
    """The users and their allocations; `api_port` is where users call."""

    def __init__(self, controller: Controller, api_port: int) -> None:
        self._controller = controller
        self._api_port = api_port

    @answering
    def ListUsers(self, request: pb.ListUsersRequest) -> pb.ListUsersReply:
        """Answer with the users by name, without anything of their keys."""
        del request
        found = sorted(self._controller.state.users.values(), key=lambda user: user.id)
        return pb.ListUsersReply(
            users=[
                pb.User(
                    id=user.id,
                    allocation_ids=user.allocations,
                    created_at=_time(user.created_at),
                    key_created_at=_time(user.key_created_at),
                )
                for user in found
            ]
        )

    @answering
    def CreateUser(self, request: pb.CreateUserRequest) -> pb.AccessKey:
        """Add a user and answer with the key."""
        key, now = users.new_key(), self._controller.clock()
        allocations = tuple(sorted(set(request.allocation_ids)))
        user = UserRecord(request.user_id, users.hash_key(key), allocations, now, now)
        self._change("user created", user.id, lambda draft: users.create_user(draft, user))
        return pb.AccessKey(user_id=user.id, access_key=key, api_port=self._api_port)

    @answering
    def RemoveUser(self, request: pb.RemoveUserRequest) -> pb.RemoveUserReply:
        """Remove a user; the user's partitions stay."""
        name = request.user_id
        self._change("user removed", name, lambda draft: users.remove_user(draft, name))
        return pb.RemoveUserReply()

    @answering
    def RotateKey(self, request: pb.RotateKeyRequest) -> pb.AccessKey:
        """Answer with a new key; the old key ends."""
        name, key, now = request.user_id, users.new_key(), self._controller.clock()
        self._change(
            "key of user changed", name, lambda draft: users.put_key(draft, name, key, now)
        )
        return pb.AccessKey(user_id=name, access_key=key, api_port=self._api_port)

    @answering
    def GrantAllocations(self, request: pb.GrantAllocationsRequest) -> pb.GrantAllocationsReply:
        """Let a user see and use allocations."""
        name, ids = request.user_id, tuple(request.allocation_ids)
        self._change("allocations granted", name, lambda draft: users.grant(draft, name, ids))
        return pb.GrantAllocationsReply()

    @answering
    def RevokeAllocations(self, request: pb.RevokeAllocationsRequest) -> pb.RevokeAllocationsReply:
        """Take allocations from a user."""
        name, ids = request.user_id, tuple(request.allocation_ids)
        self._change("allocations revoked", name, lambda draft: users.revoke(draft, name, ids))
        return pb.RevokeAllocationsReply()

    def _change(self, what: str, user_id: str, change: Callable[[Draft], None]) -> None:
        self._controller.change(change, what, user=user_id)


class PartitionKeyService(PartitionKeyServiceServicer):
    """Keys by which the pods of a job read the job's own partition."""

    def __init__(
        self, controller: Controller, caller_of: Callable[[ServicerContext], users.Caller]
    ) -> None:
        self._controller = controller
        self.caller_of = caller_of

    @answering_caller
    def CreatePartitionKey(
        self, request: pb.CreatePartitionKeyRequest, caller: users.Caller
    ) -> pb.AccessKey:
        """Answer with a key that ends with the partition."""
        key = users.new_key()
        self._put(request.partition_id, users.hash_key(key), caller)
        return pb.AccessKey(user_id=f"{users.POD_PREFIX}{request.partition_id}", access_key=key)

    @answering_caller
    def RevokePartitionKey(
        self, request: pb.RevokePartitionKeyRequest, caller: users.Caller
    ) -> pb.RevokePartitionKeyReply:
        """End the key of a partition, if it has a key."""
        self._put(request.partition_id, "", caller)
        return pb.RevokePartitionKeyReply()

    def _put(self, partition_id: str, key_hash: str, caller: users.Caller) -> None:
        caller.require_user()

        def put(draft: Draft) -> None:
            record = users.visible(draft.partitions, partition_id, caller)
            if record.is_removing:
                raise NotReady(f"partition {partition_id} is being removed: it gets no key")
            draft.put(replace(record, reader_hash=key_hash))

        what = "partition key made" if key_hash else "partition key revoked"
        self._controller.change(put, what, partition=partition_id)


def _time(at: datetime) -> Timestamp:
    found = Timestamp()
    found.FromDatetime(at)
    return found
