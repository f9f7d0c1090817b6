"""Actions on jobs with the rights of a group in Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from ipuhub.models import AuditEntry, ExternalIdentity
from tests.builders.roles import grant
from tests.integration.dashboard.actionslab import GROUP

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from tests.integration.dashboard.actionslab import ActionsLab

pytestmark = pytest.mark.django_db
GUESTS = "lab:guests"


@pytest.fixture
def gina(settings: SettingsWrapper) -> Client:
    """She has no right of her own to change jobs: her group `trainers` has."""
    settings.ACTIONS_USERS = {"gina": "gina@lab"}
    settings.ACCESS_GROUPS, settings.ACTIONS_GROUPS = "lab:{group}", [GROUP]
    user = get_user_model().objects.create_user("gina")
    grant(user, "operator", "team-a")
    groups = ["guests", "trainers"]
    ExternalIdentity.objects.create(user=user, issuer="i", subject="gina", groups=groups)
    made = Client()
    made.force_login(user)
    return made


def suspend(lab: ActionsLab, client: Client) -> tuple[int, str, Any]:
    """Try to; return the answer, and what the cluster has then."""
    job = lab.add()
    answer = client.post(f"/jobs/{job.uid}/do/suspend/")
    return answer.status_code, answer.content.decode(), (lab.spec_of(job) or {}).get("suspend")


def test_a_write_carries_the_listed_groups_of_its_user_and_no_other(
    lab: ActionsLab, gina: Client
) -> None:
    job = lab.add("shown")
    preview = gina.get(f"/jobs/{job.uid}/do/suspend/").content.decode()
    assert "<code>gina@lab</code> in the group <code>lab:trainers</code>;" in preview
    assert "Kubernetes accepts this" in preview
    assert suspend(lab, gina) == (302, "", True)
    assert AuditEntry.objects.get().kubernetes_groups == [GROUP]
    assert gina.get("/api/v1/audit").json()["results"][0]["kubernetes_groups"] == [GROUP]
    file = b"".join(gina.get("/api/v1/audit.csv")).decode()
    assert file.startswith("outcome,action,name,namespace,user,kubernetes_user,via,at")
    assert "lab:trainers" in file


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"ACTIONS_GROUPS": []}, "Kubernetes does not allow this to gina@lab"),
        ({"ACTIONS_GROUPS": [GUESTS]}, "The dashboard may not act as you"),
        ({"ACCESS_GROUPS": "other:{group}"}, "Kubernetes does not allow this to gina@lab"),
    ],
)
def test_without_the_group_the_write_is_refused(
    lab: ActionsLab,
    gina: Client,
    settings: SettingsWrapper,
    changed: dict[str, Any],
    sentence: str,
) -> None:
    for name, value in changed.items():
        setattr(settings, name, value)
    status, text, is_suspended = suspend(lab, gina)
    assert (status, sentence in text, is_suspended) == (403, True, None)


def test_a_provider_gives_nobody_a_group_of_kubernetes_own(
    lab: ActionsLab, gina: Client, settings: SettingsWrapper
) -> None:
    settings.ACCESS_GROUPS, settings.ACTIONS_GROUPS = "{group}", ["system:masters"]
    ExternalIdentity.objects.update(groups=["system:masters"])
    status, text, is_suspended = suspend(lab, gina)
    assert (status, is_suspended) == (403, None)
    assert "Kubernetes does not allow this to gina@lab" in text


def test_with_two_identities_no_group_counts(lab: ActionsLab, gina: Client) -> None:
    user = get_user_model().objects.get(username="gina")
    ExternalIdentity.objects.create(user=user, issuer="j", subject="gina", groups=["trainers"])
    assert suspend(lab, gina)[0] == 403
    assert AuditEntry.objects.get().kubernetes_groups == []
