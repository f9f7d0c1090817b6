"""Messages that are valid for the wire and mostly nonsense, the same for the same seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import message_factory
from grpc import StatusCode

if TYPE_CHECKING:
    from random import Random

    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

SAID = {
    StatusCode.INVALID_ARGUMENT,
    StatusCode.NOT_FOUND,
    StatusCode.ALREADY_EXISTS,
    StatusCode.RESOURCE_EXHAUSTED,
    StatusCode.FAILED_PRECONDITION,
    StatusCode.PERMISSION_DENIED,
}
TEXTS = [
    *("", "p", "p-1", "0", "-", "default", "ag0", "ag1", "ag2", "c1", "c2", "d1", "d2"),
    *(
        "a" * 300,
        "ä\u202e\x00",
        "../x",
        "p\n",
        "%s",
        "{0}",
        "GS2_DEFAULT",
        "DNC",
        "\U0001f600" * 90,
    ),
]
NUMBERS = [0, 1, 2, 3, 4, 5, 64, 65, 128, 2**31 - 1]


def value(random: Random, field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        return message(random, field.message_type)
    if field.type == field.TYPE_STRING:
        return random.choice(TEXTS)
    if field.type == field.TYPE_BOOL:
        return random.random() < 0.5
    if field.type == field.TYPE_ENUM:
        return random.choice([*range(6), 99, -1])
    if field.type in {field.TYPE_INT64, field.TYPE_INT32}:
        return random.choice([*NUMBERS, -1, -(2**31)])
    if field.type == field.TYPE_UINT32:
        return random.choice([*NUMBERS, 2**32 - 1])
    return random.choice(NUMBERS)


def message(random: Random, descriptor: Descriptor) -> Message:
    made = message_factory.GetMessageClass(descriptor)()
    left_out = random.choice([0.3, 0.8])
    for field in descriptor.fields:
        if random.random() < left_out:
            continue
        if field.is_repeated:
            few = [value(random, field) for _ in range(random.choice([0, 1, 2, 70]))]
            getattr(made, field.name).extend(few)
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(value(random, field))
        else:
            setattr(made, field.name, value(random, field))
    return made
