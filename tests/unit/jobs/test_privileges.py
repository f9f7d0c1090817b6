"""The operator enforces the rule about privileges also if no webhook was called."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.env import Env, SettingError
from jobs.ipujob.privileges import PROFILES, Privileges
from jobs.ipujob.rules import Patience
from jobs.management.commands.run_operator import operator_options
from jobs.management.commands.run_webhooks import webhook_rules
from jobs.operator.plan import plan
from jobs.webhooks.server import MUTATE_PATH, VALIDATE_PATH, WebhookRules, respond
from tests.builders.ipujobs import NOW, at, ipujob, observed
from tests.builders.plans import condition_of, created, status_of, steps, with_partition

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from tests.builders.ipujobs import IPUJobBuilder

POD = "spec.workers.template.spec"


def privileged() -> IPUJobBuilder:
    context = {"privileged": True}
    container = {"name": "main", "image": "app:1", "securityContext": context}
    return ipujob().with_template(hostPID=True, containers=[container])


def test_a_stored_job_with_privileges_is_pending_and_says_what_to_write() -> None:
    for seen in (observed(privileged().build()), with_partition(privileged())):
        planned = plan(seen, NOW)
        assert created(planned) == []
        kind, reason, message = condition_of(planned)
        assert (kind, reason) == ("Pending", "InvalidSpec")
        assert message == (
            f"{POD}.hostPID: true is not allowed by the pod profile graphcore (Host Namespaces): "
            f"leave it out; {POD}.containers[0].securityContext.privileged: true is not allowed by "
            "the pod profile graphcore (Privileged Containers): leave it out. An administrator can "
            "choose another pod profile than graphcore: with IPUHUB_POD_PROFILE for all, with the "
            "label ipuhub.io/pod-profile for the namespace default"
        )


def test_under_the_profile_privileged_the_same_job_begins() -> None:
    allowed = Privileges("privileged")
    assert "Pod sample-worker-0" in created(
        plan(with_partition(privileged(), privileges=allowed), NOW)
    )


def test_a_field_that_a_standard_requires_is_missing() -> None:
    strict = Privileges("restricted")
    _, reason, message = condition_of(plan(observed(ipujob().build(), privileges=strict), NOW))
    assert reason == "InvalidSpec"
    path = f"{POD}.containers[0].securityContext.allowPrivilegeEscalation"
    assert f"{path}: is missing, which the pod profile restricted requires" in message


def test_it_is_judged_again_once_it_is_changed() -> None:
    status = status_of(plan(observed(privileged().build()), NOW))
    mended = ipujob().with_status(**status).build()
    assert steps(plan(observed(mended), at(1)))[0] != "status"


def test_a_restart_gets_no_new_pods_with_privileges() -> None:
    job = privileged().with_status(
        launcherStatus="Restarting",
        instances=[{"index": 0, "attempt": 1, "state": "Restarting"}],
    )
    planned = plan(with_partition(job), at(9))
    assert created(planned) == []
    assert condition_of(planned)[:2] == ("Restarting", "InvalidSpec")


def test_it_still_deletes() -> None:
    assert steps(plan(with_partition(privileged().deleted()), at(1)))[0] == "release"


def test_a_namespaces_label_chooses_its_profile_and_nonsense_chooses_none() -> None:
    ours = Privileges("baseline", version=30, secrets=("a",))
    for profile in PROFILES:
        assert ours.of_namespace(profile) == Privileges(profile, version=30, secrets=("a",))
        path = f"{VALIDATE_PATH}/{profile}"
        assert WebhookRules(ours).at(path).privileges == ours.of_namespace(profile)
    for odd in (None, "", "Privileged", "seed"):
        assert ours.of_namespace(odd) == ours
    assert WebhookRules(ours).at(VALIDATE_PATH).privileges == ours


def test_operator_and_webhooks_read_the_same_settings(settings: SettingsWrapper) -> None:
    settings.HOST_NETWORK, settings.POD_PROFILE = False, "restricted"
    settings.POD_STANDARD_VERSION, settings.JOB_SECRETS = 28, ["a", "b-*"]
    want = Privileges("restricted", host_network=False, version=28, secrets=("a", "b-*"))
    assert webhook_rules().privileges == operator_options().privileges == want


def test_the_operator_gives_up_when_the_settings_say(settings: SettingsWrapper) -> None:
    settings.MOST_LOSSES, settings.RESTART_HOLD_SECONDS = 7, 11.0
    settings.START_HOLD_SECONDS, settings.READY_HOLD_SECONDS = 13.0, 17.0
    assert operator_options().patience == Patience(7, 11.0, 13.0, 17.0)


def test_the_default_is_what_published_manifests_need() -> None:
    assert webhook_rules().privileges == Privileges("graphcore", secrets=("ipujob-*",))


@pytest.mark.parametrize(("text", "want"), [("latest", 37), ("v1.28", 28), ("1.30", 30)])
def test_the_version_of_the_standards_is_written_as_kubernetes_writes_it(
    text: str, want: int
) -> None:
    assert Env({"V": text}).minor_version("V", 37, doc="") == want


def test_odd_versions_are_refused_in_words() -> None:
    for odd in ("v2.1", "28", "v1.x", ""):
        with pytest.raises(SettingError, match=r"V must be version like v1\.30, or latest"):
            Env({"V": odd}).minor_version("V", 37, doc="")


def published(**template: Any) -> IPUJobBuilder:
    """Return a job as users of the original wrote it: shared memory, locked memory, the host's
    IPC."""
    container = {
        "name": "main",
        "image": "a",
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": [{"name": "devshm", "mountPath": "/dev/shm"}],
    }
    memory = {"name": "devshm", "emptyDir": {"medium": "Memory", "sizeLimit": "10Gi"}}
    whole = {"containers": [container], "volumes": [memory], "restartPolicy": "Never"}
    return ipujob().current_shape().without_launcher().with_template(**(whole | template))


@pytest.mark.parametrize("template", [{}, {"hostIPC": True}, {"hostNetwork": True}])
def test_published_manifests_run_unchanged_by_default(template: dict[str, Any]) -> None:
    request = {"uid": "u-1", "operation": "CREATE", "object": published(**template).build()}
    review = json.dumps({"request": request}).encode()
    for path in (MUTATE_PATH, VALIDATE_PATH):
        answer = respond(path, review, webhook_rules())
        assert answer["response"]["allowed"], answer
    assert any(
        one.startswith("Pod ") for one in created(plan(with_partition(published(**template)), NOW))
    )
