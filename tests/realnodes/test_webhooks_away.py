"""Operations that still work while no webhook answers, by match conditions that the API server
evaluates."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import yaml

from devcluster.demo.cluster import CRD_FILE
from jobs.webhooks.configuration import WebhookScope, build_configurations
from jobs.webhooks.server import MUTATE_PATH, VALIDATE_PATH
from tests.builders.ipujobs import ipujob
from tests.fakes.waiting import wait_until
from tests.realnodes.kit import RealCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

EXEMPT = "system:serviceaccount:ipuhub-system:exempt-operator"
AS_EXEMPT = ("--as", EXEMPT, "--as-group", "system:masters")
NOBODY_LISTENS = "https://127.0.0.1:1"


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace of its own, with one job, whose webhooks do not answer."""
    cluster = given()
    if cluster.find("crd", "ipujobs.graphcore.ai") is None:
        cluster.kubectl("create", "-f", str(CRD_FILE))
    name = f"away-{uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    wait_until(lambda: not submit(name, "sample"), "a job")
    scope = WebhookScope(
        NOBODY_LISTENS,
        b"",
        MUTATE_PATH,
        VALIDATE_PATH,
        name=name,
        namespaces=(name,),
        exempt_users=(EXEMPT,),
        has_conditions=True,
    )
    text = yaml.safe_dump_all(build_configurations(scope))
    cluster.kubectl("create", "-f", "-", stdin=text)
    yield name
    cluster.kubectl("delete", "-f", "-", stdin=text)
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def given() -> RealCluster:
    folder, kit = os.environ["IPUHUB_TEST_NODES"], os.environ["IPUHUB_TEST_NODES_KIT"]
    return RealCluster(Path(folder), Path(kit))


def submit(namespace: str, name: str, *options: str) -> str:
    """Create a suspended job that a finalizer keeps; return what kubectl complains of."""
    job: dict[str, Any] = ipujob().build()
    job["metadata"] = {"name": name, "finalizers": ["example.com/kept"]}
    job["spec"]["suspend"] = True
    command = ("-n", namespace, "create", "-f", "-", *options)
    return given().try_kubectl(*command, stdin=json.dumps(job)).stderr


def change(namespace: str, job: str, patch: dict[str, Any], *options: str) -> str:
    command = ("-n", namespace, "patch", "ipujob", job, "--type=merge", "-p", json.dumps(patch))
    return given().try_kubectl(*command, *options).stderr


def annotation() -> dict[str, Any]:
    return {"metadata": {"annotations": {"ipuhub.io/created-by": f"somebody-{uuid4().hex}"}}}


def test_no_webhook_that_is_away_keeps_a_deleted_job(namespace: str) -> None:
    refused = "failed calling webhook"
    wait_until(lambda: refused in submit(namespace, "new"), "the webhooks' configuration")
    assert refused in change(namespace, "sample", annotation())

    given().kubectl("-n", namespace, "delete", "ipujob", "sample", "--wait=false")
    # Who created a job, and what it is, is asked about to its end.
    assert refused in change(namespace, "sample", annotation())
    assert refused in change(namespace, "sample", {"spec": {"suspend": False}})
    assert change(namespace, "sample", {"metadata": {"finalizers": None}}) == ""
    assert given().find("ipujob", "sample", "-n", namespace) is None


def test_the_operator_works_while_no_webhook_answers(namespace: str) -> None:
    refused = "failed calling webhook"
    wait_until(lambda: refused in submit(namespace, "new"), "the webhooks' configuration")
    assert change(namespace, "sample", annotation(), *AS_EXEMPT) == ""
    assert submit(namespace, "another", *AS_EXEMPT) == ""
    for job in ("sample", "another"):
        assert change(namespace, job, {"metadata": {"finalizers": None}}, *AS_EXEMPT) == ""
        given().kubectl("-n", namespace, "delete", "ipujob", job)
