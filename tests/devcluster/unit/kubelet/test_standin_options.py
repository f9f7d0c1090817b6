"""Options of the command, and annotations that cannot be read."""

from __future__ import annotations

import pytest

from devcluster.kubelet.behaviour import Behaviour
from devcluster.kubelet.options import Durations, StandInOptions
from devcluster.management.commands.run_kubelet import Command, read_options
from tests.devcluster.unit.kubelet.standin_pods import container, pod


def parse(*arguments: str) -> StandInOptions:
    parser = Command().create_parser("manage.py", "run_kubelet")
    return read_options(vars(parser.parse_args(list(arguments))))


def test_the_commands_defaults_are_those_of_the_options() -> None:
    assert parse() == StandInOptions()


def test_every_option_reaches_the_nodes() -> None:
    options = parse(
        *("--nodes", "2", "--label", "vipu-ctrl=vctl1", "--label", "a=b=c"),
        *("--launcher-seconds", "1", "--worker-seconds", "2", "--pod-seconds", "3"),
        *("--startup-seconds", "4", "--prefix", "ipu-", "--scheduler-name", "other"),
        *("--no-claims", "--cpu", "64", "--memory", "1Ti", "--pods", "250"),
    )
    assert options == StandInOptions(
        nodes=2,
        labels={"vipu-ctrl": "vctl1", "a": "b=c"},
        prefix="ipu-",
        scheduler_name="other",
        claims=False,
        cpu="64",
        memory="1Ti",
        pods=250,
        durations=Durations(launcher=1, worker=2, pod=3, startup=4),
    )
    assert options.node_names() == ("ipu-0", "ipu-1")


def test_a_label_that_cannot_be_read_says_what_to_write() -> None:
    with pytest.raises(ValueError, match="write"):
        parse("--label", "alone")


@pytest.mark.parametrize("option", ["--cpu", "--memory"])
@pytest.mark.parametrize("text", ["many", "1Xi", "", "0x10"])
def test_a_capacity_that_is_no_quantity_is_refused(option: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"{text!r} is not a quantity"):
        parse(option, text)


@pytest.mark.parametrize(
    ("key", "text", "want"),
    [
        ("ready-seconds", "soon", 0.0),
        ("ready-seconds", "-3", 0.0),
        ("ready-seconds", "2.5", 2.5),
        ("ready-seconds.main", "4", 4.0),
        ("ready-seconds.other", "4", 0.0),
    ],
)
def test_a_time_that_cannot_be_read_counts_as_not_given(key: str, text: str, want: float) -> None:
    behaviour = Behaviour(pod(sim={key: text}), Durations())
    assert behaviour.ready_seconds(container()) == want


@pytest.mark.parametrize(
    ("text", "tries", "want"), [("1,2", 0, 1), ("1,2", 9, 2), ("", 0, 0), ("one", 0, 1)]
)
def test_exit_codes_follow_the_restarts(text: str, tries: int, want: int) -> None:
    behaviour = Behaviour(pod(sim={"exit-code": text}), Durations())
    assert behaviour.exit_code("exit-code", tries, "main") == want
