"""domain: the pod labels that usage can be grouped by: which of them are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PREFIX: Final = "label:"
"""What stands before a label's key where usage is grouped or filtered by it."""


def kept_labels(labels: Mapping[str, str] | None, keys: Collection[str]) -> dict[str, str]:
    """Return those of a pod's labels that are to be recorded."""
    if not keys or not labels:
        return {}
    return {key: labels[key].replace("\0", "\ufffd") for key in keys if key in labels}
