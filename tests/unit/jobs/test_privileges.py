"""The operator keeps the rule about privileges also where no webhook was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobs.management.commands.run_operator import operator_options
from jobs.management.commands.run_webhooks import webhook_rules
from jobs.plan import plan
from jobs.privileges import Privileges
from tests.builders.ipujobs import NOW, at, ipujob, observed
from tests.builders.plans import created, status, steps, truth, up

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from tests.builders.ipujobs import IPUJobBuilder

POD = "spec.workers.template.spec"


def privileged() -> IPUJobBuilder:
    context = {"privileged": True}
    container = {"name": "main", "image": "app:1", "securityContext": context}
    return ipujob().with_template(hostPID=True, containers=[container])


def test_a_stored_job_with_privileges_is_pending_and_says_what_to_write() -> None:
    for seen in (observed(privileged().build()), up(privileged())):
        planned = plan(seen, NOW)
        assert created(planned) == []
        kind, reason, message = truth(planned)
        assert (kind, reason) == ("Pending", "InvalidSpec")
        remedy = "leave it out, or ask an administrator to allow it in namespace default"
        assert f"{POD}.hostPID: is not allowed: {remedy}" in message
        assert f"{POD}.containers[0].securityContext.privileged: is not allowed" in message


@pytest.mark.parametrize(
    "allowed",
    [Privileges(frozenset({"default"})), Privileges(frozenset({"x", "default"}), privileged=True)],
)
def test_in_a_namespace_that_has_them_the_same_job_begins(allowed: Privileges) -> None:
    assert "Pod sample-worker-0" in created(plan(up(privileged(), privileges=allowed), NOW))


def test_it_is_judged_again_once_it_is_changed() -> None:
    told = status(plan(observed(privileged().build()), NOW))
    mended = ipujob().with_status(**told).build()
    assert steps(plan(observed(mended), at(1)))[0] != "status"


def test_a_restart_gets_no_new_pods_with_privileges() -> None:
    job = privileged().with_status(
        launcherStatus="Restarting",
        instances=[{"index": 0, "attempt": 1, "state": "Restarting"}],
    )
    planned = plan(up(job), at(9))
    assert created(planned) == []
    assert truth(planned)[:2] == ("Restarting", "InvalidSpec")


def test_it_still_deletes() -> None:
    assert steps(plan(up(privileged().deleted()), at(1)))[0] == "release"


def test_operator_and_webhooks_read_the_same_settings(settings: SettingsWrapper) -> None:
    settings.HOST_IPC, settings.HOST_NETWORK, settings.POD_PROFILE = True, False, "seed"
    settings.PRIVILEGED_NAMESPACES = ["lab"]
    want = Privileges(frozenset({"lab"}), host_network=False, host_ipc=True, privileged=True)
    assert webhook_rules().privileges == operator_options().privileges == want
