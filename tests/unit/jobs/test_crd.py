"""The CustomResourceDefinition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management import call_command

from jobs.ipujob.crd import build_crd
from jobs.operator.status import next_status
from tests.builders.documents import read_yaml
from tests.builders.ipujobs import NOW, ipujob, launcher, observed, partition, worker

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = Path("charts/ipuhub/files/graphcore.ai_ipujobs.yaml")


def schema() -> dict[str, Any]:
    (version,) = build_crd()["spec"]["versions"]
    return dict(version["schema"]["openAPIV3Schema"])


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(node.get(inner), dict):
            yield from nodes(node[inner], f"{path}[]")


def test_the_file_in_the_chart_is_current() -> None:
    call_command("make_crd", "--check")


def test_the_applied_file_is_below_250_kb() -> None:
    assert FILE.stat().st_size < 250_000
    applied = json.dumps(read_yaml(FILE.read_text(encoding="utf-8")))
    assert len(applied) < 200_000  # kubectl keeps it in an annotation of at most 262,144 bytes


def test_the_published_columns_come_first() -> None:
    (version,) = build_crd()["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    names = [c["name"] for c in columns if not c.get("priority")]
    assert names == ["status", "current", "desired", "LastMessage", "Age"]
    assert [c["name"] for c in columns[:5]] == names


def test_status_and_scale_are_subresources() -> None:
    (version,) = build_crd()["spec"]["versions"]
    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.jobInstances",
            "statusReplicasPath": ".status.desiredReplicas",
        },
    }


def test_every_field_of_ours_is_explained() -> None:
    silent = [
        path
        for path, node in nodes(schema())
        if "description" not in node
        and not path.endswith("[]")
        and path != ".metadata"
        and not path.startswith(
            (".spec.workers.template.", ".spec.workers.strategy.", ".spec.launcher.env[]")
        )
    ]
    assert silent == []


def test_explain_says_what_the_default_is() -> None:
    spec = {path: node for path, node in nodes(schema()) if path.startswith(".spec.")}
    defaults = {
        path: node["default"]
        for path, node in spec.items()
        if "default" in node and "properties" not in node and ".template." not in path
    }
    assert defaults[".spec.restartPolicy.backOffLimit"] == 3
    assert [
        path
        for path, default in defaults.items()
        if not spec[path]["description"].endswith(f" Default: {default}.")
    ] == []


def test_the_template_keeps_fields_it_does_not_know_at_every_level() -> None:
    closed = [
        path
        for path, node in nodes(schema())
        if path.startswith(".spec.workers.template")
        and node.get("properties")
        and node.get("x-kubernetes-preserve-unknown-fields") is not True
    ]
    assert closed == []


def test_outside_the_template_unknown_fields_are_unknown() -> None:
    spec = schema()["properties"]["spec"]
    for node in (schema(), spec, spec["properties"]["workers"], spec["properties"]["launcher"]):
        assert "x-kubernetes-preserve-unknown-fields" not in node


def test_the_schema_requires_nothing_that_one_of_the_shapes_lacks() -> None:
    required = {path: node["required"] for path, node in nodes(schema()) if "required" in node}
    assert required == {".status.conditions[]": ["type", "status"]}


def test_numbers_may_be_text_but_for_the_one_that_scale_needs() -> None:
    spec = schema()["properties"]["spec"]["properties"]
    assert spec["jobInstances"]["type"] == "integer"
    for field in (
        "modelReplicas",
        "ipusPerModelReplica",
        "ipusPerJobInstance",
        "workersPerJobInstance",
        "modelReplicasPerWorker",
        "activeDeadlineSeconds",
    ):
        assert spec[field]["x-kubernetes-int-or-string"] is True


def test_probe_ports_and_quantities_may_be_numbers_or_text() -> None:
    by_path = dict(nodes(schema()))
    container = ".spec.workers.template.spec.containers[]"
    for path in (
        f"{container}.livenessProbe.httpGet.port",
        f"{container}.livenessProbe.tcpSocket.port",
        f"{container}.resources.limits[]",
        f"{container}.resources.requests[]",
        ".spec.workers.template.spec.volumes[].emptyDir.sizeLimit",
        ".spec.workers.template.spec.overhead[]",
        ".spec.workers.strategy.rollingUpdate.maxSurge",
    ):
        assert by_path[path] == {"x-kubernetes-int-or-string": True}, path


def test_the_status_the_operator_writes_is_in_the_schema() -> None:
    from jobs.ipujob.conditions import JobState, plain_verdict
    from jobs.ipujob.spec import parse_spec
    from jobs.operator.decisions import ended
    from jobs.operator.observed import instances_of

    job = ipujob().running().build()
    seen = observed(job, worker(job).running(), launcher(job).exited(3), partitions=(partition(),))
    instances = instances_of(seen, parse_spec(job["spec"]), NOW)
    records = ended(seen, parse_spec(job["spec"]), instances, NOW)
    verdict = plain_verdict(JobState.FAILED, "default/sample")
    known = schema()["properties"]["status"]
    assert unknown(next_status(seen, verdict, instances, records, NOW), known) == []


def unknown(value: Any, node: dict[str, Any], path: str = "") -> list[str]:
    if isinstance(value, list):
        return [found for item in value for found in unknown(item, node["items"], path)]
    if not isinstance(value, dict):
        return []
    found = []
    for name, child in value.items():
        if name not in node.get("properties", {}):
            found.append(f"{path}.{name}")
        else:
            found += unknown(child, node["properties"][name], f"{path}.{name}")
    return found
