"""Each query parameter and form field of each page, with values of no use: a page, or a refusal.

Pages come from the URL table, parameters from what a view looks up and what its page links and
asks for, forms from the pages themselves: a new page, filter or form is tried without being listed.
"""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from django.conf import settings as django_settings
from django.http import QueryDict
from django.test import Client
from django.utils import timezone

from ipuhub.api.auth import make_token
from ipuhub.models import Subscription
from ipuhub.web.filters import PAGE
from tests.builders.clients import api_client, browser
from tests.fakes.longform import IS_LONG
from tests.integration.web.addresses import api_reads, page_addresses
from usage.time.windows import Month

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http.response import HttpResponseBase

pytestmark = pytest.mark.django_db
_MARKUP: Final = "\"'><script>alert(1)</script>"
_ODD: Final = [_MARKUP, "\0", "-1", "9" * 400, "9999-12-31", "2026-11-31", "\u202e\uffff%s", "[[["]
_TURNS: Final = 3
_UNREAD: Final = "odd"  # no view looks it up: it stands for all names that nobody reads
_OF_EVERY_PAGE: Final = frozenset({_UNREAD, "format", "cursor", "page_size"})
_OF_OTHERS: Final = frozenset({"login", "oidc-start", "oidc-callback", "usage:primehub-health"})
"""Addresses that others write, who may add parameters of their own: providers and probes."""
_RANGE: Final = frozenset({"from", "to", "since", "until", "window"})


def odd_values(turn: int, *, is_long: bool = IS_LONG) -> list[str]:
    """The values that a name is tried with: in the short form markup, which must never be served
    as such, and a third of the others, the next name with the next third."""
    return _ODD if is_long else [_MARKUP, *_ODD[1:][turn % _TURNS :: _TURNS]]


def test_three_names_in_a_row_are_tried_with_all_values() -> None:
    for turn in range(2 * _TURNS):
        tried = [odd_values(turn + name, is_long=False) for name in range(_TURNS)]
        assert set(chain(*tried)) == set(_ODD)
        assert all(_MARKUP in values for values in tried)


def pages() -> dict[str, str]:
    """The addresses of all pages of the URL table, by name."""
    month = Month.of(timezone.now(), django_settings.REPORT_ZONE).previous()
    return page_addresses(uid="uid-team-a-train", month=f"{month}", key="run-again")


API_READS: Final = api_reads(uid="uid-team-a-train")


class _Forms(HTMLParser):
    """The forms and links of a page: `forms` as (method, action, fields with their values)."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.forms: list[tuple[str, str, dict[str, str]]] = []
        self.links: set[str] = set()
        self._select = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        elif tag == "form":
            self.forms.append((found.get("method", "get"), found.get("action", ""), {}))
        elif tag == "option" and self._select and self.forms:
            if "selected" in found or not self.forms[-1][2][self._select]:
                self.forms[-1][2][self._select] = found.get("value", "")
        elif found.get("name") and tag in {"input", "select", "textarea", "button"} and self.forms:
            self._select = found["name"] if tag == "select" else ""
            self.forms[-1][2][found["name"]] = found.get("value", "")


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of parameters that views have looked up."""
    found: set[str] = set()
    for method in ("__getitem__", "__contains__", "_getlist"):
        original = getattr(QueryDict, method)

        def noted(self: Any, key: Any, *rest: Any, _original: Any = original, **more: Any) -> Any:
            if isinstance(key, str):
                found.add(key)
            return _original(self, key, *rest, **more)

        monkeypatch.setattr(QueryDict, method, noted)
    return found


@pytest.fixture(autouse=True)
def things_of_an_administrator(people: dict[str, User]) -> None:
    """Make the objects for which the pages of an account have forms."""
    now, admin = timezone.now(), people["admin"]
    make_token(admin, "mine", now)
    admin.set_password("x")  # rolled back in the database, which alone counts
    admin.save(update_fields=["password"])
    owned = {"owner": admin, "created_at": now, "since": now}
    Subscription.objects.create(event="job-ended", channel="mail", **owned)


@pytest.fixture(autouse=True)
def actions(people: dict[str, User], settings: Any) -> None:
    """Let people change jobs here, in a cluster that does not answer."""
    settings.ACTIONS = True
    settings.ACTIONS_USERS = {people["admin"].get_username(): "root@lab"}
    settings.KUBECONFIG = "/nowhere/kubeconfig"
    settings.SECURE_SSL_REDIRECT = False


def _text(answer: HttpResponseBase) -> str:
    body = b"".join(answer) if answer.streaming else answer.content
    return body.decode(errors="replace")


def _said(answer: HttpResponseBase, html: str) -> str:
    """Return a refusal's text."""
    if not answer["Content-Type"].startswith("text/html"):
        return html
    main = html.partition("<main")[2] or html
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", main)))


def _check(answer: HttpResponseBase, name: str, value: str) -> None:
    """No fault of ours; a refusal names the parameter and says something; markup stays text."""
    text = _text(answer)
    kind = answer.get("Content-Type", "")
    away = answer.status_code == 503 and "not" in text  # the proxy or cluster, named in words
    assert answer.status_code in {200, 302, 400, 404} or away, (name, value, text[:400])
    assert not (kind.startswith("text/html") and "<script>alert" in text), (name, value)
    if answer.status_code == 400:
        message = _said(answer, text)
        words = {name, name.replace("_", " "), *(["range"] if name in _RANGE else [])}
        assert any(word.lower() in message.lower() for word in words), (name, value, message)


@pytest.mark.parametrize("page", pages())
def test_every_parameter_of_a_page_is_understood_or_refused_by_its_name(
    page: str, people: dict[str, User], looked_up: set[str]
) -> None:
    address = pages()[page]
    client = browser(people["admin"])
    looked_up.clear()
    first = client.get(address)
    html = _text(first)
    names = _OF_EVERY_PAGE | looked_up
    if first.get("Content-Type", "").startswith("text/html"):
        seen = _Forms(html)
        for method, action, fields in seen.forms:
            names |= set(fields) if method == "get" and action in {"", address} else set()
        queries = [link.query for link in map(urlsplit, seen.links) if link.path in {"", address}]
        names |= {key for query in queries for key, _ in parse_qsl(query)}
    if page not in _OF_OTHERS:
        refused = client.get(f"{address}?{_UNREAD}=1")
        assert refused.status_code == 400, "a parameter that nothing reads is ignored"
        assert _UNREAD in _said(refused, _text(refused))
    for number in ("abc", "-3", "0") if PAGE in looked_up else ():
        assert client.get(f"{address}?{PAGE}={number}").status_code == 400, number
    turn = [*pages()].index(page)
    for number, name in enumerate(sorted(names)):
        for value in odd_values(turn + number):
            part = {"HX-Request": "true"} if value == _MARKUP else {}
            url = f"{address}?{urlencode({name: value})}"
            _check(client.get(url, headers=part), name, value)
            if name != _UNREAD and name not in looked_up:
                break  # its value makes no difference


@pytest.mark.parametrize("name", API_READS)
def test_a_read_of_the_api_refuses_a_parameter_that_nothing_reads(
    name: str, people: dict[str, User]
) -> None:
    refused = api_client(people["admin"]).get(f"{API_READS[name]}?{_UNREAD}=1")
    assert refused.status_code == 400
    assert {_UNREAD, "unknown"} <= set(re.findall(r"\w+", refused.json()["detail"]))


def test_the_pages_of_the_url_table_are_found() -> None:
    found = set(pages())
    assert {"overview", "jobs:list", "jobs:act", "usage:month", "login", "audit"} <= found
    assert len(found) > 35


FORMS: Final = {
    "/login/": {"username": "alice", "password": "x", "next": "/jobs/"},
    "/account/tokens/": {"name": "ci", "days": "30", "scopes": "read"},
    "/account/users/": {"user": "alice", "role": "viewer", "namespace": "team-a"},
    "/account/notifications/": {
        "event": "job-ended", "channel": "mail", "target": "", "job_user": "alice", "group": "ml",
        "namespace": "team-a", "minutes": "5",
    },
    "/usage/rates/": {
        "resource": "cpu", "name": "", "price": "0.25", "valid_from": "2126-01-01",
        "valid_until": "2126-02-01", "save": "yes",
    },
    "/usage/reports/range/": {
        "from": "2026-10-01", "to": "2026-10-03", "kind": "summary", "profile": "default",
    },
}  # fmt: skip
"""What is sent beside the odd value, where a form on a page is empty."""


def forms(client: Client) -> dict[tuple[str, frozenset[str]], dict[str, str]]:
    """The forms of all pages that are sent by POST: their fields with values, by address and names
    of fields: two forms may have one address, and a field of one may refuse all of the other."""
    found: dict[tuple[str, frozenset[str]], dict[str, str]] = {}
    for address in pages().values():
        answer = client.get(address)
        if not answer.get("Content-Type", "").startswith("text/html"):
            continue
        for method, action, fields in _Forms(_text(answer)).forms:
            if method.lower() == "post":
                found[action or address, frozenset(fields)] = fields
    return found


def test_every_field_of_a_form_is_understood_or_refused_by_its_name(
    people: dict[str, User],
) -> None:
    seen = forms(browser(people["admin"])) | forms(Client())
    seen["/jobs/uid-team-a-train/do/scale/", frozenset({"instances"})] = {"instances": "2"}
    addresses = {address for address, _names in seen}
    assert {*FORMS, "/jobs/new/", "/account/password/", "/logout/"} <= addresses
    assert sum(map(len, seen.values())) > 40
    for turn, ((address, _names), fields) in enumerate(seen.items()):
        given = fields | FORMS.get(address, {})
        for name, value in (
            (name, value)
            for number, name in enumerate(sorted(given), turn)
            for value in (*odd_values(number), "")
        ):
            client = browser(people["admin"])
            answer = client.post(address, given | {name: value})
            text = _text(answer)
            where = (address, name, value, text[:300])
            away = answer.status_code == 503 and "cluster" in text.lower()
            assert answer.status_code in {200, 302, 400, 403, 404, 409, 429} or away, where
            assert "<script>alert" not in text, where
            if answer.status_code == 400:
                assert len(_said(answer, text).split()) > 5, where
