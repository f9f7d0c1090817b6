"""domain: teams and jobs of the demo's load and its sample history.

Also the events of the sample history: jobs that waited for IPUs and ran, and other pods. The same
seed and the same months give the same history, including UIDs.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid5

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

LABEL: Final = "ipuhub.io/sample"
"""Marks what is a sample: on namespaces, jobs and pods."""
API_VERSION: Final = "graphcore.ai/v1alpha1"
_RBAC: Final = "rbac.authorization.k8s.io"


class Outcome(StrEnum):
    """The end of a sample job."""

    COMPLETES = "completes"
    FAILS = "fails"
    OUT_OF_MEMORY = "out-of-memory"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Team:
    """A namespace, the group that it counts for, and its people."""

    namespace: str
    group: str
    users: tuple[str, ...]
    models: tuple[str, ...]


TEAMS: Final = (
    Team("sample-vision", "perception", ("amara", "bjorn", "chen"), ("resnet50", "vit", "yolo")),
    Team("sample-language", "language", ("dilan", "esi", "farid"), ("bert", "gpt2", "t5")),
    Team("sample-speech", "language", ("gita", "hugo"), ("conformer", "wav2vec")),
    Team("sample-genomics", "life-science", ("ines", "jonas"), ("enformer", "alphafold")),
    Team("sample-climate", "earth", ("kofi", "lena", "mika"), ("gnn-weather", "fourcast")),
)
SIZES: Final = (1, 2, 4, 8, 16)
_SIZE_WEIGHTS: Final = (3, 4, 6, 3, 1)
_OUTCOMES: Final = tuple(Outcome)
_OUTCOME_WEIGHTS: Final = (78, 12, 4, 6)


@dataclass(frozen=True, slots=True)
class SampleJob:
    """One job of the stream; `seconds` is how long its launcher runs."""

    team: Team
    name: str
    user: str
    ipus: int
    workers: int
    seconds: float
    outcome: Outcome
    cpu_cores: int
    memory_gib: int


def draw_job(random: Random, number: int, shortest: float, longest: float) -> SampleJob:
    """Return job `number`, running `shortest` to `longest` seconds, short jobs more often."""
    team = random.choice(TEAMS)
    ipus = random.choices(SIZES, _SIZE_WEIGHTS)[0]
    workers = random.choice([count for count in (1, 2, 4) if count <= ipus])
    return SampleJob(
        team=team,
        name=f"{random.choice(team.models)}-{number:05d}",
        user=random.choice(team.users),
        ipus=ipus,
        workers=workers,
        seconds=shortest * (longest / shortest) ** random.random(),
        outcome=random.choices(_OUTCOMES, _OUTCOME_WEIGHTS)[0],
        cpu_cores=random.choice((1, 2, 4)),
        memory_gib=random.choice((2, 4, 8)),
    )


def namespace_manifest(team: Team) -> dict[str, Any]:
    """Return the team's namespace with the label that says its group."""
    labels = {LABEL: "true", "ipuhub.io/group": team.group}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": team.namespace, "labels": labels},
    }


def access_manifests(team: Team) -> list[dict[str, Any]]:
    """Return what lets the team's people make jobs in its namespace."""
    metadata = {"name": "sample-users", "namespace": team.namespace, "labels": {LABEL: "true"}}
    rule = {"apiGroups": ["graphcore.ai"], "resources": ["ipujobs"], "verbs": ["create"]}
    head = {"apiVersion": f"{_RBAC}/v1", "metadata": metadata}
    subjects = [{"apiGroup": _RBAC, "kind": "User", "name": user} for user in team.users]
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": "sample-users"}
    return [
        head | {"kind": "Role", "rules": [rule]},
        head | {"kind": "RoleBinding", "roleRef": reference, "subjects": subjects},
    ]


def job_manifest(job: SampleJob) -> dict[str, Any]:
    """Return the IPUJob, with annotations that control its life on stand-in nodes."""
    requests = {"cpu": str(job.cpu_cores), "memory": f"{job.memory_gib}Gi"}
    container = {
        "name": "trainer",
        "image": "example.org/trainer:1",
        "resources": {"requests": requests},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "IPUJob",
        "metadata": {
            "name": job.name,
            "namespace": job.team.namespace,
            "labels": {LABEL: "true"},
            "annotations": {"sim/runtime-seconds": f"{job.seconds:.1f}", **_ending(job.outcome)},
        },
        "spec": {
            "modelReplicas": str(job.ipus),
            "ipusPerModelReplica": "1",
            "restartPolicy": {"type": "Never"},
            "launcher": {"command": ["mpirun", "python3", "train.py"]},
            "workers": {
                "replicas": job.workers,
                "template": {"spec": {"containers": [container]}},
            },
        },
    }


LAST_LINES: Final = {
    Outcome.FAILS: (
        "step 1180, loss 2.31\nstep 1190, loss 4.87\nstep 1200, loss nan\n"
        "ValueError: the loss is not a number\n"
    ),
    Outcome.OUT_OF_MEMORY: "loading shard 7 of 8\n",
}
"""The last output of failed sample jobs."""


def _ending(outcome: Outcome) -> dict[str, str]:
    if outcome is Outcome.FAILS:
        return {"sim/exit-code": "1", "sim/log": "ValueError: the loss is not a number\n"}
    if outcome is Outcome.OUT_OF_MEMORY:
        return {"sim/exit-code": "137", "sim/termination-reason": "OOMKilled"}
    return {}


CLUSTER: Final = "sample-history"
"""Cluster identity of every row of the sample history: how it is recognised and removed."""
CONTROLLER: Final = "sample-history:8090"
TOTAL_IPUS: Final = 32
"""As many as the demo's own fleet has, or its charts would show more IPUs held than there are."""
_NAMES: Final = UUID("6f0e9a52-3f5b-4d0c-9a0f-2d6f4f1f6b11")
_JOBS_OF_WEEKDAY: Final = (46, 52, 55, 50, 40, 14, 10)
_NOTEBOOKS_OF_WEEKDAY: Final = (9, 10, 10, 9, 7, 2, 1)
_SHORTEST_SECONDS: Final = 240.0
_LONGEST_SECONDS: Final = 8 * 3600.0


@dataclass(frozen=True, slots=True)
class PastJob:
    """An IPUJob and its times; `ended` is its end or deletion."""

    job: SampleJob
    uid: str
    created: datetime
    started: datetime
    ended: datetime


@dataclass(frozen=True, slots=True)
class PastPod:
    """A pod that is no IPUJob's: a notebook or a deployed model, by another's annotation."""

    team: Team
    uid: str
    name: str
    component: str
    user: str
    gpus: int
    cpu_cores: int
    started: datetime
    ended: datetime


def sample_uid(*parts: object) -> str:
    """A UID that the same parts always give."""
    return str(uuid5(_NAMES, "/".join(map(str, parts))))


def first_of_month_before(now: datetime, months: int) -> datetime:
    """The beginning of the month `months` before the month of `now` (aware UTC)."""
    count = now.year * 12 + now.month - 1 - months
    midnight = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return midnight.replace(year=count // 12, month=count % 12 + 1)


def past_jobs(seed: int, begin: datetime, end: datetime) -> Iterator[PastJob]:
    """The jobs that were submitted from `begin` on and had ended by `end`, oldest first.

    They wait in order of arrival until as many IPUs are free as they need.
    """
    held: list[tuple[datetime, int]] = []
    free, last_start, number = TOTAL_IPUS, begin, 0
    for day in _days(begin, end):
        random = Random(f"{seed}/{day:%Y-%m-%d}/jobs")  # noqa: S311  # repeatable, no secret
        for created in _moments(random, day, _JOBS_OF_WEEKDAY[day.weekday()]):
            number += 1
            job = draw_job(random, number, _SHORTEST_SECONDS, _LONGEST_SECONDS)
            start = max(last_start, created)
            while held and (held[0][0] <= start or free < job.ipus):
                released, size = heapq.heappop(held)
                start, free = max(start, released), free + size
            last_start = start
            runs = job.seconds / 2 if job.outcome is Outcome.DELETED else job.seconds
            started = start + timedelta(seconds=4)
            ended = started + timedelta(seconds=int(runs))
            free -= job.ipus
            heapq.heappush(held, (ended + timedelta(seconds=3), job.ipus))
            if ended + timedelta(minutes=2) <= end:
                uid = sample_uid(seed, f"{day:%Y-%m-%d}", job.name)
                yield PastJob(job, uid, created, started, ended)


def past_pods(seed: int, begin: datetime, end: datetime) -> Iterator[PastPod]:
    """Notebooks of working hours, and one deployed model a team and week."""
    for day in _days(begin, end):
        random = Random(f"{seed}/{day:%Y-%m-%d}/pods")  # noqa: S311  # repeatable, no secret
        for number, started in enumerate(
            _moments(random, day, _NOTEBOOKS_OF_WEEKDAY[day.weekday()])
        ):
            team = random.choice(TEAMS)
            user, gpus = random.choice(team.users), random.choice((0, 0, 0, 1))
            cores = random.choice((1, 2, 4))
            ended = started + timedelta(minutes=random.randrange(20, 480))
            if ended <= end:
                name = f"jupyter-{user}-{day:%m%d}-{number}"
                uid = sample_uid(seed, f"{day:%Y-%m-%d}", name)
                yield PastPod(team, uid, name, "notebook", user, gpus, cores, started, ended)
        if day.weekday() == 0:
            for team in TEAMS:
                ended = day + timedelta(days=7)
                if ended <= end:
                    name = f"deploy-{random.choice(team.models)}-{day:%m%d}"
                    uid = sample_uid(seed, f"{day:%Y-%m-%d}", team.namespace, name)
                    yield PastPod(team, uid, name, "model_deploy", "", 0, 1, day, ended)


def _days(begin: datetime, end: datetime) -> Iterator[datetime]:
    day = begin
    while day < end:
        yield day
        day += timedelta(days=1)


def _moments(random: Random, day: datetime, count: int) -> list[datetime]:
    """So many moments of a day, most of them around the early afternoon."""
    seconds = sorted(int(random.triangular(6, 23, 13) * 3600) for _ in range(count))
    return [day + timedelta(seconds=second) for second in seconds]


def free_ipus(
    jobs: Iterable[PastJob], begin: datetime, end: datetime
) -> Iterator[tuple[datetime, int]]:
    """Yield the number of free IPUs at each full hour at which that had changed, `begin` among
    them."""
    changes = sorted(
        [(past.started - timedelta(seconds=3), -past.job.ipus) for past in jobs]
        + [(past.ended + timedelta(seconds=2), past.job.ipus) for past in jobs]
    )
    free, reported, moment, position = TOTAL_IPUS, -1, begin, 0
    while moment < end:
        while position < len(changes) and changes[position][0] <= moment:
            free += changes[position][1]
            position += 1
        if free != reported:
            reported = free
            yield moment, free
        moment += timedelta(hours=1)
