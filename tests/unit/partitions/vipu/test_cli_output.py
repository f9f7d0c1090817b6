"""Tables of `vipu`: what a newer controller says, and what would steer the terminal."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from partitions.vipu.cli.commands import list_partitions
from partitions.vipu.cli.output import Table, write
from partitions.vipu.protos import vipu_user_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.message import Message


class Newer:
    """A controller with states, routings and fields that this release does not know."""

    async def ask(self, method: str, question: Message) -> Any:
        assert method == "ListPartitions"
        partition = pb.Partition(id="p\x1b[31m")
        partition.MergeFromString(b"\x18\x63" + b"\xa2\x06\x01x")  # ready_state 99, field 100
        partition.spec.ipulink_routing_type = 77  # type: ignore[assignment]
        return pb.ListPartitionsReply(partitions=[partition])


async def test_values_of_a_newer_controller_are_shown_as_numbers() -> None:
    table = await list_partitions(Newer(), Namespace(allocation=None))  # type: ignore[arg-type]
    line = write(table, "table").splitlines()[2]
    assert [part.strip() for part in line.split("|")] == [
        "p\ufffd[31m", "-", "-", "DEFAULT", "77", "0", "1", "99",
    ]  # fmt: skip
    assert '"ready_state": 99' in write(table, "json")


def test_an_empty_list_has_its_heads_and_is_an_empty_list_for_programs() -> None:
    table = Table(("A", "B"), [], [], frozenset({"B"}))
    assert write(table, "table") == " A\n---\n---"
    assert write(table, "wide").startswith(" A | B\n")
    assert (write(table, "json"), write(table, "yaml")) == ("[]", "[]")
