"""domain: decodes protobuf bodies of kubectl's own commands with a table of fields.

`kubectl create token`, `auth can-i`, `create configmap` and their like write protobuf whatever the
server offers. `protobuf_messages.json` lists the messages they need, each field as
`number name:type` with the numbers of the API's published .proto files. Types: s text, b bytes,
i integer, t boolean, a message's name; *X is a list of X, %s and %b are maps from text.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAGIC: Final = b"k8s\x00"
_LONGEST_VARINT: Final = 63
_UNKNOWN: Final = "1 typeMeta:TypeMeta,2 raw:r"
_TYPE_META: Final = "1 apiVersion:s,2 kind:s"
_FILE: Final = Path(__file__).with_name("protobuf_messages.json")
_MESSAGES: Final[Mapping[str, str]] = json.loads(_FILE.read_text(encoding="utf-8"))


class UnreadableError(ValueError):
    """The body is protobuf of a message that is not in the table, or broken; `kind` names it."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def decode(data: bytes) -> dict[str, Any]:
    """Return the object in a Kubernetes protobuf body. Raises UnreadableError."""
    if not data.startswith(MAGIC):
        raise UnreadableError("")
    kind = ""
    try:
        envelope = _decode(memoryview(data)[len(MAGIC) :], _UNKNOWN)
        head = envelope["typeMeta"]
        kind = head["kind"]
        return {**head, **_decode(envelope.get("raw", memoryview(b"")), _MESSAGES[kind])}
    except (KeyError, IndexError, UnicodeDecodeError, ValueError) as error:
        raise UnreadableError(kind) from error


def _decode(data: memoryview, message: str) -> dict[str, Any]:
    entries = (entry.partition(" ") for entry in message.split(","))
    names = {int(digits): rest for digits, _, rest in entries}
    decoded: dict[str, Any] = {}
    for number, value in _fields(data):
        if number not in names:
            continue
        name, _, kind = names[number].partition(":")
        if kind.startswith("*"):
            decoded.setdefault(name, []).append(_value(value, kind[1:]))
        elif kind.startswith("%"):
            entry_fields = dict(_fields(_bytes(value)))
            key = str(_bytes(entry_fields.get(1, memoryview(b""))), "utf-8")
            content = entry_fields.get(2, memoryview(b""))
            decoded.setdefault(name, {})[key] = _value(content, kind[1:])
        elif (found := _value(value, kind)) not in ("", {}):
            # Go's marshaller writes empty texts and messages that JSON leaves out.
            decoded[name] = found
    return decoded


def _value(value: int | memoryview, kind: str) -> Any:
    if kind == "i":
        number = int(value) if isinstance(value, int) else 0
        return number - (1 << 64) if number >> 63 else number
    if kind == "t":
        return bool(value)
    data = _bytes(value)
    if kind == "r":
        return data
    if kind == "s":
        return str(data, "utf-8")
    if kind == "b":
        return base64.b64encode(data).decode()
    return _decode(data, _TYPE_META if kind == "TypeMeta" else _MESSAGES[kind])


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where bytes are due")  # noqa: TRY004  # a broken body
    return value


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in {1, 5}:
            size = 8 if wire == 1 else 4
        else:
            raise ValueError("unknown wire type")
        if at + size > len(data):
            raise ValueError("the body ends inside a field")
        yield number, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _LONGEST_VARINT:
            raise ValueError("a number of more than 64 bits")
