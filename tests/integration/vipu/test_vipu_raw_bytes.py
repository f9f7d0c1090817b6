"""The user API in bytes written and read by hand: no generated code between the two."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import grpc

from partitions.vipu.server.machines import IPUOF_VERSION
from tests.unit.partitions.vipu.test_vipu_wire import encode

if TYPE_CHECKING:
    from partitions.vipu.server.main import VipuServer

    from .conftest import Clock

IPUS = [(2, []), (2, [(3, 1), (4, 1)])]  # of two IPUs; what is 0 is left out
SPEC = [(1, "default"), *IPUS, (3, 1), (4, 1), (5, 2), (6, 1), (9, 2), (10, "default")]


def decode(raw: bytes) -> list[tuple[int, int | bytes]]:
    """The fields of a message: numbers, and lengths with their bytes."""
    found: list[tuple[int, int | bytes]] = []
    while raw:
        key, raw = number(raw)
        value, raw = number(raw)
        if key & 7 == 2:
            found.append((key >> 3, raw[:value]))
            raw = raw[value:]
        else:
            found.append((key >> 3, value))
    return found


def text_pair(raw: bytes) -> tuple[str, str]:
    """An entry of a map from texts to texts; what is empty is left out."""
    found = dict(decode(raw))
    return bytes(found.get(1, b"")).decode(), bytes(found.get(2, b"")).decode()


def number(raw: bytes) -> tuple[int, bytes]:
    value = 0
    for index, byte in enumerate(raw):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, raw[index + 1 :]
    raise ValueError("no end")


def test_bytes_of_the_published_numbers_make_show_reset_and_remove_a_partition(
    server: tuple[VipuServer, int], clock: Clock, published_only: bool
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server[1]}") as channel:

        def ask(method: str, request: bytes, service: str = "UserService") -> bytes:
            call = channel.unary_unary(f"/virmgrpc.{service}/{method}")
            answer = call(request, timeout=60)
            assert isinstance(answer, bytes)
            return answer

        wanted = encode([(2, [(1, "p"), (2, 2), (8, 2), (10, 2)]), (3, True), (5, True)])
        assert ask("CreatePartition", wanted) == encode([(1, "p")])
        clock.forward(60)
        record = server[0].controller.get("p")
        assert (record.num_gcds, record.auto_reset, record.relocatable) == (2, False, True)
        partition = [(1, "p"), (2, SPEC), (3, 2), (4, IPUOF_VERSION)]
        assert ask("ListPartitions", encode([(1, "default")])) == encode([(1, partition)])
        status = [(1, "p"), (2, 2), (3, 1)]
        assert ask("GetPartitionStatus", encode([(1, "p")])) == encode([(1, status)])
        answer = ask("GetPartitionIpuofConfig", encode([(1, "p"), (2, [(1, 1)])]))
        ((one, raw),) = decode(answer)
        assert (one, isinstance(raw, bytes)) == (1, True)
        config = dict(decode(bytes(raw)))
        assert {name: config[name] for name in (2, 3, 7)} == {2: 1, 3: 1, 7: 1}
        assert config[9] == IPUOF_VERSION.encode()
        devices = [value for name, value in decode(bytes(config[8])) if name == 2]
        (device,) = (dict(decode(bytes(each))) for each in devices)
        assert str(device[1], "ascii").startswith("10.")  # type: ignore[arg-type]
        assert (device[4], device[6], device[8]) == (1, 1, 1)
        assert ask("ResetPartition", encode([(1, "p")])) == b""
        resetting = [(1, "p"), (2, 1), (3, 4)]
        assert ask("GetPartitionStatus", encode([(1, "p")])) == encode([(1, resetting)])
        clock.forward(60)
        assert ask("GetPartitionStatus", encode([(1, "p")])) == encode([(1, status)])
        ((one, raw),) = decode(ask("ListIPUAttributes", encode([(1, "ag0")])))
        assert one == 1
        agent, *ipus = decode(bytes(raw))
        assert agent == (1, b"ag0")
        assert [name for name, _ in ipus] == [2] * 4
        by_number = [dict(decode(bytes(ipu))) for _, ipu in ipus]
        known = {
            ipu.get(1, 0): dict(text_pair(bytes(pair)) for _, pair in decode(bytes(ipu[2])))
            for ipu in by_number
        }
        attributes = server[0].controller.attributes(["ag0"], published_only=published_only)
        assert known == attributes["ag0"]
        assert ask("GetVersion", b"", "VersionService") == encode([(1, version("ipuhub"))])
        assert ask("RemovePartition", encode([(1, "p")])) == b""
        assert ask("ListPartitions", b"") == b""
