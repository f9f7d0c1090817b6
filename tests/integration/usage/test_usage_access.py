"""Who may call what of usage in the API: every address, every kind of caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from ipuhub.models import NamespaceGrant, RecordFault
from ipuhub.web.access import Scope
from tests.builders.clients import tool
from usage.api.urls import urlpatterns
from usage.selectors import faults

if TYPE_CHECKING:
    from django.urls import URLPattern
    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db
NOBODY, STRANGER, USER, ACCOUNTANT, ADMIN = "nobody", "stranger", "user", "accountant", "admin"
CALLERS = (NOBODY, STRANGER, USER, ACCOUNTANT, ADMIN)
ANYBODY, BOOKS, ADMINS = CALLERS[1:], (ACCOUNTANT, ADMIN), (ADMIN,)
"""Who is let in; what a user then sees is cut to his namespaces."""
_MAY: dict[str, tuple[str, ...]] = {
    "summary": ANYBODY,
    "series": ANYBODY,
    "capacity": ADMINS,
    "lifetimes": ANYBODY,
    "faults": BOOKS,
    "gaps": ANYBODY,
}
_ARGUMENTS: dict[str, list[Any]] = {
    "report-file": ["2026-10", "summary", "csv"],
    "correction-file": ["2026-10", 1],
    "run": [1],
    "run-file": [1],
    "rate-end": [1],
    "review": ["2026-10"],
} | {f"{name}-file": ["csv"] for name in _MAY}


@pytest.fixture
def callers(settings: SettingsWrapper) -> dict[str, Client]:
    settings.SECURE_SSL_REDIRECT = False
    make = get_user_model().objects.create_user
    users = {STRANGER: make("charlie"), USER: make("alice"), ACCOUNTANT: make("carol")}
    users[ADMIN] = make("root", is_staff=True)
    for name, group in ((ACCOUNTANT, "accountant"), (STRANGER, "accountants of another house")):
        users[name].groups.add(Group.objects.get_or_create(name=group)[0])
    NamespaceGrant.objects.create(user=users[USER], namespace="team-a")
    return {NOBODY: Client()} | {name: tool(user) for name, user in users.items()}


def _refused(caller: str) -> int:
    return 401 if caller == NOBODY else 403


@pytest.mark.parametrize("pattern", urlpatterns, ids=lambda each: str(each.name))
def test_each_address_lets_in_whom_it_is_for_and_nobody_else(
    pattern: URLPattern, callers: dict[str, Client]
) -> None:
    name = str(pattern.name)
    address = reverse(f"usage-api:{name}", args=_ARGUMENTS.get(name, []))
    let_in = _MAY.get(name.removesuffix("-file"), BOOKS)  # reports and rates
    for caller, client in callers.items():
        for method in ("get", "post"):
            answer = getattr(client, method)(address, {}, content_type="application/json")
            if answer.streaming:  # its cursor goes with the last line
                list(answer)
            if caller in let_in:
                assert answer.status_code not in {401, 403}, (caller, method)
            else:
                assert answer.status_code == _refused(caller), (caller, method)


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
    found = [faults(Scope(seen)).count() for seen in (None, frozenset({"team-a"}))]
    assert found == [1, 0]
