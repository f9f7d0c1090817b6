"""Actions on jobs, from a browser's form and the API to an API server with RBAC."""

from __future__ import annotations

import csv
import io
import re
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from dashboard.actions import writer
from ipuhub.api.auth import make_token
from ipuhub.api.scopes import READ, WRITE
from ipuhub.models import AuditEntry, ExternalIdentity
from jobs.ipujob.names import IPUJOBS
from tests.builders.roles import grant
from tests.integration.dashboard.actionslab import SPEC

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from tests.integration.dashboard.actionslab import ActionsLab


pytestmark = pytest.mark.django_db


def browser(name: str, namespace: str = "team-a") -> Client:
    user, is_new = get_user_model().objects.get_or_create(username=name)
    if is_new:
        grant(user, "operator", namespace)
    made = Client()
    made.force_login(user)
    return made


def tool(name: str, scopes: str = f"{READ} {WRITE}") -> dict[str, str]:
    browser(name)
    user = get_user_model().objects.get(username=name)
    return {"Authorization": f"Bearer {make_token(user, 'ci', timezone.now(), None, scopes)[1]}"}


def post(path: str, who: dict[str, str], body: Any = None, **headers: str) -> Any:
    return Client().post(
        path, body or {}, content_type="application/json", headers={**who, **headers}
    )


@pytest.mark.parametrize(
    ("action", "asks"),
    [("suspend", {}), ("scale", {"instances": 3}), ("cancel", {}), ("run-again", {"name": "more"})],
)
def test_what_is_only_tried_changes_nothing_in_the_cluster(
    lab: ActionsLab, action: str, asks: dict[str, Any]
) -> None:
    """A real API server takes options of deletions from the body alone."""
    job = lab.add()
    before = lab.run("list", IPUJOBS, "team-a").items
    assert "Kubernetes accepts" in browser("ann").get(f"/jobs/{job.uid}/do/{action}/", asks).text
    tried = post(f"/api/v1/jobs/{job.uid}/{action}?dry_run=true", tool("ann"), asks)
    assert (tried.status_code, tried.json()["dry_run"]) == (200, True)
    for query, body in (("?dryRun=All", {}), ("", {"dry_run": True}), ("", {"nam": "mine"})):
        odd = post(f"/api/v1/jobs/{job.uid}/{action}{query}", tool("ann"), asks | body)
        assert odd.status_code == 400, (query, body)
        assert ({"dryRun", "dry_run", "nam"} & {*odd.json()["errors"]}) or query, odd.content
    assert lab.run("list", IPUJOBS, "team-a").items == before


def test_a_browser_that_knows_the_page_shows_what_was_done(lab: ActionsLab) -> None:
    """The page of the job may be as it was until the operator acts: only the message is new."""
    job, ann = lab.add(), browser("ann")
    known = ann.get(f"/jobs/{job.uid}/")["ETag"]
    there = ann.post(f"/jobs/{job.uid}/do/suspend/")["Location"]
    answer = ann.get(there, headers={"If-None-Match": known})
    assert (answer.status_code, "was suspended." in answer.text) == (200, True)


def test_a_job_is_suspended_scaled_resumed_and_canceled_on_pages(lab: ActionsLab) -> None:
    job, ann = lab.add(), browser("ann")
    page = ann.get(f"/jobs/{job.uid}/").content.decode()
    assert f'href="/jobs/{job.uid}/do/suspend/"' in page
    preview = ann.get(f"/jobs/{job.uid}/do/suspend/")
    text = preview.content.decode()
    assert (preview.status_code, "Kubernetes accepts this" in text) == (200, True)
    assert "ann@lab" in text
    assert "suspend" not in (lab.spec_of(job) or {})  # looking changes nothing
    answer = ann.post(f"/jobs/{job.uid}/do/suspend/", follow=True)
    assert "Job team-a/train was suspended." in answer.content.decode()
    assert lab.spec_of(job)["suspend"] is True
    job.spec["suspend"] = True
    job.save()
    assert ann.post(f"/jobs/{job.uid}/do/resume/").status_code == 302
    assert lab.spec_of(job)["suspend"] is False
    asks = ann.get(f"/jobs/{job.uid}/do/scale/").content.decode()
    assert 'name="instances"' in asks
    assert "Kubernetes accepts" not in asks
    checked = ann.get(f"/jobs/{job.uid}/do/scale/?instances=3").content.decode()
    assert "Scale to 3" in checked
    assert ann.post(f"/jobs/{job.uid}/do/scale/", {"instances": "3"}).status_code == 302
    assert lab.spec_of(job)["jobInstances"] == 3
    assert ann.post(f"/jobs/{job.uid}/do/cancel/").status_code == 302
    assert lab.spec_of(job) is None
    entries = list(AuditEntry.objects.order_by("id").values_list("action", "outcome", "uid"))
    want = ["suspend", "resume", "scale", "cancel"]
    assert entries == [(action, "accepted", job.uid) for action in want]


def test_kubernetes_refuses_what_its_rbac_does_not_allow_and_it_is_recorded(
    lab: ActionsLab,
) -> None:
    job, bob = lab.add(), browser("bob")
    preview = bob.get(f"/jobs/{job.uid}/do/cancel/")
    text = preview.content.decode()
    assert preview.status_code == 403
    assert "Kubernetes does not allow this to bob@lab" in text
    assert 'type="submit">Cancel the job' not in text
    assert bob.post(f"/jobs/{job.uid}/do/cancel/").status_code == 403
    assert lab.spec_of(job) is not None
    entry = AuditEntry.objects.get()
    assert (entry.outcome, entry.status, entry.kubernetes_user) == ("refused", 403, "bob@lab")
    assert "cannot delete resource" in entry.message


def test_without_a_kubernetes_user_there_is_no_button_and_no_action(
    lab: ActionsLab, settings: SettingsWrapper
) -> None:
    job, charlie = lab.add(), browser("charlie")
    assert "/do/suspend/" not in charlie.get(f"/jobs/{job.uid}/").content.decode()
    for path in (f"/jobs/{job.uid}/do/suspend/", "/jobs/new/"):
        answer = charlie.post(path)
        assert answer.status_code == 403
        assert "You have no Kubernetes user" in answer.content.decode()
    answer = post(f"/api/v1/jobs/{job.uid}/suspend", tool("charlie"))
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:ipuhub:problem:forbidden")
    settings.ACTIONS = False
    ann = browser("ann")
    assert "/do/suspend/" not in ann.get(f"/jobs/{job.uid}/").content.decode()
    assert ann.post(f"/jobs/{job.uid}/do/suspend/").status_code == 403
    assert post(f"/api/v1/jobs/{job.uid}/suspend", tool("ann")).status_code == 403
    assert "suspend" not in lab.spec_of(job)
    assert not AuditEntry.objects.exclude(outcome="refused").exists()


def test_the_dashboard_can_impersonate_only_whom_its_role_names(lab: ActionsLab) -> None:
    job = lab.add()
    answer = post(f"/api/v1/jobs/{job.uid}/cancel", tool("eve"))
    assert (answer.status_code, answer.json()["type"]) == (
        403,
        "urn:ipuhub:problem:cluster-forbids",
    )
    assert "The dashboard may not act as you" in answer.json()["detail"]
    assert AuditEntry.objects.get().message == answer.json()["detail"]
    assert lab.spec_of(job) is not None


def test_a_job_of_another_namespace_is_as_unknown_as_none(lab: ActionsLab) -> None:
    job = lab.add("secret", "team-b")
    ann = browser("ann")
    assert ann.post(f"/jobs/{job.uid}/do/cancel/").status_code == 404
    assert post(f"/api/v1/jobs/{job.uid}/cancel", tool("ann")).status_code == 404
    manifest = {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "spec": SPEC}
    manifest["metadata"] = {"name": "x", "namespace": "team-b"}
    assert post("/api/v1/jobs", tool("ann"), manifest).status_code == 403
    assert not AuditEntry.objects.exclude(outcome="refused").exists()


def test_a_new_job_of_the_same_name_is_never_touched(lab: ActionsLab) -> None:
    old = lab.add(suspend=True)
    lab.run("delete", IPUJOBS, "train", "team-a")
    assert browser("ann").post(f"/jobs/{old.uid}/do/resume/").status_code == 409
    lab.create(suspend=True)
    for key in ("resume", "cancel"):
        answer = post(f"/api/v1/jobs/{old.uid}/{key}", tool("ann"))
        assert answer.status_code == 409
    assert "replaced by another job" in answer.json()["detail"]
    assert lab.spec_of(old)["suspend"] is True


def test_a_job_runs_again_after_it_was_deleted(lab: ActionsLab) -> None:
    job = lab.add(suspend=True)
    lab.run("delete", IPUJOBS, "train", "team-a")
    job.deleted_at = timezone.now()
    job.save()
    ann = browser("ann")
    assert "train-run2" in ann.get(f"/jobs/{job.uid}/do/run-again/").content.decode()
    answer = ann.post(f"/jobs/{job.uid}/do/run-again/", {"name": "again"})
    assert answer["Location"] == "/jobs/?namespace=team-a&name=again"
    made = lab.run("get", IPUJOBS, "again", "team-a")
    assert "suspend" not in made["spec"]
    assert AuditEntry.objects.get().uid == made["metadata"]["uid"]
    answer = post(f"/api/v1/jobs/{job.uid}/run-again", tool("ann"), {"name": "again"})
    assert (answer.status_code, answer.json()["title"]) == (409, "Conflict")
    assert "There is a job of this name already." in answer.json()["detail"]


def test_a_manifest_is_checked_and_then_created(lab: ActionsLab) -> None:
    ann = browser("ann")
    text = ann.get("/jobs/new/").content.decode()
    assert "namespace: team-a" in text
    manifest = "apiVersion: graphcore.ai/v1alpha1\nkind: IPUJob\nmetadata: {name: new}\nspec:\n"
    manifest += "  ipusPerJobInstance: 1\n  workers:\n    template:\n      spec:\n"
    manifest += "        containers: [{name: worker, image: x}]\n"
    checked = ann.post("/jobs/new/", {"manifest": manifest})
    assert "Kubernetes accepts team-a/new (dry run). Nothing was created yet." in (
        checked.content.decode()
    )
    assert lab.run("list", IPUJOBS, "team-a").items == []
    typo = manifest.replace("ipusPerJobInstance", "ipusPerInstance")
    refused = ann.post("/jobs/new/", {"manifest": typo, "confirm": "yes"})
    assert refused.status_code == 422
    assert "ipusPerInstance" in refused.content.decode()
    assert ann.post("/jobs/new/", {"manifest": "a: [", "confirm": "yes"}).status_code == 400
    assert ann.post("/jobs/new/", {"manifest": manifest, "confirm": "yes"}).status_code == 302
    assert [one["metadata"]["name"] for one in lab.run("list", IPUJOBS, "team-a").items] == ["new"]
    # The API takes as large a manifest as the page.
    large = yaml.safe_load(manifest)
    large["metadata"] = {"name": "large", "namespace": "team-a"}
    large["metadata"]["annotations"] = {"note": "x" * 200_000}
    assert post("/api/v1/jobs?dry_run=true", tool("ann"), large).status_code == 200
    large["metadata"]["annotations"] = {"note": "x" * 300_000}
    answer = post("/api/v1/jobs", tool("ann"), large)
    assert (answer.status_code, "at most 256 KiB" in answer.json()["detail"]) == (413, True)


def test_the_api_acts_tries_and_needs_the_scope_write(lab: ActionsLab) -> None:
    job = lab.add()
    path = f"/api/v1/jobs/{job.uid}/suspend"
    refused = post(path, tool("ann", READ))
    assert (refused.status_code, refused.json()["scope"]) == (403, WRITE)
    tried = post(f"{path}?dry_run=true", tool("ann"))
    assert (tried.status_code, tried.json()["dry_run"], tried.json()["audit"]) == (200, True, None)
    assert "suspend" not in lab.spec_of(job)
    done = post(path, tool("ann"))
    without_scope, entry = AuditEntry.objects.order_by("id")
    assert (without_scope.outcome, without_scope.action) == ("refused", "suspend")
    assert done.json() == {
        "action": "suspend",
        "namespace": "team-a",
        "name": "train",
        "uid": job.uid,
        "dry_run": False,
        "audit": entry.pk,
        "warnings": [],
    }
    assert (entry.via, entry.change["spec"]) == ("token ci", {"suspend": True})
    assert lab.spec_of(job)["suspend"] is True
    wrong = post(f"/api/v1/jobs/{job.uid}/scale", tool("ann"), {"instances": 0})
    assert (wrong.status_code, list(wrong.json()["errors"])) == (400, ["instances"])
    early = post(f"/api/v1/jobs/{job.uid}/resume", tool("ann"))
    assert (early.status_code, early.json()["detail"]) == (409, "The job is not suspended.")


def test_no_answer_is_recorded_as_unknown(
    lab: ActionsLab, settings: SettingsWrapper, tmp_path: Path
) -> None:
    job = lab.add()
    text = Path(lab.kubeconfig).read_text(encoding="utf-8")
    server = text.partition("server: ")[2].split()[0]
    away = tmp_path / "away"
    away.write_text(text.replace(server, "https://127.0.0.1:9"))
    settings.KUBECONFIG = str(away)
    answer = post(f"/api/v1/jobs/{job.uid}/cancel", tool("ann"))
    assert answer.json()["type"] == "urn:ipuhub:problem:cluster-unavailable"
    assert answer.status_code == 503
    assert "look at the job before you try again" in answer.json()["detail"]
    entry = AuditEntry.objects.get()
    assert (entry.outcome, entry.message) == ("unknown", answer.json()["detail"])
    assert "127.0.0.1" not in entry.message  # others see the entry, too


def test_the_entry_is_there_before_the_write_is_sent(
    lab: ActionsLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, seen = lab.add(), []

    def look(*_arguments: Any, **_options: Any) -> None:
        seen.append(AuditEntry.objects.get().outcome)
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "_write", look)
    with pytest.raises(KeyboardInterrupt):
        browser("ann").post(f"/jobs/{job.uid}/do/suspend/")
    assert seen == ["sent"]
    assert AuditEntry.objects.get().outcome == "unknown"


@pytest.mark.parametrize(
    ("template", "identities", "want"),
    [
        ("{issuer}#{subject}", ["ann"], True),
        ("{subject}@lab", ["ann"], True),
        ("{username}@lab", ["ann"], False),
        ("{subject}@lab", [], False),
        ("{subject}@lab", ["ann", "bob"], False),
        ("{subject}@lab", ["system:admin"], False),
        ("{subject}@lab", ["a\r\nImpersonate-Group: system:masters"], False),
        ("", ["ann"], False),
    ],
)
def test_people_of_a_provider_act_as_their_subject(
    lab: ActionsLab, settings: SettingsWrapper, template: str, identities: list[str], want: bool
) -> None:
    settings.ACTIONS_USERS = {}
    settings.ACTIONS_SINGLE_SIGN_ON = template.replace("{issuer}#{subject}", "{subject}@lab")
    job, external = lab.add(), browser("external")
    user = get_user_model().objects.get(username="external")
    for number, subject in enumerate(identities):
        ExternalIdentity.objects.create(user=user, issuer=f"https://{number}", subject=subject)
    answer = external.post(f"/jobs/{job.uid}/do/suspend/")
    assert (answer.status_code == 302) is want


def test_the_audit_shows_each_user_the_entries_of_his_namespaces(lab: ActionsLab) -> None:
    job = lab.add()
    post(f"/api/v1/jobs/{job.uid}/suspend", tool("ann"))
    page = browser("bob").get("/audit/").content.decode()
    assert "ann@lab" in page
    assert f'href="/jobs/{job.uid}/"' in page
    stranger = browser("charlie", "team-b")
    assert "ann@lab" not in stranger.get("/audit/").content.decode()
    assert stranger.get("/api/v1/audit").json()["results"] == []
    (row,) = browser("bob").get("/api/v1/audit?action=suspend&user=ann").json()["results"]
    assert (row["outcome"], row["via"], row["status"]) == ("accepted", "token ci", 200)
    assert row["changes"] == [{"field": "spec.suspend", "before": None, "after": "true"}]
    lines = b"".join(browser("bob").get("/audit/?format=csv")).decode().splitlines()
    assert lines[0].startswith("outcome,action,name,namespace,user,kubernetes_user,via,at")
    assert len(lines) == 2
    assert browser("bob").get("/audit/?outcome=odd").status_code == 400


def test_the_events_of_a_job_say_who_asked_for_what(lab: ActionsLab) -> None:
    job = lab.add()
    post(f"/api/v1/jobs/{job.uid}/suspend", tool("ann"))
    post(f"/api/v1/jobs/{job.uid}/cancel", tool("bob"))
    text = browser("ann").get(f"/jobs/{job.uid}/events/").content.decode()
    assert "ann asked to suspend the job" in text
    assert "bob asked to cancel the job: refused" in text


def test_an_ended_job_is_deleted_in_the_words_of_its_page(lab: ActionsLab) -> None:
    job, ann = lab.add(), browser("ann")
    job.status, job.completed_at = "Completed", timezone.now()
    job.save()
    page = ann.get(f"/jobs/{job.uid}/").content.decode()
    assert f'href="/jobs/{job.uid}/do/cancel/">Delete</a>' in page
    asks = ann.get(f"/jobs/{job.uid}/do/cancel/").content.decode()
    assert 'type="submit">Delete the job' in asks
    assert "The ended job is deleted" in asks
    done = ann.post(f"/jobs/{job.uid}/do/cancel/", follow=True).content.decode()
    assert "Job team-a/train was deleted." in done
    assert AuditEntry.objects.get().action == "cancel"  # as the API names it
    assert "ann asked to delete the job" in ann.get(f"/jobs/{job.uid}/events/").content.decode()


def test_the_requests_of_a_job_s_events_are_a_file_too(lab: ActionsLab) -> None:
    """Of this job alone, as the audit has them, safe in a spreadsheet, and in the API."""
    job, other = lab.add(), lab.add("other")
    post(f"/api/v1/jobs/{job.uid}/suspend", tool("ann"))
    post(f"/api/v1/jobs/{other.uid}/suspend", tool("ann"))
    AuditEntry.objects.filter(uid=job.uid).update(message="=1+1")
    page = browser("ann").get(f"/jobs/{job.uid}/events/").content.decode()
    (address,) = re.findall(r'href="([^"]+)" download>Requests', page)
    text = b"".join(browser("ann").get(unescape(address))).decode()
    (line,) = csv.DictReader(io.StringIO(text))
    assert (line["action"], line["uid"], line["user"]) == ("suspend", job.uid, "ann")
    assert line["message"] == "'=1+1"
    (row,) = browser("ann").get(f"/api/v1/audit?uid={job.uid}").json()["results"]
    assert row["uid"] == job.uid
    assert b"".join(browser("charlie", "team-b").get(unescape(address))).count(b"\n") == 1


def test_a_viewer_sees_the_job_but_no_buttons_and_changes_nothing(lab: ActionsLab) -> None:
    job = lab.add()
    viewer = get_user_model().objects.create_user("bob")
    grant(viewer, "viewer", "team-a")
    client = browser("bob")
    page = client.get(f"/jobs/{job.uid}/")
    assert page.status_code == 200
    assert "/do/" not in page.content.decode()
    for answer in (
        client.post(f"/jobs/{job.uid}/do/cancel/"),
        post(f"/api/v1/jobs/{job.uid}/cancel", tool("bob")),
    ):
        assert answer.status_code == 403
        assert "role operator" in answer.content.decode()
    manifest = {"kind": "IPUJob", "metadata": {"namespace": "team-a", "name": "n"}, "spec": SPEC}
    assert post("/api/v1/jobs", tool("bob"), manifest).status_code in {400, 403}
    assert lab.spec_of(job) is not None
    assert not AuditEntry.objects.exclude(outcome="refused").exists()
    grant(viewer, "operator", "team-a")
    assert "/do/cancel/" in client.get(f"/jobs/{job.uid}/").content.decode()
