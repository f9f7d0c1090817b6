"""domain: worker pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.builders.context import micro_ipus_of
from jobs.builders.mpi import SCRIPT
from jobs.builders.pod import (
    MPI_FOLDER,
    MPI_VOLUME,
    add_environment,
    add_mounts,
    add_volume,
    ipu_environment,
    mpi_volume,
    pod_metadata,
    pod_spec,
    sleep_command,
)
from jobs.ipujob.names import ROLE_WORKER, launcher_name, worker_name

if TYPE_CHECKING:
    from jobs.builders.context import BuildContext, PodPlace
    from jobs.ipujob.manifests import Manifest


def build_worker(context: BuildContext, place: PodPlace, worker: int) -> Manifest:
    """Worker pod number `worker` of the job.

    With a launcher its first container sleeps until the launcher starts processes in it;
    without one it runs the template's own command.
    """
    job = context.spec
    spec = pod_spec(context, place)
    for container in spec["containers"]:
        add_environment(container, ipu_environment(context, place))
    if job.has_launcher:
        main = spec["containers"][0]
        main["command"] = sleep_command()
        main.pop("args", None)
        _mount_script(context, spec, main)
    share = micro_ipus_of(
        job.partition_size, job.workers_per_instance, worker - job.workers_of(place.instance).start
    )
    name = worker_name(context.key.name, worker)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": pod_metadata(context, place, name=name, role=ROLE_WORKER, micro_ipus=share),
        "spec": spec,
    }


def _mount_script(context: BuildContext, spec: Manifest, main: Manifest) -> None:
    """Open MPI looks for the remote-shell script on every host, also where it never calls it."""
    items = [{"key": SCRIPT, "path": SCRIPT, "mode": 0o555}]
    add_volume(spec, mpi_volume(launcher_name(context.key.name), items, sleeps=True))
    add_mounts(main, [{"name": MPI_VOLUME, "mountPath": MPI_FOLDER, "readOnly": True}])
