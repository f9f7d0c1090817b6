"""domain: strategic merge patch with its directives except `$setElementOrder`: new items go last.

Which lists merge, and by which key, is data: a mapping from the dotted path of a list in its kind
(`spec.template.spec.containers`) to the merge key, empty for lists of texts that merge as sets.
Lists without an entry are replaced as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devcluster.status import StatusError, bad_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList/"


def strategic_merge(
    original: dict[str, Any], patch: dict[str, Any], merge_keys: Mapping[str, str]
) -> dict[str, Any]:
    """`original` after `patch`; the result may share parts with both.

    Raises StatusError: 400 for a malformed directive, 500 (as the server does) for a list item
    without its merge key and for an unknown directive.
    """
    return _Merge(merge_keys).maps(original, patch, "")


@dataclass(frozen=True, slots=True)
class _Merge:
    keys: Mapping[str, str]

    def maps(self, original: dict[str, Any], patch: dict[str, Any], path: str) -> dict[str, Any]:
        directive = _directive_of(patch)
        if directive == "delete":
            return {}
        if directive == "replace":
            return _cleaned_map(patch)
        result = dict(original)
        _retain_keys(result, patch)
        for key, value in patch.items():
            if key.startswith(_DELETE_FROM):
                _delete_from(result, key.removeprefix(_DELETE_FROM), value)
        for key, value in patch.items():
            if not key.startswith("$"):
                self._merge_member(result, key, value, path)
        return result

    def _merge_member(self, result: dict[str, Any], key: str, value: Any, path: str) -> None:
        below = f"{path}.{key}" if path else key
        current = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(current, dict):
            result[key] = self.maps(current, value, below)
        elif isinstance(value, list) and isinstance(current, list) and below in self.keys:
            result[key] = self._lists(current, value, below)
        else:
            result[key] = _cleaned(value)

    def _lists(self, original: list[Any], patch: list[Any], path: str) -> list[Any]:
        merge_key = self.keys[path]
        identify = _identifier(merge_key)
        plain = [item for item in patch if _directive_of(item) not in {"delete", "replace"}]
        if any(_directive_of(item) == "replace" for item in patch):
            return [_cleaned(item) for item in plain]
        deleted = {identify(item) for item in patch if _directive_of(item) == "delete"}
        merged = [item for item in original if identify(item) not in deleted]
        for item in plain:
            self._merge_item(merged, item, path, identify)
        return merged

    def _merge_item(
        self, merged: list[Any], item: Any, path: str, identify: Callable[[Any], Any]
    ) -> None:
        wanted = identify(item)
        for at, current in enumerate(merged):
            if identify(current) == wanted:
                if isinstance(item, dict):
                    merged[at] = self.maps(current, item, path)
                return
        merged.append(_cleaned(item))


def _identifier(merge_key: str) -> Callable[[Any], Any]:
    """A function from a list item to what identifies it in its list."""

    def identify(item: Any) -> Any:
        if not merge_key:
            if isinstance(item, (dict, list)):
                raise bad_request("invalid patch format of primitive list")
            return item
        if not isinstance(item, dict):
            raise _failure(f"expected a map in a list merged by {merge_key}, found {item}")
        if merge_key not in item:
            raise _failure(f"map: {_go_map(item)} does not contain declared merge key: {merge_key}")
        if isinstance(item[merge_key], (dict, list)):
            raise bad_request(f"the merge key {merge_key} of {_go_map(item)} is no plain value")
        return item[merge_key]

    return identify


def _retain_keys(result: dict[str, Any], patch: dict[str, Any]) -> None:
    if _RETAIN not in patch:
        return
    retained = patch[_RETAIN]
    set_by_patch = {
        key for key, value in patch.items() if value is not None and not key.startswith("$")
    }
    if not isinstance(retained, list) or not all(key in retained for key in set_by_patch):
        raise bad_request("invalid patch format of retainKeys")
    for key in [key for key in result if key not in retained]:
        del result[key]


def _delete_from(result: dict[str, Any], field: str, values: Any) -> None:
    if not isinstance(values, list):
        raise bad_request("invalid patch format of primitive list")
    current = result.get(field)
    if isinstance(current, list):
        result[field] = [item for item in current if item not in values]


def _directive_of(item: Any) -> str:
    if not isinstance(item, dict) or _DIRECTIVE not in item:
        return ""
    directive = item[_DIRECTIVE]
    if directive not in ("merge", "replace", "delete"):
        raise _failure(f"unknown patch type: {directive} in map: {_go_map(item)}")
    return str(directive)


def _cleaned(value: Any) -> Any:
    """A value that the original did not have, without directives and nulls."""
    if isinstance(value, dict):
        return _cleaned_map(value) if _directive_of(value) != "delete" else {}
    if isinstance(value, list):
        return [_cleaned(item) for item in value if not (_directive_of(item) and _is_marker(item))]
    return value


def _is_marker(item: dict[str, Any]) -> bool:
    return item[_DIRECTIVE] == "delete" or len(item) == 1


def _cleaned_map(value: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _cleaned(item)
        for key, item in value.items()
        if item is not None and not key.startswith("$")
    }


def _go_map(item: dict[str, Any]) -> str:
    return f"map[{' '.join(f'{key}:{item[key]}' for key in sorted(item))}]"


def _failure(message: str) -> StatusError:
    return StatusError(500, "InternalError", message)
