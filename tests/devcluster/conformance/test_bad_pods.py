"""Pods that a server refuses: a demo that takes them would promise what no cluster keeps.

The words are Kubernetes 1.37's; earlier releases say some of it differently.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.badpods import bad_specs, good_spec
from tests.devcluster.conformance.kinds import pods

if TYPE_CHECKING:
    from tests.devcluster.conformance.api import Api

WORDS = json.loads((Path(__file__).parents[2] / "golden/devcluster/bad-pods.json").read_text())
BAD = bad_specs()


def pod(spec: dict[str, Any]) -> dict[str, Any]:
    spec = spec | {"schedulerName": "nobody"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}


def test_every_bad_pod_has_its_words() -> None:
    assert set(WORDS) == set(BAD)


async def test_a_pod_that_uses_all_of_it_rightly_is_stored(api: Api, pod_namespace: str) -> None:
    (await api.create(pods(pod_namespace), pod(good_spec()), dryRun="All")).ok(201)


@pytest.mark.parametrize(
    "limits", [{"nvidia.com/gpu": "1e30"}, {"memory": "16Pi"}], ids=lambda each: next(iter(each))
)
async def test_a_quantity_beyond_64_bits_is_stored(
    api: Api, pod_namespace: str, limits: dict[str, str]
) -> None:
    spec = {"containers": [{"name": "main", "image": "i", "resources": {"limits": limits}}]}
    (await api.create(pods(pod_namespace), pod(spec), dryRun="All")).ok(201)


@pytest.mark.needs_release("1.37")
@pytest.mark.parametrize("row", BAD)
async def test_a_bad_pod_is_refused_in_the_servers_words(
    api: Api, pod_namespace: str, row: str
) -> None:
    answer = await api.create(pods(pod_namespace), pod(BAD[row]), dryRun="All")
    assert answer.status == answer.body["code"], answer.body
    status = {name: answer.body[name] for name in ("code", "reason", "message")}
    causes = answer.body["details"].get("causes") or []
    assert status | {"causes": causes} == WORDS[row]
