"""io: the webhooks' HTTPS server."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import structlog
from aiohttp import web

from ipuhub import __version__
from ipuhub.process.health import is_client_disconnect
from ipuhub.process.httpbodies import BodyReader, BodyTooLargeError, BodyTooSlowError
from ipuhub.process.metrics import FAST_SECONDS, OTHER, Meters
from ipuhub.times import utc_now
from jobs.ipujob.privileges import PROFILES, Privileges
from jobs.ipujob.spec import UNLIMITED, known_field
from jobs.webhooks.mutating import operations, warnings_of
from jobs.webhooks.review import (
    INTERNAL,
    BadReviewError,
    allowed,
    failed,
    patched,
    read_review,
    refused,
    uid_in,
    unreadable,
)
from jobs.webhooks.validating import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from aiohttp.typedefs import Handler

    from jobs.ipujob.spec import SessionLimits
    from jobs.webhooks.review import Review

WEBHOOKS = Meters()
REVIEWS = WEBHOOKS.counter(
    "ipuhub_webhook_reviews_total",
    "Reviews; webhook: mutate or validate; outcome: allowed, patched, warned, denied, "
    "unreadable, crashed (a bug, see the log; the request was denied).",
    "Are the webhooks called, and how do they answer?",
    "webhook",
    "operation",
    "outcome",
)
DENIALS = WEBHOOKS.counter(
    "ipuhub_webhook_denials_total",
    "Reasons for denials, by field of the IPUJob (other: not about a field). A review can have "
    "several.",
    "What do the webhooks deny?",
    "field",
)
REVIEW_SECONDS = WEBHOOKS.histogram(
    "ipuhub_webhook_review_duration_seconds",
    "Time to answer a review, excluding TLS and transfer.",
    "Do the webhooks slow down kubectl?",
    "webhook",
    buckets=FAST_SECONDS,
)
CERTIFICATE_END = WEBHOOKS.gauge(
    "ipuhub_webhook_certificate_expiry_timestamp_seconds",
    "Expiry time of the serving certificate.",
    "When does the certificate of the webhooks expire?",
)
log = structlog.get_logger(__name__)
MUTATE_PATH: Final = "/mutate-ipujob"
VALIDATE_PATH: Final = "/validate-ipujob"
VERSION_PATH: Final = "/version"
_PATHS: Final = (MUTATE_PATH, VALIDATE_PATH, *(f"{VALIDATE_PATH}/{name}" for name in PROFILES))
_MOST_BYTES: Final = 8 * 2**20  # two objects of the API server's 3 MiB, and the review around them
_BODY_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class WebhookRules:
    """The facts on which answers depend, apart from the request."""

    privileges: Privileges = field(default_factory=Privileges)
    template_schema: Mapping[str, Any] = field(default_factory=dict)
    limits: SessionLimits = UNLIMITED

    def at(self, path: str) -> WebhookRules:
        """The same with the pod profile that a path ends with."""
        label = path.removeprefix(f"{VALIDATE_PATH}/")
        return replace(self, privileges=self.privileges.of_namespace(label))


def webhook_bodies() -> BodyReader:
    """Bodies of reviews: an API server sends them at once."""
    return BodyReader(_MOST_BYTES, 2 * _MOST_BYTES, _BODY_SECONDS)


class GracefulShutdown:
    """The graceful shutdown of a replica: it answers for a while longer, and each answer closes its
    connection.

    API servers keep their connections and learn of the shutdown with a delay: without this,
    requests that they send meanwhile would be refused.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self.problem = ""
        self._seconds = seconds

    async def wait(self) -> None:
        """Begin the shutdown, and return when no API server should call this replica any more."""
        self.problem = "this replica is shutting down"
        await asyncio.sleep(self._seconds)

    @web.middleware
    async def end_connections(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Have callers connect again once it goes: to another replica."""
        response = await handler(request)
        if self.problem:
            response.force_close()
        return response


def build_app(
    rules: WebhookRules, bodies: BodyReader | None = None, departure: GracefulShutdown | None = None
) -> web.Application:
    """The webhooks; every answer to a review is an AdmissionReview, also to nonsense. `/version`
    says the release, for replicas without a Lease that could say it."""

    bodies = bodies or webhook_bodies()

    async def handle(request: web.Request) -> web.Response:
        try:
            data = await bodies.read(request)
        except BodyTooLargeError as error:
            return web.json_response(unreadable(str(error), uid_in(error.head)))
        except BodyTooSlowError as error:
            raise web.HTTPRequestTimeout(text=str(error), headers={"Connection": "close"}) from None
        except ConnectionError as error:
            if is_client_disconnect(request, error):
                return web.Response()  # the client is gone
            raise
        return web.json_response(respond(request.path, data, rules))

    async def version(_request: web.Request) -> web.Response:
        return web.json_response({"version": __version__})

    ending = (departure or GracefulShutdown()).end_connections
    app = web.Application(client_max_size=bodies.most_bytes, middlewares=[ending])
    app.add_routes([web.post(path, handle) for path in _PATHS])
    app.add_routes([web.get(VERSION_PATH, version)])
    return app


def respond(path: str, data: bytes, rules: WebhookRules) -> dict[str, Any]:
    """Return the AdmissionReview that answers the body `data` at `path`, and count it."""
    began = time.perf_counter()
    operation, answer = _respond(path, data, rules.at(path))
    webhook = "mutate" if path == MUTATE_PATH else "validate"
    REVIEW_SECONDS.labels(webhook).observe(time.perf_counter() - began)
    count_review(webhook, operation, answer["response"], rules.template_schema)
    return answer


def _respond(path: str, data: bytes, rules: WebhookRules) -> tuple[str, dict[str, Any]]:
    """The operation of the review (empty: not readable), and the answer."""
    try:
        review = read_review(json.loads(data))
    except BadReviewError as error:
        return "", unreadable(str(error), error.uid)
    except ValueError:
        return "", unreadable("the body is not valid JSON", uid_in(data))
    except RecursionError:
        return "", unreadable("the body is nested too deeply", uid_in(data))
    try:
        answer = _mutate(review, rules) if path == MUTATE_PATH else _validate(review, rules)
    except Exception:  # of the outermost loops: every review has an answer
        log.exception("a review failed", uid=review.uid, path=path)
        answer = failed(review)
    return review.operation, answer


def _mutate(review: Review, rules: WebhookRules) -> dict[str, Any]:
    return patched(review.uid, operations(review, rules.limits))


def _validate(review: Review, rules: WebhookRules) -> dict[str, Any]:
    problems = judge(review, rules.privileges, rules.limits)
    if problems:
        return refused(review, problems)
    return allowed(review.uid, warnings=_warnings(review, rules))


def _warnings(review: Review, rules: WebhookRules) -> list[str]:
    spec = review.manifest.get("spec")
    changed = review.operation == "CREATE" or spec != review.old.get("spec")
    is_job = not review.subresource and review.operation in {"CREATE", "UPDATE"}
    if not (is_job and changed and isinstance(spec, dict)):
        return []
    if review.manifest.get("metadata", {}).get("deletionTimestamp"):
        return []
    return warnings_of(spec, rules.template_schema, rules.limits)


def server_context() -> ssl.SSLContext:
    """TLS of the webhooks, without a certificate yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def expired(end: datetime, now: datetime) -> str:
    """The sentence about a certificate that is good until `end`; empty: it still is."""
    if now < end:
        return ""
    return f"the certificate expired on {end:%Y-%m-%d %H:%M} UTC: API servers refuse it, renew it"


class Certificate:
    """A server certificate that follows its files without a restart.

    `problem` says why a changed pair is not in use (the last good pair stays), or that the current
    pair has expired; empty: all is well.
    """

    def __init__(
        self, certificate: Path, key: Path, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self.problem = ""
        self._clock = clock
        self._files = (certificate, key)
        self._seen: tuple[tuple[int, int], ...] = ()
        self.context = server_context()
        self._load()

    def _load(self) -> None:
        seen = self._stamps()
        # A fresh context is tried first: a failed load would leave the used one half changed.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
        self.context.load_cert_chain(*self._files)
        self._seen = seen
        self._end = self.ends_at()

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        stats = [path.stat() for path in self._files]
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in stats)

    def ends_at(self) -> datetime:
        """Return when the certificate in use expires, by its file. Raises OSError and
        ValueError."""
        from cryptography.x509 import load_pem_x509_certificate  # seldom, and slow to load

        return load_pem_x509_certificate(self._files[0].read_bytes()).not_valid_after_utc

    def fill_metrics(self) -> None:
        """Say when it ends."""
        CERTIFICATE_END.set(self.ends_at().timestamp())

    def refresh(self) -> bool:
        """Load changed files; return whether new files are in use now."""
        try:
            if self._stamps() == self._seen:
                self._judge_end()
                return False
            self._load()
        except (OSError, ssl.SSLError) as error:
            if not self.problem:
                log.warning("the new certificate is not usable", problem=str(error))
            self.problem = f"the changed certificate is not usable: {error}"
            return False
        self.problem = ""
        log.info("certificate reloaded")
        self._judge_end()
        return True

    def _judge_end(self) -> None:
        problem = expired(self._end, self._clock())
        if problem and not self.problem:
            log.warning("the certificate has expired", problem=problem)
        self.problem = problem

    async def follow(self, every_seconds: float) -> None:
        """Reload changed files, forever."""
        while True:
            self.refresh()
            await asyncio.sleep(every_seconds)


_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


def count_review(
    webhook: str, operation: str, response: Mapping[str, Any], template_schema: Mapping[str, Any]
) -> None:
    """Count an answer; invalid requests create no new labels."""
    known = operation if operation in _OPERATIONS else OTHER
    REVIEWS.labels(webhook, known, outcome_of(response)).inc()
    for name in denied_fields(response):
        DENIALS.labels(known_field(name, template_schema) or OTHER).inc()


def outcome_of(response: Mapping[str, Any]) -> str:
    """Return the outcome of a response, for the metric."""
    if not response["allowed"]:
        if response["status"]["code"] == INTERNAL:
            return "crashed"
        return "denied" if "causes" in response["status"].get("details", {}) else "unreadable"
    if "patch" in response:
        return "patched"
    return "warned" if response.get("warnings") else "allowed"


def denied_fields(response: Mapping[str, Any]) -> list[str]:
    """The fields that a refusal names."""
    causes = response.get("status", {}).get("details", {}).get("causes", ())
    return [cause["field"] for cause in causes]
