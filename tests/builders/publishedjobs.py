"""IPUJobs as public user documentation writes them: the fields that each sets, in our own words.

Their commands do not matter here and are left out. Sources: Graphcore's *V-IPU User Guide* 1.15
(the alpha shape, in examples/) and *IPU Operator User Guide* 1.1, EPCC's *EIDF documentation*
(lessons 1 to 4 of its Graphcore service), and EPCC's benchmarks for reframe (in epcc-reframe
`tests/mlperf/*/graphcore_base_job.yaml`, in reframe-mlperf-epcc below `graphcore/`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_BASH = {"command": ["/bin/bash", "-c", "--"], "args": ["cd;\nmkdir build;\npython train.py\n"]}
_ONE_LINE = {"command": ["bash"], "args": ["-c", "cd && mkdir build && python train.py"]}
# What the documentation of that service has each job write.
_LARGE = {
    "resources": {"limits": {"cpu": 32, "memory": "200Gi"}},
    "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
    "volumeMounts": [{"mountPath": "/dev/shm", "name": "devshm"}],
}
_MEMORY = {"name": "devshm", "emptyDir": {"medium": "Memory", "sizeLimit": "10Gi"}}
_SHARED = {"hostIPC": True, "volumes": [_MEMORY]}
CLAIMS = ("imagenet-pvc", "cosmoflow-pvc")


@dataclass(frozen=True)
class Published:
    """One manifest; `ipus`: the size of its partition."""

    name: str
    manifest: dict[str, Any]
    ipus: int


def _worker(
    name: str, ipus: str, container: Mapping[str, Any], pod: Mapping[str, Any], **spec: Any
) -> Published:
    """A job of the current shape with one worker and no launcher."""
    main = {"name": name, "image": "graphcore/pytorch:3.3.0", **container}
    template = {"spec": {"containers": [main], "restartPolicy": "Never", **pod}}
    whole = {"jobInstances": 1, "ipusPerJobInstance": ipus, "workers": {"template": template}}
    return Published(name, _ipujob({"generateName": f"{name}-"}, whole | spec), int(ipus))


def _ipujob(metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": metadata,
        "spec": spec,
    }


def _named(job: Published) -> Published:
    """The same with a name of its own instead of the beginning of one."""
    return Published(job.name, job.manifest | {"metadata": {"name": job.name}}, job.ipus)


def _example(file: str, ipus: int) -> Published:
    documents = yaml.safe_load_all((_EXAMPLES / f"{file}.yaml").read_text(encoding="utf-8"))
    job = next(each for each in documents if each and each["kind"] == "IPUJob")
    return Published(file, job | {"metadata": {"name": file}}, ipus)


def published() -> list[Published]:
    """All of them."""
    mnist = _worker("mnist-training", "1", _BASH | _LARGE, _SHARED)
    large = _LARGE | {
        "resources": {"limits": {"cpu": 128, "memory": "400Gi"}},
        "volumeMounts": [*_LARGE["volumeMounts"], {"mountPath": "/mnt/data", "name": "volume"}],
    }
    imagenet, cosmoflow = (_claimed(claim) for claim in CLAIMS)
    whole_node = _LARGE | {"resources": {"limits": {"cpu": 190, "memory": "490Gi"}}}
    in_memory = {"name": "devshm", "emptyDir": {"medium": "Memory", "sizeLimit": "500Gi"}}
    return [
        _example("single-gcd-sample", 4),
        _example("single-gcd-sample-nfs", 4),
        _example("interactive-job", 4),
        _named(_worker("mnist-simple", "1", _ONE_LINE | {"workingDir": "/opt/tutorials"}, {})),
        mnist,
        _worker("bert-training-multi-ipu", "4", _BASH | _LARGE, _SHARED),
        _worker("bert-poprun-64ipus", "64", _BASH | _LARGE, _SHARED, modelReplicasPerWorker="16"),
        _named(_worker("mnist-training-profiling", "1", _ONE_LINE, {})),
        _worker("tensorflow-example", "1", _BASH | _LARGE, _SHARED),
        _worker("popart-example", "1", _BASH | _LARGE, _SHARED),
        _worker("poplib-example", "1", _ONE_LINE | _LARGE, _SHARED),
        _worker("resnet-training", "8", _BASH | large, imagenet),
        # Its container has the name of another job, like that of the next but one.
        _worker("bert-training-2", "2", _BASH | _LARGE | {"name": "resnet-training"}, _SHARED),
        _worker("cosmoflow-training", "8", _BASH | large, cosmoflow),
        _worker("resnet-benchmark", "8", _BASH | large | {"name": "mnist-training"}, imagenet),
        _worker("deepcam-training", "8", _BASH | whole_node, _SHARED | {"volumes": [in_memory]}),
    ]


def _claimed(claim: str) -> dict[str, Any]:
    """The part of a pod that mounts a claim beside its memory."""
    volume = {"name": "volume", "persistentVolumeClaim": {"claimName": claim}}
    memory = {"emptyDir": {"medium": "Memory"}, "name": "devshm"}
    return {"hostIPC": True, "volumes": [memory, volume]}
