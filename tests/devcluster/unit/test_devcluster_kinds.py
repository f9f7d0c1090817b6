"""The declared built-in resources are consistent and complete enough for discovery."""

from __future__ import annotations

from devcluster.schemas.kinds import BY_KIND, BY_RESOURCE, KINDS


def test_every_resource_and_every_kind_is_declared_once():
    assert len(BY_RESOURCE) == len(KINDS) == len(BY_KIND)


def test_resource_names_of_all_other_stored_kinds_differ():
    keys = [kind.resource_name for kind in KINDS if kind.is_stored and kind.kind != "Event"]
    assert len(keys) == len(set(keys))


def test_reviews_are_answered_and_not_stored():
    answered = {kind.kind for kind in KINDS if not kind.is_stored}
    assert answered == {
        "TokenReview",
        "SelfSubjectReview",
        "SubjectAccessReview",
        "SelfSubjectAccessReview",
    }


def test_pods_have_the_subresources_that_kubectl_and_a_scheduler_use():
    pods = BY_RESOURCE["", "v1", "pods"]
    assert pods is not None
    assert [sub.name for sub in pods.subresources] == [
        "status",
        "log",
        "binding",
        "exec",
        "attach",
    ]
    assert pods.has_status


def test_names_are_spelled_as_error_messages_spell_them():
    role = BY_KIND["rbac.authorization.k8s.io/v1", "Role"]
    assert role.resource_name == "roles.rbac.authorization.k8s.io"
    assert role.api_version == "rbac.authorization.k8s.io/v1"
    assert role.list_name == "RoleList"
    assert BY_KIND["v1", "Pod"].resource_name == "pods"


def test_an_unknown_resource_is_none():
    assert ("", "v2", "pods") not in BY_RESOURCE
