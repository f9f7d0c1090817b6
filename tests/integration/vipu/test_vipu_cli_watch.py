"""`--watch` of partitions: who is gone is shown once more, as REMOVED."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.cli import admin, program
from partitions.vipu.cli.main import main as vipu
from partitions.vipu.client import CreateRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from partitions.vipu.server.main import VipuServer


@pytest.fixture
def published_only() -> bool:
    return False


@pytest.fixture
def watched(
    start_server: Callable[..., tuple[VipuServer, int]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    """watched("vipu", ...) -> each output of the command, with p and q; p is removed once it
    has shown both, and the command is interrupted after the third time."""
    monkeypatch.setattr(program, "WATCH_SECONDS", 0.01)

    def run(name: str, *words: str) -> list[str]:
        server, port = start_server(admin_port=0, create_latency_seconds=0)
        for partition in ("q", "p"):
            server.controller.create(CreateRequest(partition, 4))
        outputs = list[str]()

        def say(text: str, stream: object = None) -> None:
            assert stream is None, text
            outputs.append(text)
            if len(outputs) == 1:
                server.controller.remove("p")
            if len(outputs) == 3:
                raise KeyboardInterrupt

        monkeypatch.setattr(program, "_say", say)
        its_port = port if name == "vipu" else server.admin_port
        command = [*words, "--watch", "-H", "127.0.0.1", "--api-port", str(its_port)]
        assert (vipu if name == "vipu" else admin.main)(command) == 0
        return outputs

    return run


def states(text: str) -> list[tuple[str, str]]:
    """Name and last cell of each row."""
    lines = [line.split("|") for line in text.splitlines() if "|" in line]
    return [(cells[0].strip(), cells[-1].strip()) for cells in lines[1:]]


@pytest.mark.parametrize("name", ["vipu", "vipu-admin"])
def test_a_list_shows_a_removed_partition_once_more(
    watched: Callable[..., list[str]], name: str
) -> None:
    first, second, third = map(states, watched(name, "list", "partitions"))
    assert sorted(first) == [("p", "ACTIVE"), ("q", "ACTIVE")]
    assert second == [("p", "REMOVED"), ("q", "ACTIVE")]
    assert third == [("q", "ACTIVE")]


@pytest.mark.parametrize("name", ["vipu", "vipu-admin"])
def test_the_watch_of_a_partition_ends_with_its_removal(
    watched: Callable[..., list[str]], name: str
) -> None:
    first, last = (dict(states(text)) for text in watched(name, "get", "partition", "p"))
    assert (first["State"], last["State"]) == ("ACTIVE", "REMOVED")
    assert (first["Size"], last["Size"], last["Operation"]) == ("4", "4", "-")


def test_programs_read_the_words_of_each_api(watched: Callable[..., list[str]]) -> None:
    _, second, _ = map(json.loads, watched("vipu", "list", "partitions", "-o", "json"))
    assert [each["partition"]["ready_state"] for each in second] == ["PS_REMOVED", "PS_ACTIVE"]


def test_programs_read_the_end(watched: Callable[..., list[str]]) -> None:
    first, last = map(json.loads, watched("vipu-admin", "get", "partition", "p", "-o", "json"))
    assert (first["ready_state"], last["ready_state"]) == ("ACTIVE", "REMOVED")
    assert last["spec"] == first["spec"]
