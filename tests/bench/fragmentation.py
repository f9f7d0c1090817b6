"""Requests that find no block although enough IPUs are free: best fit compared with first fit."""

from __future__ import annotations

import random
import statistics
from typing import TYPE_CHECKING

from partitions.vipu.server.occupancy import Occupancy
from partitions.vipu.topology import PARTITION_SIZES, best_fit, fleet_of_parts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from partitions.vipu.topology import Block, IpuId

    Rule = Callable[[Iterable[Block], int], tuple[IpuId, ...] | None]

# Jobs are small more often than large.
_WEIGHTS = {1: 8, 2: 8, 4: 8, 8: 8, 16: 6, 32: 4, 64: 2}
_BUSY_SHARE = 0.9


def run(options: argparse.Namespace) -> None:
    """Print, for each rule, the refused requests and the largest free block, over random steps."""
    print(
        f"{4 * options.machines} IPUs kept {_BUSY_SHARE:.0%} busy; {options.steps} steps of each "
        f"of {options.rounds} histories, the same for both rules"
    )
    for name, rule in (("best fit", best_fit), ("first fit", first_fit)):
        found = [_history(rule, seed, options) for seed in range(options.rounds)]
        refused = statistics.median(share for share, _ in found)
        largest = statistics.median(share for _, share in found)
        print(
            f"  {name:<9} refused although so many IPUs were free {refused:.2%}, "
            f"the largest free block has {largest:.0%} of the IPUs it could have"
        )


def first_fit(blocks: Iterable[Block], size: int) -> tuple[IpuId, ...] | None:
    """The first `size` IPUs of the block with the lowest address that has so many, or None."""
    fitting = [block for block in blocks if block.size >= size]
    if not fitting:
        return None
    return min(fitting, key=lambda block: (block.cluster, block.domain, block.start)).ipus(size)


def _history(rule: Rule, seed: int, options: argparse.Namespace) -> tuple[float, float]:
    """The share of refused requests, and the mean of the largest free block's share."""
    chance = random.Random(seed)
    fleet = fleet_of_parts(options.machines, 4, [("default", "default")])
    held: dict[str, tuple[IpuId, ...]] = {}
    occupancy, used = Occupancy.of(fleet), 0
    sizes = [size for size in PARTITION_SIZES if 4 * size <= len(fleet)]
    weights = [_WEIGHTS[size] for size in sizes]
    attempts = refused = 0
    shares = []
    for step in range(options.steps):
        (size,) = chance.choices(sizes, weights)
        if used + size > _BUSY_SHARE * len(fleet):
            gone = held.pop(chance.choice(list(held)))
            occupancy, used = occupancy.freed(gone), used - len(gone)
            continue
        attempts += 1
        got = rule(occupancy.free_blocks(), size)
        if got is None:
            refused += 1
            gone = held.pop(chance.choice(list(held)))
            occupancy, used = occupancy.freed(gone), used - len(gone)
            continue
        occupancy, used = occupancy.taken(got, f"p{step}"), used + size
        held[f"p{step}"] = got
        free = len(fleet) - used
        possible = max(each for each in PARTITION_SIZES if each <= free)
        shares.append(max(block.size for block in occupancy.free_blocks()) / possible)
    return refused / attempts, statistics.fmean(shares)
