"""domain: the matchConditions of webhooks: CEL expressions that a request must meet.

A condition is compiled twice: with the fields of `request` declared, to reject misspelled fields as
a real server does, and without, because absent fields are absent at evaluation.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from cel_expr_python import cel
from cel_expr_python.ext.ext_optional import ExtOptional
from cel_expr_python.ext.ext_strings import ExtStrings
from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2

from devcluster.status import FieldError, duplicate, invalid_value, required
from devcluster.storage.metadata import check_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_AT_MOST: Final = 64
_OBJECTS: Final = ("object", "oldObject", "namespaceObject")
_PACKAGE: Final = "kubernetes"
_VALUE: Final = ".google.protobuf.Value"  # of any type
_KIND: Final = {"group": "string", "version": "string", "kind": "string"}
_RESOURCE: Final = {"group": "string", "version": "string", "resource": "string"}
_MESSAGES: Final[dict[str, dict[str, str]]] = {
    "GroupVersionKind": _KIND,
    "GroupVersionResource": _RESOURCE,
    "UserInfo": {"username": "string", "uid": "string", "groups": "strings", "extra": _VALUE},
    "AdmissionRequest": {
        "kind": f".{_PACKAGE}.GroupVersionKind",
        "resource": f".{_PACKAGE}.GroupVersionResource",
        "subResource": "string",
        "requestKind": f".{_PACKAGE}.GroupVersionKind",
        "requestResource": f".{_PACKAGE}.GroupVersionResource",
        "requestSubResource": "string",
        "name": "string",
        "namespace": "string",
        "operation": "string",
        "userInfo": f".{_PACKAGE}.UserInfo",
        "dryRun": "bool",
        "options": _VALUE,
    },
}
"""The fields of `request`: an AdmissionRequest without its UID and objects."""
_UNKNOWN: Final = (
    "(the embedded API knows the functions of CEL itself, its strings and its optional values, "
    "but no authorizer and none of the libraries of Kubernetes)"
)
_NO_KEY: Final = re.compile(r'Key not found in map : "(.*)"', re.DOTALL)


class ConditionError(Exception):
    """Conditions could not be evaluated; the message names each with its problem."""


def find_faults(conditions: Sequence[Mapping[str, Any]], field: str) -> Iterator[FieldError]:
    """Yield what is wrong with a webhook's conditions, the expressions' compilation included."""
    if len(conditions) > _AT_MOST:
        message = f"Too many: {len(conditions)}: must have at most {_AT_MOST} items"
        yield FieldError(field, "FieldValueTooMany", message)
        return
    seen: set[str] = set()
    for number, condition in enumerate(conditions):
        name, expression = condition.get("name") or "", condition.get("expression") or ""
        yield from _find_expression_faults(expression, f"{field}[{number}].expression")
        where = f"{field}[{number}].name"
        yield from check_key(where, name) if name else [required(where)]
        if name and name in seen:
            yield duplicate(where, name)
        seen.add(name)


def are_met(conditions: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> bool:
    """Return whether the request meets all conditions; a condition that is not met outdoes any
    error.

    Raises ConditionError.
    """
    problems = []
    for condition in conditions:
        expression = condition.get("expression") or ""
        try:
            if not _evaluate(expression, variables):
                return False
        except ConditionError as error:
            problems.append(f"expression '{expression}' resulted in error: {error}")
    if problems:
        raise ConditionError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return True


def build_variables(
    review: Mapping[str, Any], new: Mapping[str, Any] | None, old: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return what expressions see of a request, of which `review` is the AdmissionReview."""
    hidden = {"uid", "object", "oldObject"}
    request = {key: value for key, value in review["request"].items() if key not in hidden}
    return {"request": request, "object": new, "oldObject": old, "namespaceObject": None}


def _find_expression_faults(expression: str, field: str) -> Iterator[FieldError]:
    if not expression.strip():
        yield required(field)
        return
    try:
        found = _checking_environment().compile(expression).return_type()
    except RuntimeError as error:  # the library has no other
        problem = f"compilation failed: {_words_of(error)}"
        if "undeclared reference" in problem:
            problem = f"{problem}\n{_UNKNOWN}"
        yield invalid_value(field, expression, problem)
        return
    if found != cel.Type.BOOL:
        name = "null_type" if found == cel.Type.NULL else found.name()
        type_name = name if "." in name else name.lower()
        yield invalid_value(field, expression, f"must evaluate to bool but got {type_name}")


def _evaluate(expression: str, variables: Mapping[str, Any]) -> bool:
    try:
        result = _compile(expression).eval(data=variables)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise ConditionError(_words_of(error)) from error
    if result.type() == cel.Type.ERROR:
        words = _words_of(result.value())
        missing = _NO_KEY.fullmatch(words)
        raise ConditionError(f"no such key: {missing[1]}" if missing else words)
    return result.value() is True


def _words_of(error: object) -> str:
    """Return the library's message without the name of its status before and after it."""
    return re.sub(r"^[A-Z_]+: | \[[A-Z_]+\]$", "", str(error))


@lru_cache(maxsize=512)
def _compile(expression: str) -> Any:
    return _environment().compile(expression)


@cache
def _environment() -> Any:
    """Expressions as they are evaluated: every variable of any type."""
    variables = dict.fromkeys((*_OBJECTS, "request"), cel.Type.DYN)
    return cel.NewEnv(variables=variables, extensions=[ExtOptional(), ExtStrings()])


@cache
def _checking_environment() -> Any:
    """Expressions as they are checked: `request` has just its fields."""
    request = cel.Type(f"{_PACKAGE}.AdmissionRequest")
    variables = {**dict.fromkeys(_OBJECTS, cel.Type.DYN), "request": request}
    extensions = [ExtOptional(), ExtStrings()]
    return cel.NewEnv(descriptor_pool=_request_types(), variables=variables, extensions=extensions)


def _request_types() -> descriptor_pool.DescriptorPool:
    """Return the messages of _MESSAGES, the only structs that the library knows."""
    file = descriptor_pb2.FileDescriptorProto(
        name="admission.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=["google/protobuf/struct.proto"],
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, type_name) in enumerate(fields.items(), 1):
            message.field.append(_field(field, number, type_name))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return pool


def _field(name: str, number: int, type_name: str) -> descriptor_pb2.FieldDescriptorProto:
    kinds = descriptor_pb2.FieldDescriptorProto
    field = kinds(name=name, number=number, label=kinds.LABEL_OPTIONAL)
    if type_name.startswith("."):
        field.type, field.type_name = kinds.TYPE_MESSAGE, type_name
    else:
        field.type = kinds.TYPE_BOOL if type_name == "bool" else kinds.TYPE_STRING
    if type_name == "strings":
        field.label = kinds.LABEL_REPEATED
    return field
