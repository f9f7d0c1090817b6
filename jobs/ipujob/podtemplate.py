"""io: the fields of a pod template, as a file: making them anew takes the `kubernetes` package,
half of a webhook's memory and start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Schema = dict[str, Any]
FILE = Path(__file__).with_name("podtemplate.json")


def read_pod_template() -> Schema:
    """The schema of `spec.workers.template`, of which only `properties` and `items` are left."""
    found: Schema = json.loads(FILE.read_bytes())
    return found


def pod_template_text(schema: Schema) -> str:
    """The file's text, made of the whole schema."""
    return json.dumps(_fields(schema), sort_keys=True, indent=1) + "\n"


def _fields(schema: Schema) -> Schema:
    left: Schema = {}
    if "properties" in schema:
        left["properties"] = {name: _fields(one) for name, one in schema["properties"].items()}
    if isinstance(schema.get("items"), dict):
        left["items"] = _fields(schema["items"])
    return left
