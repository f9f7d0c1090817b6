"""Access to PrimeHub's URLs, and to faults."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from ipuhub.models import RecordFault
from ipuhub.web.access import Scope
from tests.builders.clients import api_client
from tests.builders.roles import grant
from usage.selectors import faults

pytestmark = pytest.mark.django_db
NOBODY, STRANGER, USER, ACCOUNTANT, ADMIN = "nobody", "stranger", "user", "accountant", "admin"
BOOKS = (ACCOUNTANT, ADMIN)


@pytest.fixture
def callers() -> dict[str, Client]:
    make = get_user_model().objects.create_user
    users = {STRANGER: make("charlie"), USER: make("alice"), ACCOUNTANT: make("carol")}
    users[ADMIN] = make("root", is_staff=True)
    grant(users[ACCOUNTANT], "accountant")
    grant(users[STRANGER], "accountant", "another-house")
    grant(users[USER], "operator", "team-a")
    return {NOBODY: Client()} | {name: api_client(user) for name, user in users.items()}


def _refused(caller: str) -> int:
    return 401 if caller == NOBODY else 403


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "path", ["monthly", "monthly/2026/10", "monthly/details/2026/10"], ids=lambda path: path
)
def test_primehubs_addresses_are_for_accountants(path: str, callers: dict[str, Client]) -> None:
    for caller, client in callers.items():
        answer = client.get(f"/report/{path}")
        answer.close()
        assert answer.status_code == (200 if caller in BOOKS else _refused(caller)), caller


def test_no_scope_of_namespaces_has_faults_not_even_of_its_own() -> None:
    now = timezone.now()
    RecordFault.objects.create(watch="pods", namespace="team-a", first_at=now, last_at=now)
    own = frozenset({"team-a"})
    scopes = (Scope(None, with_cost=True), Scope(None), Scope(own, with_cost=True), Scope(own))
    assert [faults(scope).count() for scope in scopes] == [1, 0, 0, 0]
