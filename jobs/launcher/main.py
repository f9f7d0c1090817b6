"""glue: `ipuhub-launcher`: waits for the workers, delivers kubectl, opens the gate.

It ends with 0 when the launcher's command may start, else with 1 and a sentence, which Kubernetes
shows as the container's message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ipuhub import logs
from ipuhub.env import Env, SettingError
from ipuhub.kube.cache import Informer
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ApiError, ConfigError, NotFound
from ipuhub.kube.resources import PODS
from jobs.launcher.gate import awaited, closed_because
from jobs.names import LABEL_JOB_UID, LABEL_ROLE, ROLE_WORKER, worker_name
from jobs.resources import IPUJOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jobs.manifests import Manifest

RETRY_SECONDS = 2.0


class LauncherError(Exception):
    """The command must not start; the message says why."""


@dataclass(frozen=True, slots=True)
class LauncherTask:
    """What the operator tells the init container by its environment.

    `wait_seconds` 0: waits without end. `kubectl` is the program to deliver to `folder`; empty:
    it is not needed.
    """

    namespace: str
    job: str
    uid: str
    instance: int
    attempt: int
    workers: int
    folder: Path
    kubectl: str
    wait_seconds: float
    kubeconfig: str = ""

    @property
    def worker_names(self) -> tuple[str, ...]:
        """The pods that must be Ready."""
        return tuple(worker_name(self.job, number) for number in range(self.workers))


def read_task(environment: Mapping[str, str]) -> LauncherTask:
    """Read the environment; raises SettingError with the variable's name."""
    env = Env(environment)
    texts = {name: env.text(name, "", doc="") for name in _NEEDED}
    missing = [name for name, value in texts.items() if not value]
    if missing:
        raise SettingError(f"{' and '.join(missing)}: set by the operator, but missing here")
    return LauncherTask(
        namespace=texts["IPUHUB_NAMESPACE"],
        job=texts["IPUHUB_JOB"],
        uid=texts["IPUHUB_JOB_UID"],
        instance=env.integer("IPUHUB_INSTANCE", 0, minimum=0, doc=""),
        attempt=env.integer("IPUHUB_ATTEMPT", 0, minimum=0, doc=""),
        workers=env.integer("IPUHUB_WORKERS", 1, minimum=1, doc=""),
        folder=Path(env.text("IPUHUB_KUBECTL_FOLDER", "/opt/kube", doc="")),
        kubectl=env.text("IPUHUB_KUBECTL_BINARY", shutil.which("kubectl") or "", doc=""),
        wait_seconds=env.number("IPUHUB_LAUNCHER_WAIT_SECONDS", 0.0, doc=""),
        kubeconfig=env.text("KUBECONFIG", "", doc=""),
    )


_NEEDED = ("IPUHUB_NAMESPACE", "IPUHUB_JOB", "IPUHUB_JOB_UID")


def deliver_kubectl(task: LauncherTask) -> None:
    """Copy kubectl to where the exec script of the job looks for it; raises LauncherError."""
    if not task.kubectl:
        raise LauncherError("there is no kubectl in this image: mpirun could not reach a worker")
    try:
        task.folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(task.kubectl, task.folder / "kubectl")
        (task.folder / "kubectl").chmod(0o755)
    except OSError as error:
        raise LauncherError(f"cannot put kubectl into {task.folder}: {error}") from error


async def wait_for_workers(
    client: KubeClient, task: LauncherTask, say: Callable[[str], None]
) -> None:
    """Return once all workers of the attempt are Ready; raises LauncherError when the time is up
    or the job no longer wants them."""
    changed = asyncio.Event()
    selector = f"{LABEL_JOB_UID}={task.uid},{LABEL_ROLE}={ROLE_WORKER}"
    pods = Informer(client, PODS, namespace=task.namespace, label_selector=selector)
    pods.add_handler(lambda _old, _new: changed.set())
    following = asyncio.create_task(pods.run())
    last = ""
    try:
        async with asyncio.timeout(task.wait_seconds or None):
            await pods.wait_synced()
            while last := awaited(task.worker_names, pods.all(), task.attempt):
                say(last)
                changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), 30)
                await check_gate(client, task)
    except TimeoutError:
        waited = f"waited {task.wait_seconds:g} s: {last or pods.problem or 'no answer'}"
        raise LauncherError(waited) from None
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def check_gate(client: KubeClient, task: LauncherTask) -> None:
    """Raise LauncherError where the command must not start any more; an API server that does
    not answer is waited for."""
    while True:
        try:
            job: Manifest | None = await client.get(IPUJOBS, task.job, task.namespace)
        except NotFound:
            job = None
        except ApiError as error:
            if not error.retryable:
                raise LauncherError(f"cannot read the job: {error}") from error
            await asyncio.sleep(RETRY_SECONDS)
            continue
        why = closed_because(job, task.uid, task.instance, task.attempt)
        if why:
            raise LauncherError(f"not starting the command: {why}")
        return


async def run(task: LauncherTask, say: Callable[[str], None]) -> None:
    """Do all of it; raises LauncherError or ConfigError."""
    deliver_kubectl(task)
    async with KubeClient(load_config(task.kubeconfig)) as client:
        await wait_for_workers(client, task, say)
        await check_gate(client, task)
    say(f"all {task.workers} workers are ready")


def main() -> int:
    """The console script; returns the exit code."""
    logs.configure("warning", "text")
    try:
        asyncio.run(run(read_task(os.environ), _say))
    except (LauncherError, ConfigError, SettingError) as error:
        _say(str(error))
        return 1
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"ipuhub-launcher: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
