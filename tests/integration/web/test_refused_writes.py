"""Parameters and fields that a write of the API does not know are refused by their names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.models import Subscription
from tests.builders.clients import api_client
from tests.builders.documents import openapi
from tests.integration.web.test_idempotency import (
    JSON,
    RATE,
    RUNS,
    SUBSCRIPTION,
    SUBSCRIPTIONS,
    root,
    send,
)
from usage.models import Rate, ReportRun

if TYPE_CHECKING:
    from django.contrib.auth.models import User

__all__ = ["root"]


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k1"}])
@pytest.mark.django_db
def test_a_write_without_a_dry_run_refuses_to_be_one(root: User, headers: dict[str, str]) -> None:
    client = api_client(root)
    for path, body in (("/api/v1/usage/rates", RATE), (SUBSCRIPTIONS, SUBSCRIPTION), (RUNS, {})):
        refusal = client.post(f"{path}?dry_run", body, content_type=JSON, headers=headers)
        assert (refusal.status_code, list(refusal.json()["errors"])) == (400, ["dry_run"])
    assert not Rate.objects.exists()


def writes() -> list[tuple[str, str]]:
    """Method and address of each write of the API, with `1` for every key."""
    return sorted(
        (method, re.sub(r"{\w+}", "1", path))
        for path, operations in openapi()["paths"].items()
        for method in {"post", "patch", "delete"} & set(operations)
    )


@pytest.mark.django_db
def test_every_write_refuses_a_parameter_that_it_does_not_know(root: User) -> None:
    """The dry run of kubectl, for example: it would be carried out."""
    client = api_client(root)
    assert ("post", "/api/v1/jobs/1/cancel") in writes()
    for method, path in writes():
        answer = getattr(client, method)(f"{path}?dryRun=All", {}, content_type=JSON)
        assert answer.status_code == 400, (method, path, answer.content)
        assert "dryRun: unknown parameter." in answer.json()["detail"]


@pytest.mark.django_db
def test_a_body_with_a_field_that_nothing_reads_is_refused_by_its_name(root: User) -> None:
    """`grup` for `group` would subscribe to all jobs."""
    client, rates = api_client(root), "/api/v1/usage/rates"
    send(client, SUBSCRIPTIONS, SUBSCRIPTION, "a")
    send(client, rates, RATE | {"valid_from": "2026-12-01"}, "b")
    one, rate = f"{SUBSCRIPTIONS}/{Subscription.objects.get().pk}", Rate.objects.get().pk
    tokens, role = "/api/v1/tokens", {"user": "root", "role": "viewer", "namespace": "team-a"}
    bodies: dict[tuple[str, str], dict[str, Any]] = {
        ("post", SUBSCRIPTIONS): SUBSCRIPTION,
        ("patch", one): {"is_paused": True},
        ("delete", one): {},
        ("post", f"{one}/test"): {},
        ("post", f"{one}/retry"): {},
        ("post", tokens): {"name": "ci", "days": 1, "scopes": ["read"]},
        ("delete", f"{tokens}/{root.api_tokens.get().pk}"): {},
        ("delete", f"/api/v1/users/tokens/{root.api_tokens.get().pk}"): {},
        ("post", "/api/v1/roles/grant"): role,
        ("post", "/api/v1/roles/revoke"): role,
        ("post", rates): RATE,
        ("post", f"{rates}/preview"): RATE,
        ("post", f"{rates}/{rate}/end"): {"valid_until": "2027-01-01"},
        ("post", RUNS): {},
        ("post", "/api/v1/query"): {"size": 4},
    }
    same = {(method, re.sub(r"\d+", "1", path[8:])) for method, path in bodies}
    assert {(method, path[8:]) for method, path in writes() if "/jobs" not in path} == same
    for odd in ("dry_run", "grup", "created_at"):
        for (method, path), body in bodies.items():
            answer = send(client, path, body | {odd: "2026-01-01"}, f"{odd}{path}", method)
            assert answer.status_code == 400, (path, odd, answer.content)
            assert answer.json()["errors"][odd][0].startswith("unknown field. "), answer.content
            hint = "For a dry run send the query parameter dry_run=true."
            assert (hint in answer.json()["detail"]) is (odd == "dry_run")
    kept = (Subscription.objects.get().is_paused, Rate.objects.get().valid_until)
    assert (kept, ReportRun.objects.exists()) == ((False, None), False)
    assert (root.api_tokens.count(), root.role_grants.filter(role="viewer").count()) == (1, 0)
