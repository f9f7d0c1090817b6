"""The audit: each change of rows with its author, way, address and values, and who may see it."""

from __future__ import annotations

import csv
import io
import json
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from dashboard.actions.auditlist import visible_entries
from dashboard.actions.rolechanges import read_role_changes
from dashboard.notify.subscriptions import delete, pause, resume
from ipuhub.api.auth import make_token
from ipuhub.kube.access import User as ClusterUser
from ipuhub.models import ApiToken, AuditEntry, Subscription
from ipuhub.roles import Grant
from ipuhub.web.audit import AuditEvent, Author, record
from ipuhub.web.clusterusers import ServiceAccount
from ipuhub.web.grants import delete_token, grant_role, revoke_role
from tests.builders.clients import api_client, browser
from tests.builders.questions import count_queries
from tests.builders.rates import store_rate
from tests.builders.roles import grant
from usage.models import ReportRun
from usage.rates.pages import end_rate_of
from usage.reports.runs import do_run
from usage.time.months import usage_zone

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.contrib.auth.models import User
    from django.db.models import Model
    from django.test import Client

HOOK = "https://chat.example.com/hooks/s3cr3t-path"
RATE = {"resource": "cpu", "price": "2.500000", "valid_from": "2026-12-01"}
SUBSCRIPTION = {"event": "job-waiting", "channel": "webhook", "target": HOOK, "minutes": 30}
ROLE = {"user": "alice", "role": "viewer", "namespace": "team-b"}


def send(client: Client, path: str, body: Any = None, verb: str = "post", key: str = "") -> int:
    call, headers = getattr(client, verb), {"Idempotency-Key": key} if key else {}
    sent = {} if body is None else {"data": body, "content_type": "application/json"}
    status: int = call(path, headers=headers, **sent).status_code
    return status


def summary(entry: AuditEntry) -> tuple[str, str, str, str]:
    values = "; ".join(
        f"{each['field']}: {each['before']} to {each['after']}" for each in entry.changes
    )
    return entry.kind, entry.action, entry.name, values


def write_everything(client: Client, alice: User) -> list[tuple[str, str, str, str]]:
    """Make each change through the API; return the entries to expect."""
    token = ApiToken.objects.create(
        user=alice, name="old", digest="d", created_at=timezone.now(), scopes="read"
    )
    rate = store_rate("cpu", "1.50", ends="2026-12-01")
    usage = "/api/v1/usage/rates"
    assert send(client, usage, RATE) == 201
    assert send(client, f"{usage}/{rate.pk}/end", {"valid_until": "2026-11-01"}) == 200
    assert send(client, "/api/v1/subscriptions", SUBSCRIPTION) == 201
    mine = client.get("/api/v1/subscriptions").json()["results"][0]["id"]
    for paused in (True, True, False):
        assert send(client, f"/api/v1/subscriptions/{mine}", {"is_paused": paused}, "patch") == 200
    assert send(client, f"/api/v1/subscriptions/{mine}", verb="delete") == 204
    new = {"name": "ci", "days": 0, "scopes": ["read"]}
    assert send(client, "/api/v1/tokens", new) == 201
    made = ApiToken.objects.get(name="ci")
    assert send(client, f"/api/v1/tokens/{made.pk}", verb="delete") == 204
    assert send(client, f"/api/v1/users/tokens/{token.pk}", verb="delete") == 204
    assert send(client, "/api/v1/roles/grant", ROLE) == 200
    assert send(client, "/api/v1/roles/revoke", ROLE) == 200
    host = "https://chat.example.com"
    of_token = "owner: None to root; scopes: None to read; valid until: None to no expiry"
    made_of = f"event: None to job-waiting; channel: None to webhook; target: None to {host}"
    gone_of = f"event: job-waiting to None; channel: webhook to None; target: {host} to None"
    return [
        ("rate", "create", "cpu", "price: 1.5 to 2.5; valid_from: None to 2026-12-01"),
        ("rate", "end", "cpu", "valid_until: 2026-12-01 to 2026-11-01"),
        ("subscription", "create", "job-waiting", f"{made_of}; minutes: None to 30"),
        ("subscription", "pause", "job-waiting", "is_paused: false to true"),
        ("subscription", "resume", "job-waiting", "is_paused: true to false"),
        ("subscription", "delete", "job-waiting", f"{gone_of}; minutes: 30 to None"),
        ("token", "create", "ci", of_token),
        ("token", "revoke", "ci", "owner: root to None; scopes: read to None"),
        ("token", "revoke", "old", "owner: alice to None; scopes: read to None"),
        ("role", "grant", "alice", "role: None to viewer"),
        ("role", "revoke", "alice", "role: viewer to None"),
    ]


def test_each_change_is_an_entry_with_its_values_and_no_secret(admin: User, alice: User) -> None:
    client = api_client(admin)
    want = write_everything(client, alice)
    entries = list(AuditEntry.objects.order_by("id"))
    assert [summary(entry) for entry in entries] == want
    assert {(each.user_name, each.via, each.address, each.outcome) for each in entries} == {
        ("root", "token test", "127.0.0.1", "accepted")
    }
    rows = json.dumps(list(AuditEntry.objects.values()), default=str)
    assert "s3cr3t" not in rows
    person = browser(admin)
    with CaptureQueriesContext(connection) as captured:
        page = person.get("/audit/").content.decode()
    assert count_queries(captured) <= 8
    assert "price: 1.5 → 2.5; valid_from: none → 2026-12-01" in page
    listed = client.get("/api/v1/audit?kind=rate&user=root").json()["results"]
    assert [row["action"] for row in listed] == ["end", "create"]
    before = {"field": "price", "before": "1.5", "after": "2.5"}
    assert listed[1]["changes"][0] == before
    text = b"".join(client.get("/api/v1/audit.csv?kind=rate")).decode()
    line = next(csv.DictReader(io.StringIO(text)))
    assert line["changes"] == "valid_until: 2026-12-01 -> 2026-11-01"
    assert line["address"] == "'127.0.0.1"  # no spreadsheet makes a number of it


def test_pages_and_commands_record_as_the_api_does(admin: User, alice: User) -> None:
    page = browser(admin)
    page.post("/usage/rates/", RATE | {"save": "yes"})
    page.post("/account/tokens/", {"name": "ci", "days": "0", "scopes": ["read"]})
    page.post(f"/account/tokens/{ApiToken.objects.get().pk}/revoke")
    page.post("/account/notifications/", SUBSCRIPTION)
    page.post("/account/users/", ROLE | {"change": "grant"})
    word = "a-long-new-word-7"
    page.post(
        "/account/password/",
        {"old_password": "x", "new_password1": word, "new_password2": word},
    )
    found = AuditEntry.objects.order_by("id").values_list("kind", "action", "name", "via")
    assert list(found) == [
        ("rate", "create", "cpu", "page"),
        ("token", "create", "ci", "page"),
        ("token", "revoke", "ci", "page"),
        ("subscription", "create", "job-waiting", "page"),
        ("role", "grant", "alice", "page"),
        ("user", "change-password", "root", "page"),
    ]
    AuditEntry.objects.all().delete()
    out = io.StringIO()
    call_command("make_user", "dora", "--role", "viewer:team-a", stdout=out)
    call_command("make_api_token", "dora", stdout=out, stderr=io.StringIO())
    entries = list(AuditEntry.objects.order_by("id"))
    assert [(each.kind, each.action, each.name, each.via) for each in entries] == [
        ("user", "create", "dora", "command make_user"),
        ("role", "grant", "dora", "command make_user"),
        ("token", "create", "command line", "command make_api_token"),
    ]
    assert not any(text in str(entries[2].__dict__) for text in out.getvalue().split())


@pytest.mark.parametrize("key", ["", "k1"], ids=["without-key", "with-key"])
def test_a_refusal_is_an_entry_with_its_reason(admin: User, key: str) -> None:
    client = api_client(admin)
    store_rate("cpu", "1")
    assert send(client, "/api/v1/usage/rates", RATE, key=key) == 400
    own = {"user": "root", "role": "admin", "namespace": "*"}
    assert send(client, "/api/v1/roles/revoke", own, key=key and "k2") == 400
    rate, role = AuditEntry.objects.order_by("id")
    assert (rate.outcome, rate.name) == ("refused", "cpu")
    assert "applies on one of these days" in rate.message
    assert (role.outcome, role.kind) == ("refused", "role")
    assert "You cannot take your own role" in role.message


def test_the_outcome_of_a_closing_is_the_end_of_its_run(admin: User) -> None:
    client, runs = api_client(admin), "/api/v1/usage/reports/runs"
    assert send(client, runs, {"month": "2026-10", "close": True}) == 202
    entry, run = AuditEntry.objects.get(), ReportRun.objects.get()
    assert summary(entry) == ("report", "close", "2026-10", "state: None to closed")
    assert (entry.outcome, entry.uid) == ("sent", str(run.pk))
    do_run(run, usage_zone())
    entry.refresh_from_db()
    assert (entry.outcome, entry.answered_at) == ("accepted", run.finished_at)
    assert send(client, runs, {"month": "2999-01", "close": True}) == 400
    entry = AuditEntry.objects.latest("id")
    assert (entry.outcome, entry.name) == ("refused", "2999-01")
    assert "has not begun yet" in entry.message


def test_only_administrators_see_entries_of_others_that_are_about_no_job(
    admin: User, alice: User, charlie: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A viewer of all namespaces, an accountant of all, and a ServiceAccount see jobs only."""
    at_home, gone = Author("root", "page", "10.0.0.1", admin), Author("gone", "page", "10.0.0.2")
    for kind in ("rate", "report", "subscription", "token", "role", "user"):
        record(at_home, AuditEvent(kind, "create", f"{kind}-of-root"))
    record(gone, AuditEvent("token", "create", "token-of-gone"))
    record(at_home, AuditEvent("job", "suspend", "train", "team-a"))
    record(Author("charlie", "page", "10.0.0.3", charlie), AuditEvent("token", "create", "mine"))
    grant(charlie, "viewer")
    grant(charlie, "accountant")
    account = ServiceAccount(ClusterUser("system:serviceaccount:team-a:ci"))
    assert names_of(charlie) == [("mine", "10.0.0.3"), ("train", "")]
    assert names_of(alice) == [("train", "")]
    monkeypatch.setitem(settings.API_SERVICE_ACCOUNT_ROLES, account.name, (Grant("viewer"),))
    assert names_of(account) == [("train", "")]
    assert len(names_of(admin)) == 9
    assert ("train", "10.0.0.1") in names_of(admin)
    for path in ("/audit/", "/audit/?format=csv", "/api/v1/audit", "/api/v1/audit.jsonl"):
        client = browser(charlie) if path.startswith("/audit") else api_client(charlie)
        answer = client.get(path)
        text = b"".join(answer).decode()
        assert "mine" in text
        assert "of-root" not in text
        assert "10.0.0.1" not in text
        assert answer.status_code == 200


def names_of(user: Any) -> list[tuple[str, str]]:
    return list(visible_entries(user).order_by("-id").values_list("name", "shown_address"))


def test_the_filters_are_in_the_address_and_refuse_what_they_do_not_know(admin: User) -> None:
    record(Author("root", "page", "", admin), AuditEvent("rate", "create", "cpu"))
    client = browser(admin)
    for query, want in {
        "kind=rate": True,
        "kind=token": False,
        "user=root&action=create": True,
        "until=2020-01-01": False,
        "name=cpu&outcome=accepted": True,
    }.items():
        assert ("create rate" in client.get(f"/audit/?{query}").content.decode()) is want, query
    assert client.get("/audit/?kind=odd").status_code == 400


@pytest.mark.django_db(transaction=True)
def test_changes_of_roles_and_jobs_from_before_are_in_the_audit() -> None:
    latest = MigrationExecutor(connection).loader.graph.leaf_nodes()
    try:
        models = migrate([("ipuhub", "0016_heartbeat_version")])
        change, now = models.get_model("ipuhub", "RoleChange").objects.create, timezone.now()
        change(at=now, by="root", user_name="ann", role="viewer", namespace="a", is_granted=True)
        change(at=now, by="root", user_name="ann", role="token ci", namespace="", is_granted=False)
        models.get_model("ipuhub", "AuditEntry").objects.create(
            at=now,
            user_name="bob",
            kubernetes_user="bob",
            action="scale",
            namespace="a",
            name="train",
            change={"spec": {"jobInstances": 4}},
        )
        models = migrate([("ipuhub", "0017_audit_of_everything")])
        change = models.get_model("ipuhub", "RoleChange").objects.create  # a process from before
        change(at=now, by="root", user_name="ann", role="admin", namespace="*", is_granted=True)
        migrate(latest)
        made = [summary(entry) for entry in AuditEntry.objects.order_by("id")]
        fields: list[tuple[str, object, object]] = [("role", "admin", None)]
        record(Author("root", "page"), AuditEvent("role", "revoke", "ann", "*", fields=fields))
        models = migrate([("ipuhub", "0017_audit_of_everything")])
        rows = models.get_model("ipuhub", "RoleChange").objects.order_by("id")
        back = list(rows.values_list("user_name", "role", "namespace", "is_granted"))
    finally:
        migrate(latest)
    assert made == [
        ("job", "scale", "train", "spec.jobInstances: None to 4"),
        ("role", "grant", "ann", "role: None to viewer"),
        ("token", "revoke", "ci", "owner: ann to None"),
        ("role", "grant", "ann", "role: None to admin"),
    ]
    assert back[2:] == [("ann", "admin", "*", True), ("ann", "admin", "*", False)]
    assert AuditEntry.objects.count() == len(made) + 1
    assert read_role_changes().count() == len(back) == 4


def migrate(targets: list[tuple[str, str]]) -> Any:
    """Migrate; return the models of then."""
    MigrationExecutor(connection).migrate(targets)
    return MigrationExecutor(connection).loader.project_state(targets).apps


@pytest.mark.parametrize(
    "change", ["pause", "resume", "delete", "end rate", "grant", "revoke", "revoke token"]
)
def test_two_changes_at_the_same_moment_make_one_entry(admin: User, change: str) -> None:
    by, now = Author("ada", "page", user=admin), timezone.now()
    subscription = Subscription.objects.create(
        owner=admin, event="job-failed", channel="webhook", target=HOOK, created_at=now, since=now
    )
    user = get_user_model().objects.create_user("eve", is_staff=change == "revoke")
    all_of_it = Grant("admin")
    changes: dict[str, tuple[Callable[[Any], object], Model]] = {
        "pause": (lambda each: pause(by, each), subscription),
        "resume": (lambda each: resume(by, each), subscription),
        "delete": (lambda each: delete(by, each), subscription),
        "end rate": (lambda each: end_rate_of(by, each, date(2026, 11, 1)), store_rate("cpu", "1")),
        "grant": (lambda each: grant_role(each, all_of_it, by), user),
        "revoke": (lambda each: revoke_role(each, all_of_it, by), user),
        "revoke token": (
            lambda each: delete_token(each.pk, by, each.user),
            make_token(user, "old", now)[0],
        ),
    }
    act, row = changes[change]
    Subscription.objects.update(is_paused=change == "resume")
    # Each request has read the row before the other changes it.
    for read in [type(row).objects.get(pk=row.pk) for _ in range(2)]:  # type: ignore[attr-defined]
        act(read)
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.outcome) == (change.partition(" ")[0], "accepted")
