"""All objects that the operator creates for a job: complete manifests, owners and names, and the
rights of the launcher."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from jobs.builders.launcher import (
    build_config_map,
    build_launcher,
    build_role,
    build_role_binding,
    build_service_account,
)
from jobs.builders.pods import BuildContext, build_worker
from jobs.ipujob.names import label_value
from jobs.ipujob.spec import parse_spec
from jobs.operator.effectivespec import fingerprint_of
from tests.builders.ipujobs import ipujob, key_of
from tests.builders.jobpods import PLACE, context_of

GOLDEN = Path(__file__).parents[2] / "golden" / "jobs"


@pytest.mark.parametrize(
    "kind", ["configmap", "role", "rolebinding", "serviceaccount", "worker", "launcher"]
)
def test_golden_manifests_of_the_sample(kind: str) -> None:
    sample = yaml.safe_load(Path("examples/single-gcd-sample.yaml").read_text(encoding="utf-8"))
    sample["metadata"] |= {"namespace": "default", "uid": "b5c92cb3"}
    spec = parse_spec(sample["spec"])
    stamp = fingerprint_of(spec).to_text()
    context = BuildContext(key_of(sample), sample, spec, fingerprint=stamp)
    built = {
        "configmap": lambda: build_config_map(context),
        "role": lambda: build_role(context),
        "rolebinding": lambda: build_role_binding(context),
        "serviceaccount": lambda: build_service_account(context),
        "worker": lambda: build_worker(context, PLACE, 0),
        "launcher": lambda: build_launcher(context, PLACE),
    }[kind]()
    want = yaml.safe_load((GOLDEN / f"{kind}.yaml").read_text(encoding="utf-8"))
    assert built == want


def test_the_launcher_may_exec_into_this_jobs_workers_only() -> None:
    rules = build_role(context_of(ipujob().workers(2)))["rules"]
    (exec_rule,) = [r for r in rules if "pods/exec" in r["resources"]]
    assert exec_rule["resourceNames"] == ["sample-worker-0", "sample-worker-1"]
    assert exec_rule["verbs"] == ["create", "get"]


def test_everything_goes_with_the_job() -> None:
    context = context_of(ipujob())
    for built in (
        build_config_map(context),
        build_role(context),
        build_launcher(context, PLACE),
        build_worker(context, PLACE, 0),
    ):
        (owner,) = built["metadata"]["ownerReferences"]
        assert owner["uid"] == "uid-sample"
        assert owner["controller"] is True
        assert owner["blockOwnerDeletion"] is True


def test_a_long_name_is_cut_and_hashed_in_labels() -> None:
    assert label_value("a" * 63) == "a" * 63
    long, other = label_value("a" * 64), label_value("a" * 65)
    assert len(long) == 63
    assert long != other


def test_workers_are_numbered_over_all_instances() -> None:
    spec = parse_spec(ipujob().without_launcher().instances(3).workers(2).spec)
    assert [list(spec.workers_of(i)) for i in range(3)] == [[0, 1], [2, 3], [4, 5]]
