"""Roles per namespace: granted and revoked by page, command and group, recorded, and the usage and
cost that each shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.db.migrations.executor import MigrationExecutor

from dashboard.actions.rolechanges import read_role_changes
from ipuhub.models import AuditEntry, RoleGrant
from ipuhub.roles import Grant, parse_group_roles
from ipuhub.web.access import EVERYTHING, Scope, access_of
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import store_pod
from tests.builders.rates import store_rate
from tests.builders.roles import grant
from tests.integration.web.oidcsignin import sign_in

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.oidcprovider import OidcProvider

pytestmark = pytest.mark.django_db
PAGE = "/account/users/"


def fresh(user: User) -> User:
    """The user as the next request reads him."""
    return get_user_model().objects.get(pk=user.pk)


def roles_of(user: User) -> set[str]:
    return {str(Grant(row.role, row.namespace)) for row in RoleGrant.objects.filter(user=user)}


@pytest.mark.parametrize(
    ("granted", "jobs", "operates", "accounts"),
    [
        ("viewer", {"team-a"}, set(), set()),
        ("operator", {"team-a"}, {"team-a"}, set()),
        ("accountant", set(), set(), {"team-a"}),
        ("admin", {"team-a"}, {"team-a"}, {"team-a"}),
    ],
)
def test_a_role_of_a_namespace_is_what_it_says_and_for_all_everywhere(
    charlie: User, granted: str, jobs: set[str], operates: set[str], accounts: set[str]
) -> None:
    wants = [frozenset(each) for each in (jobs, operates, accounts)]
    grant(charlie, granted, "team-a")
    access = access_of(charlie)
    parts = (access.jobs, access.operates, access.accounts)
    assert [part.namespaces for part in parts] == wants
    assert not access.is_admin
    assert not access.is_accountant
    RoleGrant.objects.all().delete()
    if granted != "admin":
        grant(charlie, granted)
        access = access_of(fresh(charlie))
        parts = (access.jobs, access.operates, access.accounts)
        assert [part.sees_all for part in parts] == [bool(want) for want in wants]


def test_roles_of_several_namespaces_add_up(charlie: User) -> None:
    grant(charlie, "viewer", "team-a")
    grant(charlie, "operator", "team-b")
    grant(charlie, "accountant", "team-c")
    access = access_of(charlie)
    assert access.jobs == Scope(frozenset({"team-a", "team-b"}))
    assert access.operates == Scope(frozenset({"team-b"}))
    assert access.usage == Scope(frozenset({"team-a", "team-b", "team-c"}), with_cost=False)


def test_an_administrator_grants_and_revokes_on_the_page(admin: User, charlie: User) -> None:
    form = {"user": "charlie", "role": "viewer", "namespace": "team-b", "change": "grant"}
    html = browser(admin).post(PAGE, form, follow=True).content.decode()
    assert "charlie has now the role viewer in namespace team-b." in html
    assert "viewer: team-b" in html
    assert "Revoke<span" in html
    assert "admin of root" not in html, "nobody takes his own role away"
    assert access_of(fresh(charlie)).jobs == Scope(frozenset({"team-b"}))
    again = browser(admin).post(PAGE, form, follow=True).content.decode()
    assert "Nothing changed" in again
    browser(admin).post(PAGE, {**form, "change": "revoke"})
    assert roles_of(charlie) == set()
    browser(admin).post(PAGE, {**form, "role": "admin", "namespace": "*"})
    assert access_of(fresh(charlie)).jobs == EVERYTHING
    changes = read_role_changes().order_by("id")
    assert list(changes.values_list("user_name", "role", "namespace", "is_granted")) == [
        ("root", "viewer", "team-b", True),
        ("root", "viewer", "team-b", False),
        ("root", "admin", "*", True),
    ]
    rows = (
        api_client(admin)
        .get("/api/v1/role-changes?user=charlie&namespace=team-b")
        .json()["results"]
    )
    assert [row["is_granted"] for row in rows] == [False, True]
    assert "charlie" in browser(admin).get("/account/roles/").content.decode()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"user": "nobody"}, "There is no user of this name."),
        ({"namespace": "Team A"}, "is not a valid namespace name"),
        ({"role": "owner"}, "Select a valid choice"),
        ({"user": "root", "role": "admin", "change": "revoke"}, "your own role admin"),
    ],
)
def test_a_wrong_grant_is_refused_in_words(
    admin: User, charlie: User, changed: dict[str, str], sentence: str
) -> None:
    form = {"user": "charlie", "role": "viewer", "namespace": "*", "change": "grant"} | changed
    answer = browser(admin).post(PAGE, form)
    assert answer.status_code == 400
    assert sentence in answer.content.decode()
    assert not AuditEntry.objects.filter(outcome="accepted").exists()
    assert fresh(admin).is_staff
    assert roles_of(charlie) == set()


def test_only_administrators_of_everything_grant(alice: User, charlie: User) -> None:
    grant(alice, "admin", "team-a")
    form = {"user": "alice", "role": "admin", "namespace": "*", "change": "grant"}
    assert browser(alice).post(PAGE, form).status_code == 403
    assert not fresh(alice).is_staff
    assert "Audit" in browser(charlie).get("/account/tokens/").content.decode()


def test_the_same_role_is_granted_once(charlie: User) -> None:
    grant(charlie, "viewer", "team-a")
    row = {"user": charlie, "role": "viewer", "namespace": "team-a"}
    with pytest.raises(IntegrityError), transaction.atomic():
        RoleGrant.objects.create(**row)
    with pytest.raises(IntegrityError), transaction.atomic():
        RoleGrant.objects.create(**{**row, "role": "owner"})


def test_the_commands_grant(db: None) -> None:
    call_command("make_user", "dora", "--role", "viewer", "--role", "operator:team-b")
    dora = get_user_model().objects.get(username="dora")
    assert roles_of(dora) == {"viewer", "operator:team-b"}
    call_command("grant_namespace", "dora", "*", "--role", "accountant")
    call_command("grant_namespace", "dora", "team-b", "--revoke")
    assert roles_of(dora) == {"viewer", "accountant"}
    assert list(read_role_changes().order_by("id").values_list("role", "is_granted", "via")) == [
        ("viewer", True, "command make_user"),
        ("operator", True, "command make_user"),
        ("accountant", True, "command grant_namespace"),
        ("operator", False, "command grant_namespace"),
    ]
    with pytest.raises(CommandError, match="'owner' is not a role"):
        call_command("make_user", "eve", "--role", "owner")
    assert not get_user_model().objects.filter(username="eve").exists()


def test_groups_of_the_provider_are_roles_of_namespaces(
    provider: OidcProvider, settings: SettingsWrapper
) -> None:
    settings.OIDC_GROUP_ROLES = parse_group_roles(
        ["ml=operator:team-a", "ml=viewer:team-b", "finance=accountant"]
    )
    provider.person["groups"] = ["ml", "finance", "other"]
    sign_in(provider)
    ann = get_user_model().objects.get(username="ann")
    assert roles_of(ann) == {"operator:team-a", "viewer:team-b", "accountant"}
    grant(ann, "viewer", "team-c")  # an administrator's, which no sign-in takes away
    provider.person["groups"] = ["finance"]
    sign_in(provider)
    assert roles_of(ann) == {"accountant", "viewer:team-c"}
    by_groups = AuditEntry.objects.filter(kind="role", via="sign-in")
    assert set(by_groups.values_list("user_name", "address")) == {("sign-in", "127.0.0.1")}


def ask(user: User, query: str) -> Any:
    answer = api_client(user).get(f"/api/v1/usage/summary?{query}")
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_an_accountant_of_a_namespace_sees_its_cost_and_no_other(charlie: User) -> None:
    store_rate("cpu", "1000")
    for namespace in ("team-a", "team-b"):
        store_pod("2026-11-20T00:00", "2026-11-20T02:00", cpu=2, namespace=namespace)
    grant(charlie, "accountant", "team-a")
    found = ask(charlie, "month=2026-11&by=namespace")
    assert [row["cost"] for row in found["results"]] == ["4000.00"]
    assert found["total"]["cost"] == "4000.00"
    assert api_client(charlie).get("/api/v1/usage/summary?namespace=team-b").status_code == 403
    assert api_client(charlie).get("/api/v1/usage/rates").status_code == 403
    grant(charlie, "viewer", "team-b")  # whose cost would show beside, so that there is none
    found = ask(charlie, "month=2026-11&by=namespace")
    assert {row["cost"] for row in found["results"]} == {None}
    assert found["total"]["cost"] is None


def test_a_viewer_of_everything_sees_hours_but_neither_cost_nor_reports(charlie: User) -> None:
    store_rate("cpu", "1000")
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", cpu=2, namespace="team-a")
    grant(charlie, "viewer")
    assert ask(charlie, "month=2026-11")["total"]["cost"] is None
    assert "Reports" not in browser(charlie).get("/usage/").content.decode()
    assert browser(charlie).get("/system/").status_code == 403
    assert api_client(charlie).get("/api/v1/components").status_code == 403


@pytest.mark.django_db(transaction=True)
def test_grants_of_before_become_roles() -> None:
    executor = MigrationExecutor(connection)
    latest = executor.loader.graph.leaf_nodes()
    old = [("ipuhub", "0005_audit"), ("auth", "0012_alter_user_first_name_max_length")]
    executor.migrate(old[:1])
    try:
        models = MigrationExecutor(connection).loader.project_state(old).apps
        users = models.get_model("auth", "User").objects
        ann, bob = users.create(username="ann"), users.create(username="bob")
        models.get_model("ipuhub", "NamespaceGrant").objects.create(user=ann, namespace="team-a")
        group = models.get_model("auth", "Group").objects.get_or_create(name="accountant")[0]
        bob.groups.add(group)
    finally:
        MigrationExecutor(connection).migrate(latest)
    rows = RoleGrant.objects.values_list("user__username", "role", "namespace")
    assert set(rows) == {("ann", "operator", "team-a"), ("bob", "accountant", "*")}
    get_user_model().objects.filter(username="ann").delete()  # the old table holds nobody back
