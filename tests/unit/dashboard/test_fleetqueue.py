"""The queue on the fleet page: jobs, reasons, and estimated ends."""

from __future__ import annotations

from datetime import timedelta

from dashboard.fleetmap import Reader, draw_fleet
from dashboard.fleetqueue import JobFacts
from tests.builders.fleetmaps import NOW, controller, draw, partition, waiter


def test_the_queue_says_of_each_what_it_waits_for() -> None:
    queue = (
        waiter("large", 16, blockers=["p-bert"]),
        waiter("later", 1, heldBack=True),
        waiter("free", 4, inTheWay=0),
        waiter("huge", 64, never="partitions of 64 IPUs never fit", block=None),
        waiter("unsure", 4, block=None, inTheWay=None),
    )
    lines = draw(controller(partition("bert", 4)), queue=queue, running=("large",)).queue
    assert [(line.position, line.kind, line.reason) for line in lines] == [
        (1, "block", "needs a block of 16, largest free 4"),
        (2, "blocked", "an older job is served first"),
        (3, "soon", "its block is free: about to start"),
        (4, "block", "no controller can say when"),
        (0, "never", "never fits: the largest block has 32"),
    ]
    assert lines[0].blockers == (("bert", "uid-bert"),)
    assert [line.is_open for line in lines] == [True, True, False, False, False]


def test_a_block_is_free_when_the_limits_of_all_that_hold_it_have_ended() -> None:
    one, two = NOW + timedelta(hours=1), NOW + timedelta(hours=2)
    parts = [partition("a", 4), partition("b", 4), partition("hidden", 4, namespace="z")]
    ends = {"a": one, "b": two}
    jobs = {
        f"uid-{name}": JobFacts(f"uid-{name}", "a", name, "", runs=True, ends_by=end)
        for name, end in ({**ends, "endless": None}).items()
    }
    parts.append(partition("endless", 4))
    parts.append({**partition("by-hand", 4), "job": None})
    in_the_way = [("a",), ("a", "b"), ("a", "hidden"), ("a", "endless"), ("a", "by-hand"), ()]
    queue = [
        waiter(f"{number}", 16, blockers=[f"p-{name}" for name in names])
        for number, names in enumerate(in_the_way)
    ]
    fleet = {"controllers": [controller(*parts)], "queue": queue}
    found = draw_fleet(fleet, jobs, Reader(lambda name: name == "a", True, NOW))
    assert [line.free_by for line in found.queue] == [one, two, None, None, None, None]
    assert [line.is_open for line in found.queue] == [False, False, True, True, True, True]


def test_the_order_of_service_is_said_as_the_proxy_keeps_it() -> None:
    orders = {
        seconds: draw_fleet(
            {"controllers": [controller()], "reserveAfterSeconds": seconds},
            {},
            Reader(lambda _: True, True, NOW),
        ).policy
        for seconds in (None, 0.0, 600.0)
    }
    assert orders == {
        None: "",
        0.0: "Oldest first. A newer job starts earlier if its block is free.",
        600.0: "Oldest first. A newer job starts earlier if its block is free; once the oldest has "
        "waited 10 min, only where that does not delay it.",
    }


def test_who_can_never_be_served_stands_last_and_has_no_position() -> None:
    huge = waiter("huge", 64, never="partitions of 64 IPUs never fit", block=None)
    lines = draw(controller(), queue=(huge, waiter("small", 1), waiter("large", 16))).queue
    assert [(line.ipus, line.position) for line in lines] == [(1, 1), (16, 2), (64, 0)]


def test_who_waits_for_machines_out_of_service_is_told_which() -> None:
    closed = "4 IPUs (ag0 is cordoned: cables)"
    fleet = {
        "controllers": [controller()],
        "queue": [waiter("large", 32, block=None, inTheWay=None)],
        "outOfService": closed,
    }
    found = draw_fleet(fleet, {}, Reader(lambda _: True, True, NOW))
    assert found.out_of_service == closed
    (line,) = found.queue
    assert line.reason == f"no block of 32 can come free; out of service: {closed}"
    fleet["controllers"].append(controller(reachable=False, message="v2:8090 does not answer"))
    (line,) = draw_fleet(fleet, {}, Reader(lambda _: True, True, NOW)).queue
    assert line.reason == "no controller can say when"  # the other controller may have the block


def test_a_block_of_a_controller_that_does_not_answer_is_promised_to_nobody() -> None:
    silent = controller(partition("bert", 4), reachable=False, message="v1:8090 does not answer")
    taken, free = waiter("large", 16, blockers=["p-bert"]), waiter("soon", 16, inTheWay=0)
    place = {"controller": "v1:8090", "count": 1}
    fleet = {
        "controllers": [silent],
        "fits": [{"size": 16, "count": 1, "places": [place]}],
        "queue": [taken, free],
    }
    found = draw_fleet(fleet, {}, Reader(lambda _: True, True, NOW))
    entry = ("block", "the V-IPU controller of its block does not answer", (), None)
    assert [(one.kind, one.reason, one.blockers, one.free_by) for one in found.queue] == [entry] * 2
    assert not any(one.is_open for one in found.queue)
    assert (found.next, {fit.kind for fit in found.fits}) == ("", {"unknown"})
    assert not any(machine.is_target for block in found.blocks for machine in block.machines)
