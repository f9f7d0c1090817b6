"""Pods that no API server stores, by what is wrong with them, and a pod that all of them store."""

from __future__ import annotations

import copy
from typing import Any, Final

Json = dict[str, Any]


def good_spec() -> Json:
    """Two containers that use most of what is checked."""
    return {
        "containers": [
            {
                "name": "main",
                "image": "app:1",
                "env": [{"name": "A", "value": "b"}],
                "ports": [{"name": "web", "containerPort": 80}],
                "resources": {
                    "requests": {"cpu": "100m", "memory": "64Mi", "ipu.example/fast": "2"},
                    "limits": {"cpu": "1", "memory": "1Gi", "ipu.example/fast": "2"},
                },
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "readinessProbe": {"httpGet": {"port": "web", "path": "/"}},
            },
            {
                "name": "other",
                "image": "app:1",
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            },
        ],
        "volumes": [{"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    }


def _demand(**demand: Json) -> Json:
    return {"resources": demand}


def _mounts(*mounts: Json) -> Json:
    return {"volumeMounts": list(mounts)}


def _volumes(*volumes: Json) -> Json:
    return {"volumes": [{"name": "data", "emptyDir": {}}, *volumes]}


NODE_NAME: Final = {"fieldPath": "spec.nodeName"}
IN_MAIN: Final[dict[str, Json]] = {
    "cpu-over-limit": _demand(requests={"cpu": "2"}, limits={"cpu": "1"}),
    "memory-over-limit": _demand(requests={"memory": "1025Mi"}, limits={"memory": "1Gi"}),
    "ipus-unlike-limit": _demand(requests={"a.example/b": "1"}, limits={"a.example/b": "2"}),
    "ipus-without-limit": _demand(requests={"a.example/b": "1"}),
    "ipus-by-halves": _demand(limits={"a.example/b": "500m"}),
    "negative-demand": _demand(requests={"cpu": "-1"}),
    "unknown-resource": _demand(requests={"fuel": "1"}),
    "same-mount-path": _mounts(
        {"name": "data", "mountPath": "/data"}, {"name": "data", "mountPath": "/data"}
    ),
    "mount-without-path": _mounts({"name": "data"}),
    "environment-without-name": {"env": [{"value": "a"}]},
    "port-missing": {"ports": [{"name": "web"}]},
}
IN_POD: Final[dict[str, Json]] = {
    "same-volume": _volumes({"name": "data", "emptyDir": {}}),
    "odd-volume-name": _volumes({"name": "My_Data", "emptyDir": {}}),
    "volume-without-name": _volumes({"emptyDir": {}}),
    "claim-without-name": _volumes({"name": "a", "persistentVolumeClaim": {}}),
    "folder-without-path": _volumes({"name": "a", "hostPath": {}}),
    "unknown-priority-class": {"priorityClassName": "of-nobody"},
    "unknown-runtime-class": {"runtimeClassName": "of-nobody"},
}


def bad_specs() -> dict[str, Json]:
    """A pod spec for each."""
    found = {}
    for name, change in IN_MAIN.items():
        spec = good_spec()
        spec["containers"][0] |= copy.deepcopy(change)
        found[name] = spec
    for name, change in IN_POD.items():
        found[name] = good_spec() | copy.deepcopy(change)
    return found
