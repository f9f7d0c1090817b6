"""domain: the teams and jobs that the demo's load and its sample history are made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from random import Random

LABEL: Final = "ipuhub.io/sample"
"""Marks what is a sample: on namespaces, jobs and pods."""
API_VERSION: Final = "graphcore.ai/v1alpha1"
_RBAC: Final = "rbac.authorization.k8s.io"


class Outcome(StrEnum):
    """How a sample job ends."""

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
    """Return job `number`, running `shortest` to `longest` seconds, short ones more often."""
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
    """Return the IPUJob, with annotations that tell stand-in nodes how it goes."""
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


def _ending(outcome: Outcome) -> dict[str, str]:
    if outcome is Outcome.FAILS:
        return {"sim/exit-code": "1", "sim/log": "ValueError: the loss is not a number\n"}
    if outcome is Outcome.OUT_OF_MEMORY:
        return {"sim/exit-code": "137", "sim/termination-reason": "OOMKilled"}
    return {}
