"""domain: strategic merge patch, with all of its directives.

Which lists merge, and by which key, is data: a mapping from the dotted path of a list in its kind
(`spec.template.spec.containers`) to the merge key, empty for lists of texts that merge as sets.
Lists without an entry are replaced as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devcluster.status import PatchError, bad_patch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def strategic_merge(
    original: dict[str, Any], patch: dict[str, Any], merge_keys: Mapping[str, str]
) -> dict[str, Any]:
    """`original` after `patch`; the result may share parts with both.

    Raises PatchError: 400 for a malformed directive, 500 (as the server does) for a list item
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
        for key, order in patch.items():
            if key.startswith(_ORDER):
                self._set_order(original, result, patch, (key.removeprefix(_ORDER), order, path))
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
        return _ordered(merged, original, [identify(item) for item in plain], identify)

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

    def _set_order(
        self,
        original: dict[str, Any],
        result: dict[str, Any],
        patch: dict[str, Any],
        directive: tuple[str, Any, str],
    ) -> None:
        field, order, path = directive
        below = f"{path}.{field}" if path else field
        if not isinstance(order, list):
            raise bad_patch("invalid patch format of setElementOrder list")
        merged = result.get(field)
        if below not in self.keys or not isinstance(merged, list):
            return
        identify = _identifier(self.keys[below])
        wanted = [identify(item) for item in order]
        patched = [
            identify(item)
            for item in patch.get(field) or []
            if _directive_of(item) not in {"delete", "replace"}
        ]
        if [item for item in wanted if item in patched] != patched:
            raise bad_patch("invalid patch format of setElementOrder list")
        result[field] = _ordered(merged, original.get(field) or [], wanted, identify)


def _identifier(merge_key: str) -> Callable[[Any], Any]:
    """A function from a list item to what identifies it in its list."""

    def identify(item: Any) -> Any:
        if not merge_key:
            if isinstance(item, (dict, list)):
                raise bad_patch("invalid patch format of primitive list")
            return item
        if not isinstance(item, dict):
            raise PatchError(500, f"expected a map in a list merged by {merge_key}, found {item}")
        if merge_key not in item:
            raise PatchError(
                500, f"map: {_go_map(item)} does not contain declared merge key: {merge_key}"
            )
        if isinstance(item[merge_key], (dict, list)):
            raise bad_patch(f"the merge key {merge_key} of {_go_map(item)} is no plain value")
        return item[merge_key]

    return identify


def _ordered(
    merged: list[Any], original: list[Any], wanted: list[Any], identify: Callable[[Any], Any]
) -> list[Any]:
    """`merged` with the items named in `wanted` in that order, the others as in `original`.

    The two runs are interleaved as the server does it: an item of `original` goes first only
    where it stood before the wanted one there; a new item therefore comes before all of them.
    """
    place = {identify(item): at for at, item in reversed(list(enumerate(original)))}
    named = [item for item in merged if identify(item) in wanted]
    named.sort(key=lambda item: wanted.index(identify(item)))
    others = [item for item in merged if identify(item) not in wanted]
    result = []
    while others and named:
        left, right = place.get(identify(others[0])), place.get(identify(named[0]))
        takes_other = left is not None and right is not None and left < right
        result.append((others if takes_other else named).pop(0))
    return result + named + others


def _retain_keys(result: dict[str, Any], patch: dict[str, Any]) -> None:
    if _RETAIN not in patch:
        return
    kept = patch[_RETAIN]
    set_by_patch = {
        key for key, value in patch.items() if value is not None and not key.startswith("$")
    }
    if not isinstance(kept, list) or not all(key in kept for key in set_by_patch):
        raise bad_patch("invalid patch format of retainKeys")
    for key in [key for key in result if key not in kept]:
        del result[key]


def _delete_from(result: dict[str, Any], field: str, values: Any) -> None:
    if not isinstance(values, list):
        raise bad_patch("invalid patch format of primitive list")
    current = result.get(field)
    if isinstance(current, list):
        result[field] = [item for item in current if item not in values]


def _directive_of(item: Any) -> str:
    if not isinstance(item, dict) or _DIRECTIVE not in item:
        return ""
    directive = item[_DIRECTIVE]
    if directive not in ("merge", "replace", "delete"):
        raise PatchError(500, f"unknown patch type: {directive} in map: {_go_map(item)}")
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
