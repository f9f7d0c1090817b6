"""domain: the environment of a container: variables, references, expansion."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Lookup = Callable[[str, str], Mapping[str, str] | None]
    """(kind, name) of a ConfigMap or Secret of the pod's namespace -> its data, None: not there."""

_REFERENCE: Final = re.compile(r"\$(\$|\(([^()]+)\))")
_LONGEST_HOST_NAME: Final = 63
_SOURCES: Final = {"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret"}
_FROM: Final = {"configMapRef": "ConfigMap", "secretRef": "Secret"}


class MissingError(Exception):
    """The container cannot start yet: something that its pod names is not there."""


def build_env(
    pod: Mapping[str, Any], container: Mapping[str, Any], lookup: Lookup, ips: Mapping[str, str]
) -> dict[str, str]:
    """The container's variables. Raises MissingError."""
    found: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        for field, kind in _FROM.items():
            if field in source:
                data = _data(kind, source[field], lookup) or {}
                prefix = source.get("prefix") or ""
                found |= {f"{prefix}{key}": value for key, value in data.items()}
    for variable in container.get("env") or ():
        value = _value(pod, variable, lookup, ips)
        if value is not None:
            found[variable["name"]] = expand(value, found)
    return found


def host_name(pod: Mapping[str, Any]) -> str:
    """The host name that its containers see; cut as kubelets cut it."""
    name: str = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return name[:_LONGEST_HOST_NAME].rstrip("-.")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME); an unknown one stays, $$ is a dollar."""

    def replaced(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else variables.get(match[2], match[0])

    return _REFERENCE.sub(replaced, text)


def field_of(pod: Mapping[str, Any], path: str, ips: Mapping[str, str]) -> str:
    """The value of a downward API field (metadata.labels['x'], status.podIP)."""
    if path in ips:
        return ips[path]
    match = re.fullmatch(r"metadata\.(labels|annotations)(?:\['([^']+)'\])?", path)
    if match:
        values: Mapping[str, str] = pod["metadata"].get(match[1]) or {}
        if match[2]:
            return values.get(match[2], "")
        return "".join(f'{key}="{value}"\n' for key, value in sorted(values.items()))
    current: Any = pod
    for part in path.split("."):
        current = current.get(part) if isinstance(current, dict) else None
    return "" if current is None else str(current)


def decode_secret(data: Mapping[str, str]) -> dict[str, str]:
    """The texts of a Secret."""
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}


def _value(
    pod: Mapping[str, Any], variable: Mapping[str, Any], lookup: Lookup, ips: Mapping[str, str]
) -> str | None:
    source = variable.get("valueFrom")
    if not source:
        return str(variable.get("value") or "")
    if "fieldRef" in source:
        return field_of(pod, source["fieldRef"]["fieldPath"], ips)
    for field, kind in _SOURCES.items():
        if field in source:
            reference = source[field]
            data = _data(kind, reference, lookup)
            if data is not None and reference["key"] in data:
                return data[reference["key"]]
            if reference.get("optional"):
                return None
            raise MissingError(
                f"couldn't find key {reference['key']} in {kind} {reference.get('name')}"
            )
    raise MissingError(f"env {variable['name']}: process mode has no {', '.join(source)}")


def _data(kind: str, reference: Mapping[str, Any], lookup: Lookup) -> Mapping[str, str] | None:
    data = lookup(kind, reference.get("name", ""))
    if data is None and not reference.get("optional"):
        raise MissingError(f'{kind.lower()} "{reference.get("name")}" not found')
    return data
