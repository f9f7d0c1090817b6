"""Rights used and requests denied, as tests/realnodes reads them from the audit log."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.realnodes.rights import Audit

if TYPE_CHECKING:
    from pathlib import Path

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
RBAC = "rbac.authorization.k8s.io"
PROXY = "system:serviceaccount:ipus:gc-ipu-operator-vipu-proxy"
ROLE = ("ipus", "gc-ipu-operator-vipu-proxy")
CLUSTER = ("", "ipus-gc-ipu-operator-vipu-proxy")
HOOK = ("", "ipus-gc-ipu-operator-hide-ipus")
NODES = {"resource": "nodes", "name": "node-1"}


def event(at: float, user: str, verb: str, target: dict[str, str], **more: Any) -> dict[str, Any]:
    """A request that is answered after half a second."""
    return {
        "user": {"username": user},
        "verb": verb,
        "requestURI": "/as/asked",
        "objectRef": target,
        "requestReceivedTimestamp": (BEGAN + timedelta(seconds=at)).isoformat(),
        "stageTimestamp": (BEGAN + timedelta(seconds=at + 0.5)).isoformat(),
        "responseStatus": {"code": 200},
        **more,
    }


def denied(at: float, user: str = PROXY, **more: Any) -> dict[str, Any]:
    decision = {"authorization.k8s.io/decision": "forbid"}
    code = {"responseStatus": {"code": 403}}
    return event(at, user, "patch", NODES, annotations=decision, **code, **more)


def binding(at: float, verb: str, named: tuple[str, str], **more: Any) -> dict[str, Any]:
    """A change of the binding of this namespace and name."""
    namespace, name = named
    target = {"resource": "rolebindings" if namespace else "clusterrolebindings", "apiGroup": RBAC}
    target |= {key: value for key, value in {"namespace": namespace, "name": name}.items() if value}
    return event(at, "admin", verb, target, **more)


def bound(at: float, named: tuple[str, str], user: str = PROXY, **more: Any) -> dict[str, Any]:
    *_, namespace, name = user.split(":")
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    made = {"metadata": {"name": named[1]}, "subjects": [subject]}
    return binding(at, "patch", named, responseObject=made, **more)


def audit(folder: Path, *events: dict[str, Any]) -> Audit:
    log = folder / "audit.log"
    log.write_text("".join(f"{json.dumps(each)}\n" for each in events), encoding="utf-8")
    return Audit(log)


def test_a_request_uses_the_right_with_and_without_the_name(tmp_path: Path) -> None:
    lease = {"resource": "leases", "apiGroup": "coordination.k8s.io"}
    named = lease | {"name": "gc-ipu-operator-ipuhub-proxy"}
    status = {"resource": "nodes", "subresource": "status"}
    found = audit(tmp_path, event(0, PROXY, "get", named), event(1, PROXY, "patch", status))
    assert found.used == {
        "vipu-proxy get leases.coordination.k8s.io",
        "vipu-proxy get leases.coordination.k8s.io RELEASE-ipuhub-proxy",
        "vipu-proxy patch nodes/status",
    }


def test_what_is_denied_or_done_as_a_user_uses_no_right(tmp_path: Path) -> None:
    as_user = {"impersonatedUser": {"username": "ops@lab"}}
    other = event(1, "system:serviceaccount:ipus:default", "get", NODES)
    found = audit(tmp_path, denied(0), event(1, PROXY, "get", NODES, **as_user), other)
    assert found.used == set()


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_review_uses_the_right_of_the_account_it_allows(tmp_path: Path, is_allowed: bool) -> None:
    attributes = {"verb": "update", "group": "graphcore.ai", "resource": "ipujobs"}
    attributes["subresource"] = "partitions"
    operator = "system:serviceaccount:ipus:gc-ipu-operator-controller"
    answer = {
        "kind": "SubjectAccessReview",
        "spec": {"user": operator, "resourceAttributes": attributes},
        "status": {"allowed": is_allowed},
    }
    target = {"resource": "subjectaccessreviews", "apiGroup": "authorization.k8s.io"}
    found = audit(tmp_path, event(0, PROXY, "create", target, responseObject=answer))
    used = "controller update ipujobs/partitions.graphcore.ai"
    assert (used in found.used) is is_allowed


def test_a_denial_is_reported_while_its_account_has_its_bindings(tmp_path: Path) -> None:
    found = audit(tmp_path, bound(0, ROLE), bound(0, CLUSTER), denied(5))
    (denial,) = found.denials_with_rights()
    assert (denial.user, denial.right) == (PROXY, "patch nodes node-1")
    (unknown,) = audit(tmp_path, denied(5)).denials_with_rights()
    assert unknown.user == PROXY


def test_a_denial_of_a_path_is_reported(tmp_path: Path) -> None:
    (denial,) = audit(tmp_path, denied(5, objectRef=None)).denials_with_rights()
    assert denial.right == "patch /as/asked"


@pytest.mark.parametrize(
    ("end", "begins"),
    [
        (binding(10, "delete", ROLE), 10),
        (binding(10, "delete", CLUSTER), 10),
        (binding(10, "deletecollection", ("ipus", "")), 10),
    ],
    ids=["binding", "cluster", "namespace"],
)
def test_an_account_may_be_denied_from_the_deletion_of_a_binding_until_it_is_made_again(
    tmp_path: Path, end: dict[str, Any], begins: float
) -> None:
    made = [bound(0, ROLE), bound(0, CLUSTER)]
    again = [bound(300, ROLE), bound(300, CLUSTER)]
    # A request may arrive before the deletion, and be decided on during it.
    ats = [begins - 1, begins - 0.25, begins, begins + 200, 301]
    found = audit(tmp_path, *made, *map(denied, ats), end, *again)
    reported = [(each.at - BEGAN).total_seconds() for each in found.denials_with_rights()]
    assert reported == [begins - 0.5, 301.5]


def test_the_rights_of_a_hook_end_without_those_of_the_release(tmp_path: Path) -> None:
    hook = "system:serviceaccount:ipus:gc-ipu-operator-hide-ipus"
    made = [bound(0, ROLE), bound(0, HOOK, hook)]
    end = binding(10, "delete", HOOK)
    found = audit(tmp_path, *made, end, denied(11), denied(11, hook))
    assert [each.user for each in found.denials_with_rights()] == [PROXY]


def test_what_changes_no_binding_excuses_no_denial(tmp_path: Path) -> None:
    absent = binding(2, "delete", ROLE, responseStatus={"code": 404})
    tried = binding(3, "delete", ROLE, requestURI="/x?dryRun=All")
    elsewhere = binding(4, "deletecollection", ("other", ""))
    found = audit(tmp_path, bound(0, ROLE), absent, tried, elsewhere, denied(5))
    assert len(found.denials_with_rights()) == 1


def test_a_binding_that_is_only_tried_gives_no_rights_back(tmp_path: Path) -> None:
    end, tried = binding(2, "delete", ROLE), bound(3, ROLE, requestURI="/x?dryRun=All")
    found = audit(tmp_path, bound(0, ROLE), end, tried, denied(5))
    assert found.denials_with_rights() == []


def test_a_line_that_is_cut_hides_no_other(tmp_path: Path) -> None:
    """The API server writes the last line at this moment, or was killed while it wrote a line."""
    log, cut = tmp_path / "audit.log", '{"user": {"us'
    first, last = (json.dumps(event(0, PROXY, verb, {"resource": "nodes"})) for verb in ("a", "b"))
    log.write_text(f"{first}\n{cut}{first}\n{last}\n{cut}", encoding="utf-8")
    assert Audit(log).used == {"vipu-proxy a nodes", "vipu-proxy b nodes"}
