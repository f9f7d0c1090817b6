"""Lives of a job: what users, pods and the fleet do, each with the end that it must come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.builders.ipujobs import ipujob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.builders.ipujobs import IPUJobBuilder
    from tests.fakes.chaosworld import ChaosWorld

    Tale = Callable[[ChaosWorld], Awaitable[None]]


@dataclass(frozen=True)
class Story:
    """`want_state` None: the job is gone. `want_attempts`: how many attempts its instance 0 took
    (None: not told). `want_held`: partitions that stay."""

    name: str
    tell: Tale
    want_state: str | None
    want_attempts: int | None = None
    want_held: int = 0


STORIES: list[Story] = []


def story(
    want_state: str | None, attempts: int | None = None, held: int = 0
) -> Callable[[Tale], Tale]:
    """Takes a tale into the collection."""

    def keep(tell: Tale) -> Tale:
        STORIES.append(Story(tell.__name__, tell, want_state, attempts, held))
        return tell

    return keep


def new_job() -> IPUJobBuilder:
    return ipujob().without_finalizer().workers(2)


def fails_until(attempt: int, code: int = 7) -> Callable[[int], int]:
    return lambda number: code if number < attempt else 0


def ends_from(attempt: int) -> Callable[[int], int | None]:
    """Runs on, but for attempts from this number on, which succeed."""
    return lambda number: 0 if number >= attempt else None


async def start_job(world: ChaosWorld, job: IPUJobBuilder, **pods: Any) -> str:
    uid = world.kube.add_job(job.build())
    # Of a job without a launcher the workers are what runs.
    await world.until(lambda: world.state() == "Running", **({"launcher_exit": None} | pods))
    return uid


def asked_for(world: ChaosWorld) -> list[tuple[str, str, int]]:
    """Return the changes of partitions on request, without those that their controller lost by
    itself."""
    return [one for one in world.partitions.history if one[0] != "lose"]


# --- success and failure ------------------------------------------------------------------------


@story("Completed", 1)
async def success(world: ChaosWorld) -> None:
    world.kube.add_job(ipujob().without_finalizer().workers(3).build())
    await world.settle()


@story("Completed", 1)
async def success_on_a_slow_fleet(world: ChaosWorld) -> None:
    world.partitions.is_slow = True
    world.kube.add_job(new_job().build())
    await world.settle()


@story("Completed", 1)
async def success_without_launcher(world: ChaosWorld) -> None:
    world.kube.add_job(new_job().without_launcher().instances(2).workers(1).build())
    await world.settle(worker_exit=0)


@story("Completed", 1, held=1)
async def success_that_keeps_its_partition(world: ChaosWorld) -> None:
    world.kube.add_job(new_job().keep_partition().build())
    await world.settle()


@story("Failed", 1)
async def failure_cleaned_up(world: ChaosWorld) -> None:
    world.kube.add_job(new_job().clean("All").build())
    await world.settle(launcher_exit=7)


@story("Completed", 1)
async def waits_for_ipus(world: ChaosWorld) -> None:
    other = world.kube.add_job(ipujob("first").without_finalizer().ipus(32).build())
    await world.until(lambda: world.state("first") == "Running", launcher_exit=None)
    world.kube.add_job(new_job().build())
    await world.run(8, launcher_exit=None)
    is_first_left_alone = asked_for(world) == world.partitions.history
    assert len(world.partitions.held()) == 1 or not is_first_left_alone
    world.kube.delete_job("first")
    await world.settle()
    assert world.partitions.records[other, 0].phase == "released"


# --- restart policies ---------------------------------------------------------------------------

SOON = {"backOffLimit": 2}


def _policy_story(
    name: str,
    policy: dict[str, Any],
    code: int | Callable[[int], int],
    state: str,
    attempts: int,
) -> None:
    async def tell(world: ChaosWorld) -> None:
        world.kube.add_job(new_job().with_spec(restartPolicy=SOON | policy).build())
        await world.settle(launcher_exit=code)

    STORIES.append(Story(name, tell, state, attempts))


for _name, _policy, _code, _state, _attempts in (
    ("never_ends_with_the_first_failure", {"type": "Never"}, 7, "Failed", 1),
    ("on_failure_stops_at_the_limit", {"type": "OnFailure"}, 7, "Failed", 3),
    ("on_failure_until_it_succeeds", {"type": "OnFailure"}, fails_until(2), "Completed", 3),
    ("on_failure_leaves_success_alone", {"type": "OnFailure"}, 0, "Completed", 1),
    ("always_after_success_too", {"type": "Always"}, 0, "Completed", 3),
    ("always_stops_at_the_limit", {"type": "Always"}, 7, "Failed", 3),
    ("exit_code_not_listed", {"type": "ExitCode", "exitCodes": "1,5,10-127"}, 7, "Failed", 1),
    ("exit_code_listed", {"type": "ExitCode", "exitCodes": "1,5-9"}, 7, "Failed", 3),
    ("exit_code_of_a_signal", {"type": "ExitCode"}, fails_until(1, 137), "Completed", 2),
):
    _policy_story(_name, _policy, _code, _state, _attempts)


def _loss_story(policy: str, loss: str) -> None:
    """Losses of a job are not counted; under Never a loss is the end all the same."""

    async def tell(world: ChaosWorld) -> None:
        policies = {"type": policy, "backOffLimit": 0}
        uid = await start_job(world, new_job().with_spec(restartPolicy=policies))
        if loss == "partition":
            world.partitions.set_phase(uid, 0, "error", "an IPU is down")
        elif loss == "worker deleted":
            world.kube.delete_pod("sample-worker-1")
        elif loss == "launcher deleted":
            world.kube.delete_pod("sample-launcher")
        else:
            world.kube.evict_pod("sample-worker-0")
        await world.settle(launcher_exit=ends_from(1))

    again = policy != "Never"
    name = f"{loss.replace(' ', '_')}_under_{policy.lower()}"
    STORIES.append(Story(name, tell, "Completed" if again else "Failed", 2 if again else 1))


for _policy_name in ("Never", "OnFailure", "Always", "ExitCode"):
    for _loss in ("partition", "worker deleted", "launcher deleted", "worker evicted"):
        _loss_story(_policy_name, _loss)


@story("Completed", 2)
async def instances_restarted_alone(world: ChaosWorld) -> None:
    job = new_job().without_launcher().instances(2).workers(1)
    often = {"type": "OnFailure", "backOffLimit": 2}
    world.kube.add_job(job.with_spec(restartPolicy=often).build())
    await world.settle(worker_exit=fails_until(1))


# --- suspend, scale, ends by time ---------------------------------------------------------------


@story("Completed", 2)
async def suspended_and_resumed(world: ChaosWorld) -> None:
    await start_job(world, new_job())
    world.kube.edit_job("sample", suspend=True)
    await world.settle(launcher_exit=None)
    assert world.state() == "Suspended"
    assert world.partitions.held() == []
    assert world.kube.pods() == []
    world.kube.edit_job("sample", suspend=False)
    await world.settle()


@story("Completed", 2)
async def suspended_while_pending(world: ChaosWorld) -> None:
    world.kube.is_full = True
    world.kube.add_job(new_job().build())
    await world.until(lambda: len(world.kube.pods()) > 1)
    world.kube.edit_job("sample", suspend=True)
    await world.settle()
    assert world.partitions.held() == []
    world.kube.is_full = False
    world.kube.edit_job("sample", suspend=False)
    await world.settle()


@story("Completed")
async def suspended_from_the_start(world: ChaosWorld) -> None:
    world.kube.add_job(new_job().with_spec(suspend=True).build())
    await world.settle()
    assert world.state() == "Suspended"
    assert world.partitions.history == []
    world.kube.edit_job("sample", suspend=False)
    await world.settle()


@story("Completed", 1)
async def scaled_down_and_up(world: ChaosWorld) -> None:
    job = new_job().without_launcher().instances(3).workers(1)
    await start_job(world, job)
    world.kube.edit_job("sample", jobInstances=1)
    await world.settle()
    assert len(world.partitions.held()) == 1
    assert [pod["metadata"]["name"] for pod in world.kube.pods()] == ["sample-worker-0"]
    world.kube.edit_job("sample", jobInstances=2)
    await world.settle()
    assert len(world.partitions.held()) == 2
    await world.settle(worker_exit=0)


@story("Failed", 1)
async def ended_by_its_deadline(world: ChaosWorld) -> None:
    world.kube.add_job(new_job().with_spec(activeDeadlineSeconds=30).build())
    await world.settle(launcher_exit=None)
    assert world.invariants.starts() <= 1


@story(None)
async def deleted_by_its_time_to_live(world: ChaosWorld) -> None:
    world.kube.add_job(new_job().with_spec(ttlSecondsAfterFinished=10).build())
    await world.settle()


@story("Completed", 1)
async def session_over(world: ChaosWorld) -> None:
    world.kube.add_job(ipujob().without_finalizer().interactive(120).build())
    await world.settle(launcher_exit=None)


# --- deletion at each phase ---------------------------------------------------------------------


async def deleted_when(
    world: ChaosWorld, job: IPUJobBuilder, reached: Callable[[], bool], **pods: Any
) -> None:
    world.kube.add_job(job.build())
    await world.until(reached, **pods)
    world.kube.delete_job("sample")
    await world.settle(**pods)


@story(None)
async def deleted_at_once(world: ChaosWorld) -> None:
    await deleted_when(world, new_job(), lambda: world.writes >= 1)


@story(None)
async def deleted_while_it_waits_for_ipus(world: ChaosWorld) -> None:
    world.partitions.ipus = 2
    await deleted_when(world, new_job(), lambda: world.state() == "Pending")


@story(None)
async def deleted_while_its_partition_is_made(world: ChaosWorld) -> None:
    world.partitions.is_slow = True
    await deleted_when(world, new_job(), lambda: bool(world.partitions.history))


@story(None)
async def deleted_while_its_pods_are_pending(world: ChaosWorld) -> None:
    world.kube.is_full = True
    await deleted_when(world, new_job(), lambda: len(world.kube.pods()) > 1)


@story(None)
async def deleted_while_running(world: ChaosWorld) -> None:
    await deleted_when(world, new_job(), lambda: world.state() == "Running", launcher_exit=None)


@story(None)
async def deleted_while_restarting(world: ChaosWorld) -> None:
    job = new_job().with_spec(restartPolicy={"type": "OnFailure"})
    await deleted_when(world, job, lambda: world.state() == "Restarting", launcher_exit=7)


@story(None)
async def deleted_while_suspended(world: ChaosWorld) -> None:
    await start_job(world, new_job())
    world.kube.edit_job("sample", suspend=True)
    await world.until(lambda: world.state() == "Suspended", launcher_exit=None)
    world.kube.delete_job("sample")
    await world.settle(launcher_exit=None)


@story(None)
async def deleted_when_completed(world: ChaosWorld) -> None:
    await deleted_when(world, new_job(), lambda: world.state() == "Completed")


@story(None)
async def deleted_with_its_partition_kept(world: ChaosWorld) -> None:
    world.kube.add_job(new_job().keep_partition().build())
    await world.settle()
    world.kube.delete_job("sample")
    await world.settle()


@story("Completed", 1)
async def deleted_and_made_again(world: ChaosWorld) -> None:
    await start_job(world, new_job())
    world.kube.delete_job("sample")
    await world.until(lambda: world.kube.job("sample") is None, launcher_exit=None)
    world.kube.add_job(new_job().build())
    await world.settle()


def check_end(world: ChaosWorld, story: Story) -> None:
    """The end that the story must come to, and nothing left over."""
    assert world.state() == story.want_state
    assert len(world.partitions.held()) == story.want_held
    if story.want_state is None:
        assert [place for place in world.kube.objects if place[0] != "namespaces"] == []
    phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in world.kube.pods()}
    assert set(phases.values()) <= {"Succeeded", "Failed"}, phases
    if story.want_attempts is not None:
        first = world.status()["instances"][0]
        assert first["attempt"] + 1 == story.want_attempts, first


async def check_rest(world: ChaosWorld) -> None:
    """A pass on an unchanged world makes no call that changes anything."""
    writes, made = world.writes, len(world.kube.changes)
    for replica in world.replicas:
        replica.controller.enqueue_all()
    await world.run(3)
    assert (world.writes, len(world.kube.changes)) == (writes, made)
