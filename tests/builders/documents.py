"""YAML of the repository, read by libyaml: PyYAML's own reader takes a second for the CRD."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import yaml

from ipuhub.api.schema import openapi_text

CRD = Path(__file__).resolve().parents[2] / "charts/ipuhub/files/graphcore.ai_ipujobs.yaml"


def read_yaml(text: str) -> Any:
    """The only document in `text`."""
    return yaml.load(text, Loader=yaml.CSafeLoader)  # a safe loader


@functools.cache
def _as_json(path: Path) -> str:
    return json.dumps(read_yaml(path.read_text(encoding="utf-8")))


def our_crd() -> dict[str, Any]:
    """The CRD that the chart installs: a copy to change at will."""
    return dict(json.loads(_as_json(CRD)))


@functools.cache
def openapi() -> dict[str, Any]:
    """The API's description, to be read only."""
    return dict(read_yaml(openapi_text()))
