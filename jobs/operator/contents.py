"""domain: what is in a job's objects, in short: enough to see that somebody has changed it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.ipujob.manifests import Manifest

_FIELDS = ("data", "binaryData", "rules", "roleRef", "subjects")


def contents_of(manifest: Manifest) -> str:
    """A digest of the fields that the operator fills; empty: there are none."""
    filled = {name: manifest[name] for name in _FIELDS if manifest.get(name)}
    if not filled:
        return ""
    text = json.dumps(filled, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
