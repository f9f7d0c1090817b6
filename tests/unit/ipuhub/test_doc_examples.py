"""Examples on the pages are taken as written: manifests, command lines, bodies, values, code.

`tests/chart/test_chart_pages.py` renders the chart with the values and commands of the pages.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandError

from dashboard.notify.webhook import sign
from devcluster.schemas import builtin
from partitions.vipu.agent import faultcommand
from partitions.vipu.agent import main as agent
from partitions.vipu.cli import admin
from partitions.vipu.cli import main as user
from partitions.vipu.server import options as server
from tests.builders.docpages import GUIDES, ROOT, blocks, commands, documents
from tests.builders.documents import openapi

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

# Read by a program of its own: kube-scheduler, which test_chart_scheduler.py asks.
OTHER_KINDS = {"KubeSchedulerConfiguration"}


def faults_of(manifest: dict[str, Any]) -> list[str]:
    """Return what a server-side dry run with strict validation says."""
    schema = builtin.schema_of(manifest["apiVersion"], manifest["kind"])
    assert schema is not None, manifest["kind"]
    faults = [str(error) for error in schema.validate(manifest)]
    return faults + [f"unknown field {path}" for path in schema.prune(manifest)]


def test_manifests_on_the_pages_have_the_fields_of_their_kinds() -> None:
    found = [each for page in GUIDES for each in documents(page) if "apiVersion" in each]
    ours = [each for each in found if each["kind"] not in OTHER_KINDS]
    assert len(ours) > 6
    assert [fault for each in ours for fault in faults_of(each)] == []
    wrong = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "files": {}}
    assert faults_of(wrong) == ["unknown field files"]


def management(words: Sequence[str]) -> None:
    """Read the command line of `manage.py` or `ipuhub`."""
    parser = load_command_class(get_commands()[words[0]], words[0]).create_parser("", words[0])
    parser.parse_args([*words[1:]])


def _agent(words: Sequence[str]) -> None:
    if words[0] in faultcommand.NAMES:
        faultcommand._parser().parse_args(words)
    else:
        agent.parse_options([*words], {})


READERS: dict[str, Callable[[Sequence[str]], object]] = {
    "manage.py": management,
    "ipuhub": management,
    "vipu": lambda words: user.make_parser().parse_args(words),
    "vipu-admin": lambda words: admin.make_parser().parse_args(words),
    "vipu-agent": _agent,
    "vipu-server": lambda words: server.parse_options([*words], {"HOME": "/tmp"}),
}


def own_commands(page: Path) -> Iterator[list[str]]:
    """Yield the commands of IPUHub on a page, also those that kubectl exec runs."""
    for words in commands(page):
        inner = words[words.index("--") + 1 :] if "--" in words else words
        inner = [word.removeprefix(".venv/bin/") for word in inner]
        if inner and inner[0] in READERS and inner[1:] != ["X"]:
            yield inner[: inner.index(">")] if ">" in inner else inner


def is_taken(words: Sequence[str]) -> bool:
    try:
        READERS[words[0]](words[1:])
    except (SystemExit, CommandError, KeyError):  # KeyError: no such command
        return False
    return True


def test_each_command_on_the_pages_has_options_that_exist() -> None:
    found = [words for page in GUIDES for words in own_commands(page)]
    assert {words[0] for words in found} == {*READERS}
    assert len(found) > 60
    assert [" ".join(words) for words in found if not is_taken(words)] == []
    assert not is_taken(["vipu-agent", "fault", "hang", "--minutes", "1"])
    assert not is_taken(["manage.py", "make_user", "ann", "--administrator"])


def request_bodies(page: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield path and JSON body of each call of the API on a page."""
    for words in commands(page):
        bodies = [text for text in words if text.startswith("{")]
        paths = [each[each.index("/api/v1/") :] for each in words if "/api/v1/" in each]
        if words[:1] == ["curl"] and bodies and paths:
            yield paths[0], json.loads(bodies[0])


def unknown_fields(path: str, body: dict[str, Any]) -> list[str]:
    """Return the fields that the call does not have, and those that it lacks."""
    calls = openapi()["paths"]
    patterns = {re.sub(r"\{[^}]*\}", "[^/]+", each).rstrip("/"): each for each in calls}
    (call,) = (each for shape, each in patterns.items() if re.fullmatch(shape, path.rstrip("/")))
    schema = calls[call]["post"]["requestBody"]["content"]["application/json"]["schema"]
    fields = openapi()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    missing = {*fields.get("required", ())} - {*body}
    return [f"{path}: {field}" for field in sorted(({*body} - {*fields["properties"]}) | missing)]


def test_bodies_of_calls_on_the_pages_have_the_fields_of_the_api() -> None:
    found = [each for page in GUIDES for each in request_bodies(page)]
    assert len(found) >= 5
    assert [field for path, body in found for field in unknown_fields(path, body)] == []
    assert unknown_fields("/api/v1/usage/rates/1/end", {"until": ""}) == [
        "/api/v1/usage/rates/1/end: until",
        "/api/v1/usage/rates/1/end: valid_until",
    ]


def test_the_receiver_on_the_page_knows_a_genuine_message() -> None:
    (code,) = (
        block for block in blocks(ROOT / "docs/user/notifications.md") if "def is_genuine" in block
    )
    names: dict[str, Any] = {}
    exec(code, names)  # our own page
    body, now = b'{"id": 17}', int(time.time())

    def is_genuine(secret: str, at: int) -> bool:
        signature = sign("secret", at, body)
        headers = {"X-IPUHub-Timestamp": str(at), "X-IPUHub-Signature": signature}
        return bool(names["is_genuine"](secret, headers, body))

    assert is_genuine("secret", now)
    assert not is_genuine("another", now)
    assert not is_genuine("secret", now - 400)


VALUES = json.loads((ROOT / "charts/ipuhub/values.schema.json").read_text("utf-8"))["properties"]
# Its values are Graphcore's or PrimeHub's; other tests read these pages.
OF_OTHERS = {"migrate-from-graphcore.md", "primehub.md"}
VALUE = re.compile(r"`(?:--set )?([a-zA-Z]+(?:\.[a-zA-Z]+)+)(?:=[^`]*)?`")


def unknown_values(text: str) -> list[str]:
    """Return what the text names as a value of the chart and is none."""
    return [name for name in VALUE.findall(text) if not _is_value(name.split("."))]


def _is_value(parts: list[str]) -> bool:
    node = VALUES.get(parts[0])
    if node is None or "properties" not in node or parts[-1] in {"csv", "py"}:
        return True  # a field of a job, a file
    for part in parts[1:]:
        if not node.get("properties"):
            return True  # a map of names of the reader's own
        node = node["properties"].get(part)
        if node is None:
            return False
    return True


@pytest.mark.parametrize("page", [each for each in GUIDES if each.name not in OF_OTHERS])
def test_values_that_a_page_names_are_in_the_chart(page: Path) -> None:
    assert unknown_values(page.read_text("utf-8")) == []


def test_a_value_that_is_none_is_found() -> None:
    text = "`web.enabled=false` `web.enable` `--set mail.sender=a` `workers.replicas` `usage.csv`"
    assert unknown_values(text) == ["web.enable", "mail.sender"]
