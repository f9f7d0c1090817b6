"""domain: the pods by which a job is tried before it takes IPUs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from jobs.builders.context import PodPlace
from jobs.builders.launcher import build_launcher
from jobs.builders.worker import build_worker
from jobs.ipujob.fingerprint import made_of
from jobs.operator.actions import Step, TryPod
from jobs.partitionview import Partition, Phase

if TYPE_CHECKING:
    from jobs.builders.context import BuildContext
    from jobs.ipujob.manifests import Manifest
    from jobs.operator.actions import EnsurePartition
    from jobs.operator.instances import Instance

# What no admission looks at: a pod is judged before its partition, and with it its nodes, is known.
_STAND_IN = Partition(
    instance=0, phase=Phase.ACTIVE, id="not-yet-known", controller="not.yet.known:8090"
)


def try_step(
    context: BuildContext, instances: tuple[Instance, ...], asks: tuple[EnsurePartition, ...]
) -> Step:
    """Has the API server judge a worker and the launcher of the first instance that is about to
    ask for a partition anew: what a quota, a limit or an admission plugin refuses must not hold
    IPUs. Whoever waits for IPUs has been tried before."""
    asking = {ask.instance for ask in asks}
    fresh = [i for i in instances if i.index in asking and _is_fresh(i)]
    if not fresh:
        return Step("try", ())
    first = fresh[0]
    place = PodPlace(first.index, first.attempt, _STAND_IN)
    pods = [build_worker(context, place, context.spec.workers_of(first.index).start)]
    if context.spec.has_launcher:
        pods.append(_of_default_account(build_launcher(context, place)))
    key = _key(context)
    tries = tuple(TryPod(f"{key}/{number}", pod) for number, pod in enumerate(pods))
    return Step("try", tries, needs_previous=True)


def _is_fresh(instance: Instance) -> bool:
    partition = instance.partition
    return partition is None or partition.phase == Phase.RELEASED


def _of_default_account(launcher: Manifest) -> Manifest:
    """The launcher's own service account is made later, and a pod of none is refused."""
    launcher["spec"].pop("serviceAccountName", None)
    return launcher


def _key(context: BuildContext) -> str:
    """Equal for jobs of one namespace whose pods differ in names only."""
    words = f"{context.key.namespace} {len(context.key.name)} {made_of(context.spec).to_text()}"
    return hashlib.sha256(words.encode()).hexdigest()
