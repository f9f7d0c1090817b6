"""The table of addresses with an example of each, for the test that sends strangers to all.

`EXAMPLES` has one entry per name of the URL table: arguments, queries or a form, and the statuses
that each caller gets. The test fails for an address without an example.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from django.urls import URLResolver, get_resolver, reverse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

UID: Final = "uid-team-a-secret-plan"


class Answers(NamedTuple):
    """The status that each caller gets."""

    nobody: int
    stranger: int
    other: int
    owner: int
    accountant: int
    admin: int


LIKE: Final = {"viewer": "owner", "reader": "owner", "steward": "owner", "bookkeeper": "stranger"}
"""What other roles get: viewer and administrator (steward) of team-a and a viewer of everything
(reader) as its operator (owner); an accountant of team-a (bookkeeper) as a stranger."""


def _open(status: int = 200) -> Answers:
    return Answers(*[status] * 6)


def _page(*five: int) -> Answers:
    return Answers(302, *five)  # to the sign-in page


def _api(*five: int) -> Answers:
    return Answers(401, *five)


OF_ALL: Final = _page(200, 200, 200, 200, 200)
OF_NAMESPACE: Final = _page(404, 404, 200, 404, 200)
OF_ADMINS: Final = _page(403, 403, 403, 403, 200)
OF_ACCOUNTANTS: Final = _page(403, 403, 403, 200, 200)
API_OF_ALL: Final = _api(200, 200, 200, 200, 200)
API_OF_NAMESPACE: Final = _api(404, 404, 200, 404, 200)
API_OF_ADMINS: Final = _api(403, 403, 403, 403, 200)
API_OF_ACCOUNTANTS: Final = _api(403, 403, 403, 200, 200)


def accountants_get(status: int) -> Answers:
    """A call that accountants may make, and that then answers this."""
    return _api(403, 403, 403, status, status)


@dataclass(frozen=True)
class Example:
    """A call of an address, and its expected answer."""

    answers: Answers
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of the URL; `{token}`, `{rate}`, `{run}` and `{subscription}`: the key of such a row."""
    queries: tuple[str, ...] = ("",)
    form: Mapping[str, str] | None = None
    """What a POST sends; None: a GET."""
    tells: frozenset[str] = frozenset({"owner", "admin"})
    """Who may read the name of team-a's job in it, where the answer is 200."""
    is_page: bool = False
    """Whether it is a page although it is below /api/."""
    is_personal: bool = False
    """Whether it is about a thing of the owner himself: every other role is a stranger to it."""
    sends_token: bool = False
    """Whether callers send a token outside of the API, too."""
    also: Mapping[str, int] = field(default_factory=dict)
    """What single roles of LIKE get that is not as LIKE says."""

    def answer_to(self, caller: str) -> int:
        """Return the status that a caller gets."""
        if caller in self.also:
            return self.also[caller]
        like = "stranger" if self.is_personal and caller in LIKE else LIKE.get(caller, caller)
        return int(getattr(self.answers, like))

    def tells_to(self, caller: str) -> bool:
        """Return whether a caller may read the name of team-a's job in it."""
        like = "accountant" if caller == "bookkeeper" else LIKE.get(caller, caller)
        return like in self.tells


_FILES: Final = ("", "?format=csv", "?format=jsonl")
_JOB: Final = {"uid": UID}
_MONTH: Final = {"month": "2026-10"}
_CSV: Final = {"form": "csv"}
_ANY_NAMESPACE: Final = frozenset({"owner", "accountant", "admin"})
_USAGE: Final = {"tells": _ANY_NAMESPACE}
_BOOKKEEPERS: Final = {"steward": 404, "bookkeeper": 404}  # they may, and there is no report


_PROBES: Final = {
    "healthz": Example(_open()),
    "readyz": Example(_open()),
    "usage:primehub-health": Example(_open()),
    "metrics": Example(API_OF_ADMINS, sends_token=True),
}
_SIGN_IN: Final = {
    "login": Example(_open()),
    "logout": Example(_open(302), form={}),
    "oidc-start": Example(_open(404)),  # no provider is configured
    "oidc-callback": Example(_open(404)),
    "oidc-backchannel-logout": Example(_open(404), form={}),
    "account-tokens": Example(OF_ALL, queries=_FILES),
    "account-token-revoke": Example(
        _page(404, 404, 302, 404, 404), {"number": "{token}"}, form={}, is_personal=True
    ),
    "account-password": Example(OF_ALL),
    "account-users": Example(OF_ADMINS, queries=_FILES),
    "account-user-token-revoke": Example(
        _page(403, 403, 403, 403, 302), {"number": "{token}"}, form={}
    ),
    "account-notifications": Example(OF_ALL, tells=frozenset({"owner"})),
    "account-subscription": Example(
        _page(404, 404, 302, 404, 404),
        {"number": "{subscription}", "change": "pause"},
        form={},
        is_personal=True,
    ),
    "api-notifications": Example(API_OF_ALL),
    "api-notifications-file": Example(API_OF_ALL, _CSV),
    "api-subscriptions": Example(API_OF_ALL),
    "api-subscriptions-file": Example(API_OF_ALL, _CSV),
    "api-subscription": Example(
        _api(404, 404, 200, 404, 404), {"pk": "{subscription}"}, is_personal=True
    ),
    "api-subscription-test": Example(
        _api(404, 404, 202, 404, 404), {"pk": "{subscription}"}, form={}, is_personal=True
    ),
    "api-subscription-retry": Example(
        _api(404, 404, 202, 404, 404), {"pk": "{subscription}"}, form={}, is_personal=True
    ),
    "api-users": Example(API_OF_ADMINS),
    "api-users-file": Example(API_OF_ADMINS, _CSV),
    "api-role-grant": Example(_api(403, 403, 403, 403, 400), form={}),
    "api-role-revoke": Example(_api(403, 403, 403, 403, 400), form={}),
    "api-tokens": Example(API_OF_ALL),
    "api-tokens-file": Example(API_OF_ALL, _CSV),
    "api-token": Example(_api(404, 404, 200, 404, 404), {"pk": "{token}"}, is_personal=True),
    "api-user-token": Example(API_OF_ADMINS, {"pk": "{token}"}),
    "role-changes": Example(OF_ADMINS, queries=_FILES),
    "api-role-changes": Example(API_OF_ADMINS),
    "api-role-changes-file": Example(API_OF_ADMINS, _CSV),
}
_ACTION_API: Final = _api(404, 404, 403, 404, 403)  # actions are off here
_JOBS: Final = {
    "overview": Example(OF_ALL),
    "jobs:list": Example(OF_ALL, queries=_FILES),
    "jobs:suggestions": Example(OF_ALL),
    "jobs:detail": Example(OF_NAMESPACE, _JOB),
    "jobs:logs": Example(OF_NAMESPACE, _JOB, queries=("", "?lines=1000&q=x&previous=on")),
    "jobs:named": Example(
        _page(404, 404, 302, 404, 302), {"namespace": "team-a", "name": "secret-plan"}
    ),
    "jobs:pods": Example(OF_NAMESPACE, _JOB),
    "jobs:events": Example(OF_NAMESPACE, _JOB),
    "jobs:yaml": Example(OF_NAMESPACE, _JOB),
    "jobs:usage": Example(OF_NAMESPACE, _JOB),
    "help": Example(OF_ALL),
    "search": Example(OF_ALL, queries=("?q=secret-p", "?q=team-a")),
    "api-search": Example(API_OF_ALL, queries=("?q=secret-p", "?q=team-a")),
    "jobs": Example(API_OF_ALL, queries=("", "?namespace=")),
    "job-suspend": Example(_ACTION_API, _JOB, form={}),
    "job-resume": Example(_ACTION_API, _JOB, form={}),
    "job-cancel": Example(_ACTION_API, _JOB, form={}),
    "job-scale": Example(_ACTION_API, _JOB, form={}),
    "job-run-again": Example(_ACTION_API, _JOB, form={}),
    "jobs:create": Example(_page(403, 403, 403, 403, 403)),
    "jobs:act": Example(_page(404, 404, 403, 404, 403), {**_JOB, "key": "suspend"}),
    "audit": Example(OF_ALL, queries=_FILES),
    "api-audit": Example(API_OF_ALL),
    "api-audit-file": Example(API_OF_ALL, _CSV),
    "jobs-file": Example(API_OF_ALL, _CSV),
    "jobs-api:detail": Example(API_OF_NAMESPACE, _JOB),
    "job-pods": Example(API_OF_NAMESPACE, _JOB),
    "job-pods-file": Example(API_OF_NAMESPACE, {**_JOB, **_CSV}),
    "job-events": Example(API_OF_NAMESPACE, _JOB),
    "job-events-file": Example(API_OF_NAMESPACE, {**_JOB, **_CSV}),
    "job-timeline": Example(API_OF_NAMESPACE, _JOB),
    "job-timeline-file": Example(API_OF_NAMESPACE, {**_JOB, **_CSV}),
    "job-manifest": Example(API_OF_NAMESPACE, _JOB),
    "job-logs": Example(_api(404, 404, 503, 404, 503), _JOB),  # no cluster here
    "job-waiting": Example(API_OF_NAMESPACE, _JOB),
    "job-usage": Example(API_OF_NAMESPACE, _JOB),
}
_MACHINE: Final = {"controller": "vipu-1", "name": "ag0"}
_API_MACHINE: Final = {"controller": "vipu-1", "machine": "ag0"}
_FLEET: Final = {
    "queue": Example(OF_ALL, queries=("?page=2", *_FILES)),
    "api-queue": Example(API_OF_ALL),
    "api-queue-file": Example(API_OF_ALL, _CSV),
    "fleet": Example(OF_ALL),
    "fleet-table": Example(OF_ALL, queries=_FILES),
    "machine": Example(OF_ALL, _MACHINE),
    "ipu": Example(OF_ALL, {**_MACHINE, "position": 0}),
    "api-machine": Example(API_OF_ALL, _API_MACHINE),
    "api-ipu": Example(API_OF_ALL, {**_API_MACHINE, "position": 0}),
    "system": Example(OF_ADMINS),
    "health-dot": Example(OF_ALL),
    "partitions:list": Example(OF_ALL, queries=_FILES),
    "partitions:stats": Example(OF_ALL, queries=_FILES),
    "partitions:query": Example(OF_ALL),
    "partitions-api:partitions": Example(API_OF_ALL),
    "partitions-api:partitions-file": Example(API_OF_ALL, _CSV),
    "partitions-api:stats": Example(API_OF_ALL),
    "partitions-api:capacity": Example(API_OF_ADMINS),
    "partitions-api:query": Example(_api(400, 400, 400, 400, 400), form={}),
    "api-fleet": Example(API_OF_ALL),
    "api-components": Example(API_OF_ADMINS),
    "api-system": Example(API_OF_ADMINS),
    "api-schema": Example(API_OF_ALL),
    "api-index": Example(API_OF_ALL),
    "api-reference": Example(OF_ALL, is_page=True),
    "utilization": Example(OF_ADMINS),
    "utilization-chart": Example(OF_ADMINS),
    "utilization-week": Example(OF_ADMINS),
}
_SUMS: Final = {
    "usage:month": Example(
        OF_ALL, queries=("", "?by=namespace&format=csv", "?format=json"), **_USAGE
    ),
    "usage:chart": Example(OF_ALL, **_USAGE),
    "usage:lifetimes": Example(OF_ALL, queries=_FILES, **_USAGE),
    "usage:faults": Example(OF_ACCOUNTANTS, **_USAGE),
    "usage:gaps": Example(OF_ALL, queries=_FILES),
    "usage-partitions": Example(API_OF_ALL, **_USAGE),
    "usage-partitions-file": Example(API_OF_ALL, _CSV, **_USAGE),
    "usage-api:summary": Example(API_OF_ALL, queries=("", "?by=component"), **_USAGE),
    "usage-api:summary-file": Example(API_OF_ALL, _CSV, **_USAGE),
    "usage-api:series": Example(API_OF_ALL, **_USAGE),
    "usage-api:series-file": Example(API_OF_ALL, _CSV, **_USAGE),
    "usage-api:capacity": Example(API_OF_ADMINS),
    "usage-api:capacity-file": Example(API_OF_ADMINS, _CSV),
    "usage-api:capacity-week": Example(API_OF_ADMINS),
    "usage-api:capacity-week-file": Example(API_OF_ADMINS, _CSV),
    "usage-api:lifetimes": Example(API_OF_ALL, queries=_FILES, **_USAGE),
    "usage-api:lifetimes-file": Example(API_OF_ALL, _CSV, **_USAGE),
    "usage-api:faults": Example(API_OF_ACCOUNTANTS, **_USAGE),
    "usage-api:faults-file": Example(API_OF_ACCOUNTANTS, _CSV, **_USAGE),
    "usage-api:gaps": Example(API_OF_ALL),
    "usage-api:gaps-file": Example(API_OF_ALL, _CSV),
}
_REPORTS: Final = {
    "usage:reports": Example(OF_ACCOUNTANTS),
    "usage:make-reports": Example(_page(403, 403, 403, 302, 302), form={"month": "x"}),
    "usage:make-range": Example(_page(403, 403, 403, 400, 400), form={}),
    "usage:review": Example(_page(403, 403, 403, 302, 302), _MONTH),
    "usage:report-groups": Example(_page(403, 403, 403, 404, 404), _MONTH, also=_BOOKKEEPERS),
    "usage:statement": Example(
        _page(403, 403, 403, 404, 404), _MONTH, queries=("", "?group=ml"), also=_BOOKKEEPERS
    ),
    "usage:rates": Example(OF_ACCOUNTANTS),
    "usage:end-rate": Example(_page(403, 403, 403, 400, 400), {"pk": "{rate}"}, form={}),
    "usage:primehub-months": Example(API_OF_ACCOUNTANTS),
    "usage:primehub-summary": Example(accountants_get(200), {"year": 2026, "number": 10}),
    "usage:primehub-details": Example(accountants_get(200), {"year": 2026, "number": 10}),
    "usage-api:reports": Example(API_OF_ACCOUNTANTS),
    "usage-api:reports-file": Example(API_OF_ACCOUNTANTS, _CSV),
    "usage-api:runs": Example(API_OF_ACCOUNTANTS),
    "usage-api:runs-file": Example(API_OF_ACCOUNTANTS, _CSV),
    "usage-api:run": Example(API_OF_ACCOUNTANTS, {"pk": "{run}"}),
    "usage-api:run-file": Example(accountants_get(404), {"pk": "{run}"}),
    "usage-api:review": Example(accountants_get(400), _MONTH),
    "usage-api:groups": Example(accountants_get(404), _MONTH, also=_BOOKKEEPERS),
    "usage-api:groups-file": Example(accountants_get(404), {**_MONTH, **_CSV}, also=_BOOKKEEPERS),
    "usage-api:statement": Example(
        accountants_get(404), _MONTH, queries=("?group=team-a",), also=_BOOKKEEPERS
    ),
    "usage-api:rates": Example(API_OF_ACCOUNTANTS),
    "usage-api:rates-file": Example(API_OF_ACCOUNTANTS, _CSV),
    "usage-api:rate-preview": Example(accountants_get(400), form={}),
    "usage-api:rate-end": Example(accountants_get(400), {"pk": "{rate}"}, form={}),
    "usage-api:correction-file": Example(accountants_get(404), {"month": "2026-10", "number": 1}),
    "usage-api:report-file": Example(
        accountants_get(200), {"month": "2026-10", "kind": "summary", "form": "csv"}
    ),
}
FORMS: Final = {  # addresses that answer a GET as well
    "jobs": Example(_api(403, 403, 403, 403, 403), form={}),
    "jobs:create": Example(_page(403, 403, 403, 403, 403), form={}),
    "jobs:act": Example(_page(404, 404, 403, 404, 403), {**_JOB, "key": "cancel"}, form={}),
    "account-tokens": Example(_page(400, 400, 400, 400, 400), form={}),
    "account-notifications": Example(_page(400, 400, 400, 400, 400), form={}),
    "api-subscriptions": Example(_api(400, 400, 400, 400, 400), form={}),
    "api-tokens": Example(_api(400, 400, 400, 400, 400), form={}),
    "account-users": Example(_page(403, 403, 403, 403, 400), form={}),
    "account-password": Example(_page(400, 400, 400, 400, 400), form={}),
    "usage:rates": Example(_page(403, 403, 403, 400, 400), form={}),
    "usage-api:rates": Example(accountants_get(400), form={}),
    "usage-api:runs": Example(accountants_get(400), form={"month": "x"}),
}
EXAMPLES: Final[dict[str, Example]] = _PROBES | _SIGN_IN | _JOBS | _FLEET | _SUMS | _REPORTS


_NO_PAGES: Final = ("/api/v1/", "/report/", "/healthz", "/readyz", "/metrics")


def page_addresses(**known: str) -> dict[str, str]:
    """Return the address of each page of the URL table by name; `known`: arguments of addresses."""
    return {name: at for name, at in _reads(known) if not at.startswith(_NO_PAGES)}


def _reads(known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, example in EXAMPLES.items():
        if example.form is not None:
            continue
        given = {key: known.get(key, value) for key, value in example.arguments.items()}
        # A form of a row needs its number, a page does not.
        given = {key: 1 if f"{value}".startswith("{") else value for key, value in given.items()}
        yield name, reverse(name, kwargs=given)


def api_reads(**known: str) -> dict[str, str]:
    """Return the address of each read of the API by name; `known`: arguments of addresses."""
    return {name: at for name, at in _reads(known) if at.startswith("/api/v1/")}


def named_addresses() -> Iterator[tuple[str, str]]:
    """Yield each name of the URL table, with its pattern."""
    yield from _walk(get_resolver(), "", "")


def _walk(resolver: URLResolver, names: str, patterns: str) -> Iterator[tuple[str, str]]:
    for each in resolver.url_patterns:
        pattern = patterns + str(each.pattern)
        if isinstance(each, URLResolver):
            space = f"{names}{each.namespace}:" if each.namespace else names
            yield from _walk(each, space, pattern)
        else:
            yield f"{names}{each.name}", pattern
