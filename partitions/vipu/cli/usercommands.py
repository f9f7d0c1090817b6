"""io: `vipu-admin` commands about users, and the file with a user's key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.json_format import MessageToDict

from partitions.vipu.cli.output import Done, Table
from partitions.vipu.errors import VipuError
from partitions.vipu.protos import vipu_users_pb2 as pb

if TYPE_CHECKING:
    import argparse

    from partitions.vipu.client import VipuClient


async def create_user(client: VipuClient, options: argparse.Namespace) -> Done:
    """Add a user and show the key. Raise VipuError."""
    question = pb.CreateUserRequest(user_id=options.name, allocation_ids=options.allocations)
    return _shown(client, await client.ask("CreateUser", question))


async def rotate_key(client: VipuClient, options: argparse.Namespace) -> Done:
    """Replace a user's key and show the new key. Raise VipuError."""
    return _shown(client, await client.ask("RotateKey", pb.RotateKeyRequest(user_id=options.name)))


async def remove_user(client: VipuClient, options: argparse.Namespace) -> None:
    """Remove a user. Raise VipuError."""
    await client.ask("RemoveUser", pb.RemoveUserRequest(user_id=options.name))


async def grant(client: VipuClient, options: argparse.Namespace) -> None:
    """Let a user see and use allocations. Raise VipuError."""
    question = pb.GrantAllocationsRequest(user_id=options.name, allocation_ids=options.allocations)
    await client.ask("GrantAllocations", question)


async def revoke(client: VipuClient, options: argparse.Namespace) -> None:
    """Take allocations from a user. Raise VipuError."""
    question = pb.RevokeAllocationsRequest(user_id=options.name, allocation_ids=options.allocations)
    await client.ask("RevokeAllocations", question)


async def list_users(client: VipuClient, options: argparse.Namespace) -> Table:
    """The users with their allocations."""
    del options
    found = (await client.ask("ListUsers", pb.ListUsersRequest())).users
    rows = [
        (
            user.id,
            " ".join(user.allocation_ids) or "-",
            user.created_at.ToJsonString(),
            user.key_created_at.ToJsonString(),
        )
        for user in found
    ]
    data = [MessageToDict(user, preserving_proto_field_name=True) for user in found]
    wide = frozenset({"Created", "Key created"})
    return Table(("User ID", "Allocations", "Created", "Key created"), rows, data, wide)


def _shown(client: VipuClient, made: pb.AccessKey) -> Done:
    """Return the key, which is also in the user's new configuration file."""
    path = Path(f"{made.user_id}.vipu-cli.hcl")
    host = client.address.rpartition(":")[0].strip("[]")
    lines = (
        ("api-host", host),
        ("api-port", str(made.api_port)),
        ("api-user-id", made.user_id),
        ("api-access-key", made.access_key),
    )
    key_line = f"Access key is '{made.access_key}'."
    try:
        _write_private(path, "".join(f'{key}="{value}"\n' for key, value in lines))
    except OSError as error:
        raise VipuError(f"{key_line} It is not written to {path}: {error.strerror}") from error
    text = (
        f"{key_line} vipu configuration file for the user '{made.user_id}' written: {path}. "
        "Give it to the user, with ca.crt and the certificate of the role user."
    )
    return Done(text, {"access_key": made.access_key, "config_file": str(path)})


def _write_private(path: Path, text: str) -> None:
    """Replace a file, readable by its owner only from the start."""
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)
