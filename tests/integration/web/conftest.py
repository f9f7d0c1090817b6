"""Users, and a web process that talks plain HTTP and finds no cluster."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model

from dashboard import health
from dashboard.overview import page
from tests.builders import jobhistory
from tests.builders.clients import browser
from tests.builders.roles import grant
from tests.fakes.oidcprovider import oidc_provider
from tests.integration.web.livepages import live_server
from tests.integration.web.oidcsignin import use_provider
from usage import selectors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.auth.models import User
    from django.test import Client
    from pytest_django.fixtures import SettingsWrapper

    from jobs.models import JobRecord
    from tests.fakes.oidcprovider import OidcProvider


@pytest.fixture(autouse=True)
def plain_http(settings: SettingsWrapper) -> None:
    settings.SECURE_SSL_REDIRECT = False
    page._POLLED._slots.clear()
    health._POLLED._slots.clear()
    selectors._OWNERS._slots.clear()


@pytest.fixture
def admin(db: None) -> User:
    return get_user_model().objects.create_user("root", password="x", is_staff=True)


@pytest.fixture
def staff(admin: User) -> Client:
    return browser(admin)


@pytest.fixture
def ended(db: None) -> JobRecord:
    """A job that failed once and then completed: 100 s of a worker of 4 IPUs in each attempt."""
    began = dt.datetime(2026, 11, 20, 9, tzinfo=dt.UTC)
    job = jobhistory.job(
        status="Completed", created_at=began, completed_at=began + dt.timedelta(seconds=300)
    )
    for number in (0, 1):
        start = began + dt.timedelta(seconds=150 * number)
        life = {
            "attempt": number,
            "created_at": start,
            "scheduled_at": start,
            "started_at": start + dt.timedelta(seconds=10),
            "finished_at": start + dt.timedelta(seconds=100),
            "phase": "Succeeded" if number else "Failed",
        }
        jobhistory.pod(job, "launcher", exit_code=1 - number, **life)
        jobhistory.pod(job, "worker", **life)
        failed = {"outcome": "Failed", "reason": "OOMKilled"}
        outcome = {"outcome": "Completed"} if number else failed
        jobhistory.attempt(job, number, began_at=start, **outcome)
    jobhistory.partition(job, released_at=began + dt.timedelta(seconds=290), phase="released")
    jobhistory.transition(job, "Running", 10, "IPUJobRunning")
    jobhistory.transition(job, "Restarting", 101, "IPUJobRestarting")
    return job


@pytest.fixture
def alice(db: None) -> User:
    """Sees team-a."""
    user = get_user_model().objects.create_user("alice", password="x")
    grant(user, "operator", "team-a")
    return user


@pytest.fixture
def charlie(db: None) -> User:
    """The stranger: signed in, sees nothing."""
    return get_user_model().objects.create_user("charlie", password="x")


@pytest.fixture
def provider(settings: SettingsWrapper) -> Iterator[OidcProvider]:
    """An OIDC provider on a real socket, and the settings of a site that uses it."""
    with oidc_provider() as found:
        use_provider(settings, found)
        yield found


@pytest.fixture
def address(transactional_db: None, plain_http: None) -> Iterator[str]:
    """A server of this test alone, whose middleware knows that it speaks plain HTTP."""
    with live_server() as found:
        yield found
