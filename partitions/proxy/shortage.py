"""domain: sentences that say why a job waits for IPUs, in its status and in `/query`."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipuhub.partition import Reason
from partitions.proxy.lifecycle import Shortage
from partitions.vipu.topology import size_problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from partitions.proxy.controllers import ControllerView

_MOST_NAMED = 3
_WITH_A_DIGIT = re.compile(r"\S*\d\S*")
_LONGEST_WHY = 200  # a status and an Event have room for three of them


def explain_shortage(views: Sequence[ControllerView], size: int) -> Shortage:
    """Return why `order_candidates` found nothing, for someone who waits for IPUs."""
    free = sum(view.free for view in views if view.has_node)
    if not views:
        sentence = "no V-IPU controller is configured; add a controller as host:port:label=value"
        return Shortage(Reason.NO_CONTROLLERS, sentence, free)
    labelled = [view for view in views if view.has_node]
    if not labelled:
        labels = ", ".join(sorted({view.spec.label for view in views}))
        sentence = f"no node has the label of a V-IPU controller: label a node with {labels}"
        return Shortage(Reason.NO_LABELLED_NODE, sentence, free)
    silent = [view.spec.address for view in labelled if not view.is_reachable]
    if not any(view.is_reachable and view.creates for view in labelled):
        what = "" if len(silent) == len(labelled) else " creations"
        known = ", ".join(view.spec.address for view in labelled)
        sentence = f"no V-IPU controller answers{what}: {known}"
        return Shortage(Reason.CONTROLLER_UNAVAILABLE, sentence, free)
    return Shortage(Reason.NO_CAPACITY, _capacity_sentence(views, size, silent), free)


def never_fits(views: Sequence[ControllerView], size: int) -> str:
    """Return why no job ever gets a partition of `size`, in one sentence; "" if a job may.

    A controller that does not answer may have room.
    """
    if problem := size_problem(size):
        return problem
    if not all(view.is_reachable for view in views):
        return ""
    if not views or any(view.can_ever_take(size) for view in views):
        return ""
    largest = max(view.largest_block for view in views)
    return (
        f"partitions of {size} IPUs never fit: no V-IPU controller has {size} IPUs in one block, "
        f"the largest has {largest}"
    )


def out_of_service(views: Sequence[ControllerView]) -> str:
    """Return which IPUs get no new partition, and why, in the controllers' words: those that an
    administrator wrote for a cordon are for who waits. Empty if there are none.

    At most three reasons are named, the one with the most IPUs first where there are more. Reasons
    that differ only in names and numbers then count as one: a thousand agents that do not answer
    are one thing to know.
    """
    closed = (
        (view.spec.address, ipu.fault or ipu.cordon)
        for view in views
        for ipu in (view.reach.closed.values() if view.reach else ())
    )
    counts = Counter(closed)
    counts |= {(v.spec.address, v.creates_none): v.total for v in views if not v.creates}
    groups = [_Closed([key], count) for key, count in counts.items()]
    if len(groups) > _MOST_NAMED:
        groups = sorted(_alike(groups), key=lambda group: -group.ipus)
    named = [group.text(len(views) > 1) for group in groups[:_MOST_NAMED]]
    if more := sum(group.ipus for group in groups[_MOST_NAMED:]):
        named.append(f"{_ipus(more)} more")
    return ", ".join(named)


@dataclass(slots=True)
class _Closed:
    """IPUs out of service for one reason: `keys` are pairs of a controller's address and its
    words."""

    keys: list[tuple[str, str]]
    ipus: int

    def text(self, is_one_of_many: bool) -> str:
        """Return how many, and why; with the controller, as each calls its machines ag0, ag1."""
        addresses = {address for address, _ in self.keys}
        (address, reason), more = self.keys[0], len(self.keys) - 1
        of = address if len(addresses) == 1 else f"{len(addresses)} controllers"
        alike = f", and {more} more like it" if more else ""
        return (
            f"{_ipus(self.ipus)}{f' of {of}' if is_one_of_many else ''} "
            f"({_shortened(reason)}{alike})"
        )


def _alike(groups: Iterable[_Closed]) -> Collection[_Closed]:
    """Join reasons that are the same but for words with a digit: names, numbers, times."""
    found: dict[str, _Closed] = {}
    for group in groups:
        key = _WITH_A_DIGIT.sub("#", group.keys[0][1])
        if key in found:
            found[key].keys += group.keys
            found[key].ipus += group.ipus
        else:
            found[key] = group
    return found.values()


def _ipus(count: int) -> str:
    return "1 IPU" if count == 1 else f"{count} IPUs"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_WHY else f"{text[: _LONGEST_WHY - 1]}…"


def _capacity_sentence(views: Sequence[ControllerView], size: int, silent: Collection[str]) -> str:
    """Return a message that other jobs do not change, so without free IPUs, which change all the
    time. Machines out of service and silent controllers change seldom; the operator writes a
    changed message at most once a minute."""
    sentence = f"{size} IPUs in one block are needed"
    labelled = [view for view in views if view.has_node]
    if never := never_fits(views, size):
        sentence += f"; {never}"
    elif labels := _missing_labels(views, size):
        sentence += f", and no node has the label of a controller with such a block: {labels}"
    else:
        largest = max(view.largest_block for view in labelled)
        sentence += " and not free now" + (f"; blocks have up to {largest}" if largest else "")
    if closed := out_of_service(labelled):
        sentence += f"; out of service: {closed}"
    if silent:
        sentence += f"; not answering: {', '.join(silent)}"
    return sentence


def _missing_labels(views: Sequence[ControllerView], size: int) -> str:
    """Return what to label a node with where only controllers without a node can ever take `size`;
    "" elsewhere."""
    if any(view.can_ever_take(size) or not view.is_reachable for view in views if view.has_node):
        return ""
    labels = {view.spec.label for view in views if not view.has_node and view.can_ever_take(size)}
    return f"label a node with {' or '.join(sorted(labels))}" if labels else ""
