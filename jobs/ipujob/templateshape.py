"""domain: the types of the fields of template and launcher that IPUHub itself reads or adds to.

The schema of our CRD refuses other types; a CRD of another source may not. All other fields
Kubernetes judges when it gets the pods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Shape = tuple[str, Callable[[Any], bool]]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_named(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict) and isinstance(each.get("name", ""), str) for each in value
    )


def _is_map(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


_OBJECT: Final[Shape] = ("an object", _is_object)
_TEXTS: Final[Shape] = ("a list of strings", _are_texts)
_NAMED: Final[Shape] = ("a list of objects whose names are strings", _are_named)
_MAP: Final[Shape] = ("an object of strings", _is_map)

_TEMPLATE: Final[Mapping[str, Shape]] = {
    "metadata": _OBJECT,
    "metadata.labels": _MAP,
    "metadata.annotations": _MAP,
    "spec.nodeSelector": _MAP,
    "spec.volumes": _NAMED,
    "spec.imagePullSecrets": _NAMED,
    "spec.initContainers": _NAMED,
}
_CONTAINER: Final[Mapping[str, Shape]] = {
    "env": _NAMED,
    "volumeMounts": _NAMED,
    "securityContext": _OBJECT,
    "securityContext.capabilities": _OBJECT,
    "securityContext.capabilities.add": _TEXTS,
    "securityContext.capabilities.drop": _TEXTS,
}
_LAUNCHER: Final[Mapping[str, Shape]] = {"env": _NAMED}


def wrong_types(template: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the path below the template of each field of a wrong type, and the type it must have.

    `template.spec.containers` is a list already. A missing field and null are right.
    """
    yield from _wrong(template, _TEMPLATE, "")
    for index, container in enumerate(template["spec"]["containers"]):
        yield from _wrong(container, _CONTAINER, f"spec.containers[{index}].")


def wrong_launcher_types(launcher: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the same of the fields of `spec.launcher`."""
    yield from _wrong(launcher, _LAUNCHER, "")


def _wrong(
    node: Mapping[str, Any], shapes: Mapping[str, Shape], prefix: str
) -> Iterator[tuple[str, str]]:
    for path, (wanted, fits) in shapes.items():
        value: Any = node
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None and not fits(value):
            yield f"{prefix}{path}", wanted
