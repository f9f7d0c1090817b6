"""The schema of the chart refuses what is no parameter, and takes what Kubernetes takes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import available_timezones

import pytest
import yaml
from django.core.management.base import CommandError

from devcluster.schemas import builtin
from ipuhub import __version__
from jobs.management.commands.make_chart import chart_files

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "charts/ipuhub/values.schema.json").read_text("utf-8"))
TYPES = SCHEMA["definitions"]
# Nothing for Windows runs here.
OPEN = {"windowsOptions"}


def objects(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object in a schema, by its path."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield path, schema
        for name, inner in schema.items():
            yield from objects(inner, f"{path}/{name}")
    elif isinstance(schema, list):
        for number, inner in enumerate(schema):
            yield from objects(inner, f"{path}/{number}")


def test_at_every_level_an_unknown_key_is_refused() -> None:
    found = dict(objects(SCHEMA))
    assert len(found) > 50
    is_open = {
        path for path, each in found.items() if each.get("additionalProperties", True) is True
    }
    assert {path for path in is_open if path.rpartition("/")[2] not in OPEN} == set()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("affinity", "Affinity"),
        ("expression", "NodeSelectorRequirement"),
        ("labelSelector", "LabelSelector"),
        ("nodeTerm", "NodeSelectorTerm"),
        ("podAffinity", "PodAffinity"),
        ("podSecurityContext", "PodSecurityContext"),
        ("podTerm", "PodAffinityTerm"),
        ("resources", "ResourceRequirements"),
        ("securityContext", "SecurityContext"),
        ("toleration", "Toleration"),
    ],
)
def test_a_type_of_kubernetes_has_its_keys(name: str, kind: str) -> None:
    want = set(builtin.definitions()[kind]["properties"])
    assert set(TYPES[name]["properties"]) == want


def test_a_time_zone_is_a_name_of_one() -> None:
    zone = re.compile(SCHEMA["properties"]["usage"]["properties"]["reportZone"]["pattern"])
    assert [name for name in available_timezones() if not zone.search(name)] == []
    wrong = ["", "Europe/ Berlin", " UTC", "Europe/", "/etc/localtime", "../UTC", "+02:00"]
    assert [name for name in wrong if zone.search(name)] == []


# The values of PrimeHub's chart below `usage.`.
OF_PRIMEHUB = {
    "enabled", "dbUser", "dbPassword", "initImage", "image", "podSecurityContext", "appResources",
    "monitorResources", "dbImage", "dbResources", "dbStorage", "dbStorageClass", "schedule",
}  # fmt: skip


def is_parameter(name: str) -> bool:
    node: Any = SCHEMA
    for part in name.split("."):
        node = (node or {}).get("properties", {}).get(part)
    return node is not None


def test_what_replaces_primehubs_values_is_there() -> None:
    page = (ROOT / "docs/admin/primehub.md").read_text("utf-8")
    table = page.partition("value | in IPUHub's chart |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    assert {name for old, _ in rows for name in re.findall(r"`([a-zA-Z]+)`", old)} == OF_PRIMEHUB
    named = {name for _, new in rows for name in re.findall(r"`([a-z]+\.[a-zA-Z.]+)`", new)}
    assert len(named) > 10
    assert [name for name in sorted(named) if not is_parameter(name)] == []


def test_a_text_that_yaml_cuts_at_a_comma_is_refused(tmp_path: Path) -> None:
    row = "- {name: a, type: text, default: '', text: Open to one, two and three.}\n"
    (tmp_path / "parameters.yaml").write_text(row, encoding="utf-8")
    with pytest.raises(CommandError, match=r"unknown keys \['two and three\.'\]"):
        chart_files(tmp_path)


def test_chart_images_and_example_have_the_version_of_the_code() -> None:
    chart = yaml.safe_load((ROOT / "charts/ipuhub/Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == __version__
    images = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])
    example = yaml.safe_load((ROOT / "examples/trial.yaml").read_text("utf-8"))
    (container,) = example["spec"]["workers"]["template"]["spec"]["containers"]
    (published,) = yaml.safe_load(chart["annotations"]["artifacthub.io/crdsExamples"])
    assert published == example
    found = [container["image"], *(each["image"] for each in images)]
    assert {image.rpartition(":")[2] for image in found} == {__version__}


@pytest.mark.parametrize(
    ("has_mpirun", "output"), [(True, "hello from rank 0 of 2\ndone\n"), (False, "done\n")]
)
def test_the_launcher_of_the_trial_job_runs_mpirun_if_its_image_has_it(
    tmp_path: Path, has_mpirun: bool, output: str
) -> None:
    example = yaml.safe_load((ROOT / "examples/trial.yaml").read_text("utf-8"))
    rank = '[ "$1" = --allow-run-as-root ] || exit 1; shift\n'
    rank += 'OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 exec "$@"'
    programs = {"sleep": "exit 0", "sh": 'exec /bin/sh "$@"'}
    programs |= {"mpirun": rank} if has_mpirun else {}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    shell, *arguments = example["spec"]["launcher"]["command"]
    command = [f"/bin/{shell}", *arguments]
    done = subprocess.run(
        command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == (output, "")
