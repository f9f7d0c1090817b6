"""The helper for legacy pods: its commands, run by the real kubectl in a real shell."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from devcluster.server import DevCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HELPER = str(Path(sys.executable).with_name("primehub-usage-legacy-pods-helper.py"))
GOLDEN = Path(__file__).parents[2] / "golden" / "usage" / "legacy-pods.txt"
KEY = "primehub.io/usage"
NASTY = 'x\'; touch broken; echo "$HOME" `id`\\ \n# ñ'
AUDIT = {
    "auditing.launch_group_name": "phusers",
    "auditing.user_name": "foo",
    "auditing.instance_type": "cpu-1",
}


def crd(group: str, plural: str, kind: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True}
    version["schema"] = {"openAPIV3Schema": schema}
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": spec,
    }


def owned(kind: str, name: str) -> list[dict[str, str]]:
    """An owner; `Lab.apply` puts the UID in."""
    group = "graphcore.ai" if kind == "IPUJob" else "primehub.io"
    return [{"apiVersion": f"{group}/v1alpha1", "kind": kind, "name": name, "uid": ""}]


def pod(namespace: str, name: str, **meta: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **meta},
        "spec": {"containers": [container]},
    }


def deployment(namespace: str, name: str, annotations: Any = None, **meta: Any) -> dict[str, Any]:
    labels = {"app": name}
    inner = pod(namespace, name)["spec"]
    template = {"metadata": {"labels": labels}, "spec": inner}
    if annotations:
        template["metadata"]["annotations"] = annotations
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, **meta},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def custom(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    group = "graphcore.ai" if kind == "IPUJob" else "primehub.io"
    meta = {"name": name, "namespace": "hub"}
    return {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


JUPYTER = {"component": "singleuser-server"}
PRIMEHUB = [
    crd("primehub.io", "phjobs", "PhJob"),
    crd("primehub.io", "phdeployments", "PhDeployment"),
]
GRAPHCORE = [crd("graphcore.ai", "ipujobs", "IPUJob")]
OBJECTS = [
    pod("hub", "jupyter-foo", labels=JUPYTER, annotations=AUDIT),
    pod("labs", "jupyter-nasty", labels=JUPYTER, annotations=AUDIT | {"auditing.user_name": NASTY}),
    pod("labs", "jupyter-bare", labels=JUPYTER),
    pod("labs", "jupyter-done", labels=JUPYTER, annotations=AUDIT | {KEY: "{}"}),
    pod("labs", "jupyter-ours", labels=JUPYTER, annotations=AUDIT | {"ipuhub.io/usage": "{}"}),
    pod("hub", "job-2020", ownerReferences=owned("PhJob", "job-2020")),
    pod("hub", "train-worker-0", ownerReferences=owned("IPUJob", "train")),
    pod("hub", "somebody-s", annotations={"a": "b"}),
    deployment("hub", "serve", ownerReferences=owned("PhDeployment", "serve")),
    deployment("hub", "more", {"a": "b"}, ownerReferences=owned("PhDeployment", "more")),
    deployment("hub", "nginx"),
]
THEIRS = {"groupName": "g", "userName": "u"}
SPECS = [
    custom("PhJob", "job-2020", THEIRS | {"instanceType": "gpu"}),
    custom("PhDeployment", "serve", THEIRS | {"predictors": [{"instanceType": "cpu-2"}]}),
    custom("PhDeployment", "more", THEIRS | {"predictors": []}),
    custom("IPUJob", "train", {"modelReplicas": "2", "ipusPerModelReplica": 4}),
]


class Lab:
    """A cluster with kubectl and the helper."""

    def __init__(self, cluster: DevCluster, home: Path) -> None:
        self.environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(home)}
        self.home = home

    async def run(self, *command: str, stdin: str = "") -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=self.environment,
            cwd=self.home,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 120)
        return process.returncode or 0, out.decode(), err.decode()

    async def apply(self, *objects: dict[str, Any]) -> None:
        objects = copy.deepcopy(objects)
        for owner in (o for each in objects for o in each["metadata"].get("ownerReferences", ())):
            owner["uid"] = (await self.read("hub", owner["kind"].lower(), owner["name"]))["uid"]
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        code, _, err = await self.run("kubectl", "create", "-f", "-", stdin=json.dumps(listed))
        assert code == 0, err

    async def helper(self, *arguments: str) -> str:
        code, out, err = await self.run(HELPER, *arguments)
        assert code == 0, err
        return out

    async def read(self, namespace: str, kind: str, name: str) -> Any:
        """The metadata that the annotation belongs to."""
        code, out, err = await self.run("kubectl", "-n", namespace, "get", kind, name, "-o", "json")
        assert code == 0, err
        found = json.loads(out)
        return (found["spec"]["template"] if kind == "deployment" else found)["metadata"]

    async def usage(self, namespace: str, kind: str, name: str) -> Any:
        found = await self.read(namespace, kind, name)
        return json.loads(found.get("annotations", {}).get(KEY, "null"))


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    cluster = DevCluster(tmp_path / "cluster", history=1_000)
    await cluster.start()
    home = tmp_path / "home"
    home.mkdir()
    lab = Lab(cluster, home)
    await lab.apply(
        *(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}}
            for n in ("hub", "labs")
        )
    )
    yield lab
    await cluster.stop()


async def test_the_printed_commands_annotate_everything_once(lab: Lab) -> None:
    await lab.apply(*PRIMEHUB, *GRAPHCORE)
    await lab.apply(*SPECS)
    await lab.apply(*OBJECTS)
    script = await lab.helper()
    code, _, err = await lab.run("bash", "-e", stdin=script)
    assert code == 0, err
    assert not (lab.home / "broken").exists()
    phusers = {"group": "phusers", "instance_type": "cpu-1"}
    theirs = {"group": "g", "user": "u"}
    ipujob = {"component": "job", "component_name": "train", "group": "hub", "user": ""}
    for namespace, kind, name, want in (
        ("hub", "pod", "jupyter-foo", phusers | {"component": "jupyter", "user": "foo"}),
        ("labs", "pod", "jupyter-nasty", phusers | {"user": NASTY}),
        ("labs", "pod", "jupyter-bare", {"group": "labs", "user": ""}),
        ("hub", "pod", "job-2020", theirs | {"component": "job", "instance_type": "gpu"}),
        ("hub", "pod", "train-worker-0", ipujob | {"instance_type": "ipu-8"}),
        ("hub", "ipujob", "train", ipujob),
        ("hub", "deployment", "serve", theirs | {"component": "deployment"}),
        ("hub", "deployment", "more", theirs | {"instance_type": ""}),
    ):
        found = await lab.usage(namespace, kind, name)
        assert {key: found[key] for key in want} == want
    for kind, name in (("pod", "somebody-s"), ("deployment", "nginx")):
        assert await lab.usage("hub", kind, name) is None
    assert await lab.helper() == ""
    script = await lab.helper("--all", "--namespace", "hub")
    assert script.count("kubectl") == 2
    assert (await lab.run("bash", "-e", stdin=script))[0] == 0
    assert (await lab.usage("hub", "deployment", "nginx"))["group"] == "hub"
    assert json.loads(await lab.helper("--all", "--format", "json")) == []


async def test_commands_have_the_form_that_operators_know(lab: Lab) -> None:
    await lab.apply(*PRIMEHUB)
    await lab.apply(*SPECS[:3])
    await lab.apply(OBJECTS[0], OBJECTS[5], OBJECTS[9])
    code, out, err = await lab.run(HELPER)
    assert code == 0
    assert out == GOLDEN.read_text(encoding="utf-8")
    assert "ipujobs.graphcore.ai are not installed here" in err
    (one,) = json.loads(await lab.helper("-n", "hub", "--format", "json"))[:1]
    assert (one["namespace"], one["name"], one["patchType"]) == ("hub", "job-2020", "merge")
    assert json.loads(await lab.helper("-n", "labs", "--format", "json")) == []


async def test_a_cluster_that_cannot_be_read_is_an_error_in_words(lab: Lab) -> None:
    code, out, err = await lab.run(HELPER, "--namespace")
    assert (code, out) == (2, "")
    lab.environment["KUBECONFIG"] = str(lab.home / "none")
    code, out, err = await lab.run(HELPER)
    assert (code, out) == (1, "")
    assert "CommandError" in err
    assert "Traceback" not in err
