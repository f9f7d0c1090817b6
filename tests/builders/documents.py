"""YAML by libyaml: PyYAML's own reader takes a second for the CRD, its writer for the chart."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT / "charts/ipuhub/files/graphcore.ai_ipujobs.yaml"


def read_yaml(text: str) -> Any:
    """The only document in `text`."""
    return yaml.load(text, Loader=yaml.CSafeLoader)  # a safe loader


def read_documents(text: str) -> list[dict[str, Any]]:
    """All documents in `text` that say something."""
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def write_documents(documents: Iterable[dict[str, Any]]) -> str:
    """The text of a file with these documents."""
    text: str = yaml.dump_all(documents, Dumper=yaml.CSafeDumper)
    return text


@functools.cache
def _as_json(path: Path) -> str:
    return json.dumps(read_yaml(path.read_text(encoding="utf-8")))


def our_crd() -> dict[str, Any]:
    """The CRD that the chart installs: a copy to change at will."""
    return dict(json.loads(_as_json(CRD)))


def build_crd_without_status_schema() -> dict[str, Any]:
    """The CRD, with a status in which the API server keeps whatever it gets."""
    crd = our_crd()
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["status"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return crd


@functools.cache
def openapi() -> dict[str, Any]:
    """The API's description, to be read only.

    It is the checked-in file, which web/test_api_foundation compares with the code: to generate it
    takes a second of CPU, in each worker.
    """
    return dict(read_yaml((ROOT / "docs/reference/openapi.yaml").read_text(encoding="utf-8")))


def check_openapi(document: dict[str, Any]) -> None:
    """Hold a document against the schema of OpenAPI 3.1 that comes with drf-spectacular.

    Its `validate_schema` does the same, but searches that schema for all its anchors at each
    reference to one: three quarters of its time.
    """
    # Here, not above: every worker imports this module to collect the tests.
    from drf_spectacular import validation
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    assert document["openapi"].startswith("3.1")
    path = Path(validation.__file__).with_name("openapi_3_1_schema.json")
    published = json.loads(path.read_text(encoding="utf-8"))
    kind = validator_for(published)
    kind.check_schema(published)
    known = Registry().with_resource(published["$id"], DRAFT202012.create_resource(published))
    reference = {"$schema": published["$schema"], "$ref": published["$id"]}
    kind(reference, registry=known.crawl()).validate(document)
