"""The ports of a demo that is started again."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from devcluster.demo import run
from devcluster.demo.ports import choose_port, read_ports
from devcluster.demo.run import Demo, DemoError

if TYPE_CHECKING:
    from pathlib import Path


def free_port() -> int:
    return choose_port("a test", 31600, set()).number


def ports_of_a_start(folder: Path) -> dict[str, int]:
    demo = Demo(folder, 1, 1)
    try:
        demo._choose_ports()
    finally:
        demo._claims.close()
    return demo.ports


def test_the_v_ipu_controller_stays_where_the_tracker_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = free_port()
    monkeypatch.setattr(run, "PORTS", {"V-IPU": wanted})
    with socket.create_server(("127.0.0.1", wanted)):
        moved = ports_of_a_start(tmp_path)["V-IPU"]
    assert moved != wanted
    assert ports_of_a_start(tmp_path)["V-IPU"] == moved
    with (
        socket.create_server(("127.0.0.1", moved)),
        pytest.raises(DemoError, match=rf"port {moved}, .* is taken: stop what listens there"),
    ):
        ports_of_a_start(tmp_path)
    assert ports_of_a_start(tmp_path)["V-IPU"] == moved


def test_the_other_ports_go_back_to_the_usual_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = free_port()
    monkeypatch.setattr(run, "PORTS", {"web": wanted})
    with socket.create_server(("127.0.0.1", wanted)):
        assert ports_of_a_start(tmp_path)["web"] != wanted
    assert ports_of_a_start(tmp_path)["web"] == wanted


def test_the_agents_get_as_many_ports_in_a_row_as_there_are_machines() -> None:
    first = choose_port("a test", 31700, set(), count=10).number
    with socket.create_server(("127.0.0.1", first + 4)):
        taken: set[int] = {first + 7}
        assert choose_port("a test", first, taken, count=4).number == first
        assert choose_port("a test", first, taken, count=2).number == first + 5
        beyond = choose_port("a test", first, taken, count=2)
    assert beyond.number == first + 8
    assert beyond.notice
    assert taken == {first + number for number in (0, 1, 2, 3, 5, 6, 7, 8, 9)}


@pytest.mark.parametrize("text", ["", "[1]", '{"V-IPU": "8090"}', "\xff"])
def test_a_file_that_says_no_ports_is_no_obstacle(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ports.json"
    assert read_ports(path) == {}
    path.write_text(text, encoding="latin-1")
    assert read_ports(path) == {}
