"""domain: applies a patch: JSON patch (RFC 6902), merge patch (RFC 7386) or strategic merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonpatch

from devcluster.schemas.schema import copy_json
from devcluster.status import StatusError, bad_request
from devcluster.storage.strategic import strategic_merge

if TYPE_CHECKING:
    from collections.abc import Mapping

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)


def apply_patch(
    obj: Mapping[str, Any],
    patch: Any,
    content_type: str,
    merge_keys: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The object after `patch` (decoded JSON); `obj` is never changed and shares nothing with it.

    `merge_keys` are the keys of the object's kind (`builtin.merge_keys`); None for custom
    resources, which have no strategic merge (415). Raises StatusError with the status the server
    would give.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == JSON_PATCH:
        return json_patch(obj, patch)
    if media_type not in PATCH_TYPES or (media_type == STRATEGIC_PATCH and merge_keys is None):
        types = PATCH_TYPES if merge_keys is not None else PATCH_TYPES[:2]
        accepted = ", ".join((*types, APPLY_PATCH))
        raise StatusError(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            f"{accepted}",
        )
    if not isinstance(patch, dict):
        raise _not_go_type(patch, "map[string]interface {}")
    original = copy_json(obj)
    if media_type == STRATEGIC_PATCH:
        return strategic_merge(original, copy_json(patch), merge_keys or {})
    merged: dict[str, Any] = merge_patch(original, copy_json(patch))
    return merged


def merge_patch(original: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(original) if isinstance(original, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(obj: Mapping[str, Any], patch: Any) -> dict[str, Any]:
    """RFC 6902. Raises StatusError: 400 for a patch that is not a list of operations, 422 for an
    operation that does not apply, `test` included."""
    if not isinstance(patch, list) or not all(isinstance(item, dict) for item in patch):
        raise _not_go_type(patch, "jsonpatch.Patch")
    try:
        document = jsonpatch.apply_patch(copy_json(obj), copy_json(patch), in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as error:
        raise _rejected() from error
    if not isinstance(document, dict):
        raise _rejected()
    return document


def _rejected() -> StatusError:
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message)


def _not_go_type(value: Any, wanted: str) -> StatusError:
    names: tuple[tuple[type, str], ...] = (
        (dict, "object"),
        (list, "array"),
        (str, "string"),
        (bool, "bool"),
        (object, "number"),
    )
    found = next(name for kind, name in names if isinstance(value, kind))
    return bad_request(f"json: cannot unmarshal {found} into Go value of type {wanted}")
