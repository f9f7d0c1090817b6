"""Attempts to sign in are limited, and leave threads to other requests."""

from __future__ import annotations

import datetime as dt
import threading
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import check_password, get_hasher, make_password
from django.db import connection
from django.test import Client
from django.utils import timezone

from ipuhub import settings as product
from ipuhub.web import hashing
from ipuhub.web.hashing import Places, TooManyHashes
from ipuhub.web.signin import Blocked, count_attempt, counters
from tests.builders.lifetimes import at
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from django.http import HttpResponse
    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db(transaction=True)
LOCKOUT = dt.timedelta(minutes=15)
NOON = at("2026-11-21T12:00")


@pytest.fixture(autouse=True)
def _users(settings: SettingsWrapper) -> None:
    settings.SECURE_SSL_REDIRECT = False
    settings.LOGIN_FAILURES = 3
    for name in ("ann", "ben"):
        get_user_model().objects.create_user(name, password="right")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[dt.datetime]:
    """Return the time."""
    times = [NOON]
    monkeypatch.setattr(timezone, "now", lambda: times[-1])
    return times


def sign_in(user: str, password: str, address: str = "192.0.2.1", **headers: str) -> HttpResponse:
    sent = {"username": user, "password": password}
    return Client().post("/login/", sent, REMOTE_ADDR=address, headers=headers)  # type: ignore[return-value]


def test_after_too_many_failures_even_the_right_password_is_not_tried(
    clock: list[dt.datetime],
) -> None:
    assert [sign_in("ann", "wrong").status_code for _ in range(3)] == [200] * 3
    refused = sign_in("Ann", "right")
    assert (refused.status_code, refused["Retry-After"]) == (429, "30")
    assert "Try again in 30 s." in refused.content.decode()
    assert sign_in("ben", "right").status_code == 302
    assert sign_in("ann", "right", "192.0.2.2").status_code == 302
    clock.append(NOON + dt.timedelta(seconds=31))
    assert sign_in("ann", "wrong").status_code == 200  # one more, and the wait doubles
    assert sign_in("ann", "right")["Retry-After"] == "60"
    clock.append(NOON + dt.timedelta(seconds=100))
    assert sign_in("ann", "right").status_code == 302
    assert sign_in("ann", "wrong").status_code == 200  # the failures are forgotten


def test_one_address_that_tries_many_users_is_refused(clock: list[dt.datetime]) -> None:
    tried = [sign_in(f"user-{number}", "wrong").status_code for number in range(31)]
    assert tried == [200] * 30 + [429]
    assert sign_in("ann", "right").status_code == 429
    assert sign_in("ann", "right", "192.0.2.2").status_code == 302


def test_one_user_who_is_tried_from_many_addresses_is_refused(clock: list[dt.datetime]) -> None:
    tried = [sign_in("ann", "wrong", f"198.51.100.{each}").status_code for each in range(31)]
    assert tried == [200] * 30 + [429]
    assert sign_in("ben", "right", "198.51.100.1").status_code == 302


def test_behind_a_proxy_that_is_not_named_only_the_user_counts(clock: list[dt.datetime]) -> None:
    through = {"X-Forwarded-For": "203.0.113.5"}
    for number in range(40):
        assert sign_in(f"user-{number}", "wrong", **through).status_code == 200
    assert [sign_in("ann", "wrong", **through).status_code for _ in range(4)] == [200] * 3 + [429]


def test_many_attempts_at_once_are_not_more_than_the_limit() -> None:
    counted = counters("ann", "192.0.2.1", 3)
    tried: list[bool] = []

    def attempt() -> None:
        try:
            count_attempt(counted, NOON, LOCKOUT)
            tried.append(True)
        except Blocked:
            tried.append(False)
        finally:
            connection.close()

    threads = [threading.Thread(target=attempt) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tried.count(True), tried.count(False)) == (3, 9)


def test_hashing_takes_half_of_the_threads_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places.of(8)
    held, go = threading.Semaphore(0), threading.Event()

    def hash_one() -> None:
        with places.reserved():
            held.release()
            go.wait(60)

    threads = [threading.Thread(target=hash_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(2):  # two run, two wait
        assert held.acquire(timeout=60)
    wait_until(lambda: not places._all._value, "two that wait")
    with pytest.raises(TooManyHashes), places.reserved():
        pass
    monkeypatch.setattr(hashing, "PLACES", places)
    go.set()
    for thread in threads:
        thread.join()
    with places.reserved():
        pass


def test_a_sign_in_that_finds_no_place_is_told_when_to_come_again(
    settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PASSWORD_HASHERS = product.PASSWORD_HASHERS  # the suite has a quicker hasher
    get_user_model().objects.create_user("carl", password="right")
    places = Places(1, 0)
    monkeypatch.setattr(hashing, "PLACES", places)
    with places.reserved():
        refused = sign_in("carl", "right")
        assert (refused.status_code, refused["Retry-After"]) == (503, "5")
    assert sign_in("carl", "right").status_code == 302


def test_the_hashes_are_django_s_own(settings: SettingsWrapper) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.PBKDF2PasswordHasher"]
    before = make_password("right")
    settings.PASSWORD_HASHERS = ["ipuhub.web.hashing.BoundedHasher"]
    assert check_password("right", before)
    assert get_hasher().algorithm == "pbkdf2_sha256"
