"""domain: the protobuf bodies that kubectl's own commands send, decoded by a table of fields.

`kubectl create token`, `auth can-i`, `create configmap` and their like write protobuf whatever the
server offers. Only the messages they need are listed; the field numbers are those of the API's
published .proto files.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAGIC: Final = b"k8s\x00"
# field number -> "name:type"; types: s text, b bytes, i integer, t boolean, a message name,
# *X a list of X, %s and %b maps from text.
_METADATA = (
    "1 name:s,2 generateName:s,3 namespace:s,5 uid:s,6 resourceVersion:s,"
    "11 labels:%s,12 annotations:%s,13 ownerReferences:*OwnerReference,14 finalizers:*s"
)
_ROLE = "1 metadata:ObjectMeta,2 rules:*PolicyRule"
_BINDING = "1 metadata:ObjectMeta,2 subjects:*Subject,3 roleRef:RoleRef"
_ACCESS = "1 resourceAttributes:ResourceAttributes,2 nonResourceAttributes:NonResourceAttributes"
_REVIEW = "1 metadata:ObjectMeta,2 spec:"
_MESSAGES: Final[Mapping[str, str]] = {
    "ObjectMeta": _METADATA,
    "OwnerReference": "1 kind:s,3 name:s,4 uid:s,5 apiVersion:s,6 controller:t,"
    "7 blockOwnerDeletion:t",
    "ObjectReference": "1 kind:s,2 namespace:s,3 name:s,4 uid:s,5 apiVersion:s",
    "ConfigMap": "1 metadata:ObjectMeta,2 data:%s,3 binaryData:%b,4 immutable:t",
    "Secret": "1 metadata:ObjectMeta,2 data:%b,3 type:s,4 stringData:%s,5 immutable:t",
    "Namespace": "1 metadata:ObjectMeta",
    "ServiceAccount": "1 metadata:ObjectMeta,4 automountServiceAccountToken:t",
    "PriorityClass": "1 metadata:ObjectMeta,2 value:i,3 globalDefault:t,4 description:s,"
    "5 preemptionPolicy:s",
    "PolicyRule": "1 verbs:*s,2 apiGroups:*s,3 resources:*s,4 resourceNames:*s,"
    "5 nonResourceURLs:*s",
    "Subject": "1 kind:s,2 apiGroup:s,3 name:s,4 namespace:s",
    "RoleRef": "1 apiGroup:s,2 kind:s,3 name:s",
    "Role": _ROLE,
    "ClusterRole": _ROLE,
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "TokenRequest": f"{_REVIEW}TokenRequestSpec",
    "TokenRequestSpec": "1 audiences:*s,3 boundObjectRef:BoundObjectReference,"
    "4 expirationSeconds:i",
    "BoundObjectReference": "1 kind:s,2 apiVersion:s,3 name:s,4 uid:s",
    "TokenReview": f"{_REVIEW}TokenReviewSpec",
    "TokenReviewSpec": "1 token:s,2 audiences:*s",
    "SelfSubjectReview": "1 metadata:ObjectMeta",
    "SelfSubjectAccessReview": f"{_REVIEW}SelfSubjectAccessReviewSpec",
    "SelfSubjectAccessReviewSpec": _ACCESS,
    "SubjectAccessReview": f"{_REVIEW}SubjectAccessReviewSpec",
    "LocalSubjectAccessReview": f"{_REVIEW}SubjectAccessReviewSpec",
    "SubjectAccessReviewSpec": f"{_ACCESS},3 user:s,4 groups:*s,6 uid:s",
    "SelfSubjectRulesReview": f"{_REVIEW}SelfSubjectRulesReviewSpec",
    "SelfSubjectRulesReviewSpec": "1 namespace:s",
    "ResourceAttributes": "1 namespace:s,2 verb:s,3 group:s,4 version:s,5 resource:s,"
    "6 subresource:s,7 name:s",
    "NonResourceAttributes": "1 path:s,2 verb:s",
    "DeleteOptions": "1 gracePeriodSeconds:i,2 preconditions:Preconditions,3 orphanDependents:t,"
    "4 propagationPolicy:s,5 dryRun:*s",
    "Preconditions": "1 uid:s,2 resourceVersion:s",
    "Eviction": "1 metadata:ObjectMeta,2 deleteOptions:DeleteOptions",
    "Binding": "1 metadata:ObjectMeta,2 target:ObjectReference",
}
_LONGEST_VARINT: Final = 63
_UNKNOWN: Final = "1 typeMeta:TypeMeta,2 raw:r"
_TYPE_META: Final = "1 apiVersion:s,2 kind:s"


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
