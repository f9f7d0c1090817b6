"""Navigation: rights are checked once for a page and never for a fragment."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser
from django.template import Context, Template
from django.test import RequestFactory

from dashboard import nav


@pytest.mark.parametrize(
    ("template", "want"),
    [
        ("", 0),
        ("{% for item in nav %}{{ item.0 }}{% endfor %}", 1),
        ("{% for item in nav %}{% endfor %}{% for item in nav %}{% endfor %}", 1),
    ],
)
def test_a_page_computes_its_navigation_once_however_often_it_names_it(
    monkeypatch: pytest.MonkeyPatch, template: str, want: int
) -> None:
    users = []
    monkeypatch.setattr(nav, "is_accountant", lambda user: users.append(user) or False)
    request = RequestFactory().get("/")
    request.user, request.resolver_match = AnonymousUser(), None
    Template(template).render(Context(nav.navigation(request)))
    own = [each for each in nav.ENTRIES if each.accountants_only]
    assert len(users) == want * len(own)
    assert own
