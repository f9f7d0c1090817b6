"""Changes that are refused before a service records them are in the audit, each with its reason."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

import pytest
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone

from ipuhub.models import AuditEntry
from ipuhub.web.audit import KINDS
from ipuhub.web.refusals import WRITES
from tests.builders import jobhistory
from tests.builders.apiroutes import api_routes
from tests.builders.clients import api_client, browser
from tests.builders.rates import store_rate
from tests.integration.web.addresses import EXAMPLES, FORMS
from tests.integration.web.oidcsignin import sign_in

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.oidcprovider import OidcProvider

JSON: Final = "application/json"
NO_CHANGE: Final = {
    "api-subscription-retry", "api-subscription-test", "login", "logout", "oidc-backchannel-logout",
    "partitions-api:query", "usage-api:rate-preview",
}  # fmt: skip
"""Addresses that take a POST and change nothing that the audit has."""


def test_every_address_that_writes_says_what_it_changes() -> None:
    of_api = {
        each.name for each in api_routes() if {"post", "put", "patch", "delete"} & set(each.methods)
    }
    of_pages = {name for name, each in (EXAMPLES | FORMS).items() if each.form is not None}
    assert (of_api | of_pages) - NO_CHANGE == set(WRITES)
    assert {each.kind for each in WRITES.values()} == set(KINDS)


def refused() -> tuple[str, str, str, str]:
    """Return the change, name, reason and way of the only entry, and delete it."""
    entry = AuditEntry.objects.get()
    assert (entry.outcome, entry.address) == ("refused", "127.0.0.1")
    AuditEntry.objects.all().delete()
    return f"{entry.action} {entry.kind}", entry.name, entry.message, entry.via


@pytest.mark.django_db
def test_each_write_of_the_api_that_is_refused_is_recorded_once(admin: User, alice: User) -> None:
    job, rate = jobhistory.job(), store_rate("cpu", "1")
    root, other = api_client(admin), api_client(alice)
    token = alice.api_tokens.get().pk
    tried = 0
    for route in api_routes():
        if route.name not in WRITES:
            continue
        names: dict[str, Any] = {"uid": job.uid} if "{uid}" in route.path else {"pk": rate.pk}
        if route.name in {"api-token", "api-user-token"}:
            names = {"pk": token if route.name == "api-user-token" else admin.api_tokens.get().pk}
        if "{" not in route.path:
            names = {}
        if route.name == "api-subscription":
            continue  # below
        for method in {"post", "patch", "delete"} & set(route.methods):
            tried += 1
            body = {"odd": 1, "user": "bob"}
            address = reverse(route.name, kwargs=names)
            answer = getattr(root, method)(address, body, content_type=JSON)
            assert answer.status_code in {400, 403}, (route, answer.content)
            what, _name, reason, via = refused()
            assert reason == answer.json()["detail"]
            assert via == "token test"
            assert what.endswith(WRITES[route.name].kind)
    assert tried > 12
    assert other.post("/api/v1/roles/grant", {"user": "bob"}, JSON).status_code == 403
    assert refused()[:2] == ("grant role", "bob")


@pytest.mark.django_db
def test_a_token_without_the_scope_and_a_mistake_in_a_form_are_recorded(
    admin: User, alice: User
) -> None:
    weak, person, stranger = api_client(admin, "read"), browser(admin), browser(alice)
    rate = {"resource": "cpu", "price": "1", "valid_from": "2026-12-01"}
    assert weak.post("/api/v1/usage/rates", rate, JSON).status_code == 403
    what, _name, reason, via = refused()
    assert (what, via) == ("create rate", "token test")
    assert "does not have the scope 'reports'" in reason
    assert person.post("/usage/rates/", rate | {"price": "-", "save": "yes"}).status_code == 400
    assert refused()[:2] == ("create rate", "cpu")
    assert person.post("/usage/rates/", rate | {"price": "-"}).status_code == 400
    assert not AuditEntry.objects.exists(), "a preview changes nothing"
    assert stranger.post("/usage/rates/", rate | {"save": "yes"}).status_code == 403
    assert "administrators and accountants" in refused()[2]
    role = {"user": "nobody", "role": "viewer", "namespace": "team-a", "change": "revoke"}
    assert person.post("/account/users/", role).status_code == 400
    want = ("revoke role", "nobody", "user: There is no user of this name.", "page")
    assert refused() == want
    assert person.post("/account/tokens/", {"name": "ci"}).status_code == 400
    assert "scopes: Choose what the token may do." in refused()[2]
    wrong = {"old_password": "no", "new_password1": "a-long-word-7", "new_password2": "other"}
    assert person.post("/account/password/", wrong).status_code == 400
    what, name, reason, _via = refused()
    assert (what, name) == ("change-password user", "root")
    assert "a-long-word-7" not in reason
    person.post("/account/notifications/", {"event": "job-ended", "channel": "pigeon"})
    assert refused()[:2] == ("create subscription", "job-ended")
    person.post("/usage/reports/make/", {"month": "2026-10", "close": "yes", "typed": "2026-11"})
    what, name, reason, _via = refused()
    assert (what, name) == ("close report", "2026-10")
    assert "Type the month" in reason


@pytest.mark.django_db
def test_a_refused_action_names_its_job_and_a_dry_run_leaves_no_entry(alice: User) -> None:
    job = jobhistory.job(status="Completed")  # actions are off here
    address = f"/api/v1/jobs/{job.uid}/suspend"
    for client, way in ((browser(alice), "page"), (api_client(alice), "token test")):
        where = f"/jobs/{job.uid}/do/suspend/" if way == "page" else address
        assert client.post(where, {}, content_type=JSON).status_code == 403
        entry = AuditEntry.objects.get()
        assert (entry.namespace, entry.uid) == ("team-a", job.uid)
        what, name, reason, via = refused()
        assert (what, name, via) == ("suspend job", "train", way)
        assert "IPUHUB_ACTIONS" in reason
    assert api_client(alice).post(f"{address}?dry_run=true", {}, JSON).status_code == 403
    assert not AuditEntry.objects.exists()


@pytest.mark.django_db
def test_a_conflict_with_the_state_of_a_job_is_recorded(
    alice: User, settings: SettingsWrapper
) -> None:
    settings.ACTIONS, settings.ACTIONS_USERS = True, {"alice": "alice@lab"}
    job = jobhistory.job(status="Completed", deleted_at=timezone.now())
    for client, where in (
        (api_client(alice), f"/api/v1/jobs/{job.uid}/suspend"),
        (browser(alice), f"/jobs/{job.uid}/do/suspend/"),
    ):
        assert client.post(where, {}, content_type=JSON).status_code in {400, 409}
        assert refused()[:2] == ("suspend job", "train")


def test_a_first_sign_in_and_commands_for_users_are_recorded(
    provider: OidcProvider, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        sign_in(provider)
    out = io.StringIO()
    for _ in range(2):
        call_command("link_user", "alice", "sub-of-alice", stdout=out)
    monkeypatch.setattr("getpass.getpass", lambda **_: "a-long-new-word-7")
    call_command("changepassword", "alice", stdout=out)
    entries = AuditEntry.objects.filter(kind="user").order_by("id")
    assert list(entries.values_list("action", "name", "via", "user_name", "address"))[:1] == [
        ("create", "ann", "sign-in", "ann", "127.0.0.1")
    ]
    assert list(entries.values_list("action", "name", "via"))[1:] == [
        ("link", "alice", "command link_user"),
        ("change-password", "alice", "command changepassword"),
    ]
    subject = {"field": "subject", "before": None, "after": "sub-of-alice"}
    assert subject in entries[1].changes
    assert "a-long-new-word-7" not in str(list(entries.values()))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("name=" + "x" * 4_000_000, "This form is too large."),
        ("&".join(f"a{number}=x" for number in range(5000)), "too many fields."),
    ],
)
def test_a_form_that_cannot_be_read_is_recorded_with_its_reason(
    alice: User, form: str, reason: str
) -> None:
    kind = "application/x-www-form-urlencoded"
    answer = browser(alice).post("/account/tokens/", form, content_type=kind)
    assert answer.status_code == 400
    what, _name, message, via = refused()
    assert (what, via) == ("create token", "page")
    assert message.endswith(reason)
    assert message in answer.content.decode()
