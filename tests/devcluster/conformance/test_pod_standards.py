"""Our table of the Pod Security Standards agrees with the PodSecurity admission of a real server
about each pod and version. The embedded server enforces no standard and accepts all pods."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from jobs.ipujob.privileges import Privileges, privilege_excesses
from tests.builders.podcases import BASELINE, RESTRICTED, pod_cases
from tests.devcluster.conformance.kinds import pods

if TYPE_CHECKING:
    from tests.builders.podcases import PodCase
    from tests.devcluster.conformance.api import Api
    from tests.devcluster.conformance.servers import Server

VERSIONS = (7, 18, 21, 22, 23, 24, 25, 26, 27, 29, 31, 32, 33, 34, 35, 37)
PREFIX = "pod-security.kubernetes.io/enforce"


def manifest(case: PodCase) -> dict[str, Any]:
    metadata = {"name": "a", "annotations": case.annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": case.spec}


def ours(case: PodCase, standard: str, version: int) -> bool:
    template = {"metadata": {"annotations": case.annotations}, "spec": copy.deepcopy(case.spec)}
    spec = {"workers": {"template": template}}
    return not list(privilege_excesses(spec, Privileges(standard, version=version)))


@pytest.mark.needs_release("1.37")
@pytest.mark.parametrize("standard", [BASELINE, RESTRICTED])
async def test_each_pod_is_refused_by_us_where_the_server_refuses_it(
    api: Api, pod_namespace: str, server: Server, standard: str
) -> None:
    path = f"/api/v1/namespaces/{pod_namespace}"
    cases = [case for case in pod_cases() if case.is_valid]
    for case in cases:
        made = await api.create(pods(pod_namespace), manifest(case), dryRun="All")
        assert made.status == 201, (case.name, made.body)
    apart = []
    for version in VERSIONS[-1:] if server.is_embedded else VERSIONS:  # it does not read labels
        labels = {PREFIX: standard, f"{PREFIX}-version": f"v1.{version}"}
        (await api.patch(path, {"metadata": {"labels": labels}}, "merge")).ok(200)
        left = cases
        # The server takes the labels from a watch: what it first judged by the old labels is asked
        # again when all others have been.
        for _ in range(3):
            batch, left = left, []
            for case in batch:
                made = await api.create(pods(pod_namespace), manifest(case), dryRun="All")
                assert made.status in {201, 403}, made.body
                admits = server.is_embedded or ours(case, standard, version)
                if (made.status == 201) != admits:
                    left.append(case)
        apart += [(version, case.name) for case in left]
    assert apart == []
