"""domain: what Kubernetes takes for the key of a label."""

from __future__ import annotations

import re
from typing import Final

_PREFIX: Final = "[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"
_NAME: Final = "[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_KEY: Final = re.compile(f"(?:{_PREFIX}/)?{_NAME}")
_LONGEST_PREFIX, _LONGEST_NAME = 253, 63


def is_label_key(text: str) -> bool:
    """Whether `text` is a key: `name`, or `prefix/name`."""
    prefix, _, name = text.rpartition("/")
    fits = len(prefix) <= _LONGEST_PREFIX and len(name) <= _LONGEST_NAME
    return fits and _KEY.fullmatch(text) is not None
