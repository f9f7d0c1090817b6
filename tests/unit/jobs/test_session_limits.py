"""The duration of interactive jobs: the administrator's default and maximum."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from devcluster.storage.patch import json_patch
from jobs.ipujob.privileges import Privileges
from jobs.ipujob.spec import SessionLimits, parse_spec
from jobs.ipujob.validation import problems
from jobs.management.commands.run_operator import operator_options
from jobs.management.commands.run_webhooks import webhook_rules
from jobs.operator.actions import PatchStatus
from jobs.operator.plan import plan
from jobs.webhooks.mutating import operations
from jobs.webhooks.review import Review
from jobs.webhooks.validating import judge
from tests.builders.ipujobs import at, ipujob, launcher, worker
from tests.builders.jobpods import worker_of
from tests.builders.plans import condition_of, created, status_of, with_partition

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

    from jobs.operator.observed import Observed
    from tests.builders.ipujobs import IPUJobBuilder

HOUR = 3600
LIMITS = SessionLimits(default_seconds=HOUR, maximum_seconds=2 * HOUR)
BEGAN = 1  # second at which the builders' running launcher began


def unsaid() -> IPUJobBuilder:
    return ipujob().without_launcher().with_spec(interactive={})


def problem_texts(job: IPUJobBuilder, limits: SessionLimits) -> list[str]:
    return [str(problem) for problem in problems("sample", job.spec, limits)]


@pytest.mark.parametrize(
    ("ttl", "limits", "want"),
    [
        (2 * HOUR, LIMITS, []),
        (
            2 * HOUR + 1,
            LIMITS,
            ["spec.interactive.ttl: 7201 s exceed the limit of this cluster: use 7200 or less"],
        ),
        (10**9, SessionLimits(), []),
        (10**9, SessionLimits(default_seconds=HOUR), []),
        (0, LIMITS, ["spec.interactive.ttl: 0 is too small: use 1 or more (seconds)"]),
    ],
)
def test_a_session_above_the_maximum_is_refused_with_the_nearest_value(
    ttl: int, limits: SessionLimits, want: list[str]
) -> None:
    assert problem_texts(ipujob().interactive(ttl), limits) == want


def test_a_session_that_says_nothing_lasts_for_the_default() -> None:
    assert problem_texts(unsaid(), LIMITS) == []
    assert parse_spec(unsaid().spec, LIMITS).ttl_seconds == HOUR
    (problem,) = problem_texts(unsaid(), SessionLimits())
    assert problem.startswith("spec.interactive.ttl: is required")


def review(new: dict[str, Any], old: dict[str, Any] | None = None) -> Review:
    operation = "CREATE" if old is None else "UPDATE"
    return Review("u-1", operation, "ipujobs", "", "default", "ada", new, old or {})


def test_the_webhook_writes_the_default_and_never_over_what_is_written() -> None:
    job = json_patch(unsaid().build(), operations(review(unsaid().build()), LIMITS))
    assert job["spec"]["interactive"] == {"ttl": HOUR}
    assert operations(review(job), LIMITS)[1:] == []
    longer = ipujob().interactive(5 * HOUR).build()
    kept = json_patch(longer, operations(review(longer), LIMITS))
    assert kept["spec"]["interactive"] == {"ttl": 5 * HOUR}
    batch = ipujob().build()
    assert "interactive" not in json_patch(batch, operations(review(batch), LIMITS))["spec"]


def test_the_webhook_refuses_a_session_above_the_maximum_also_as_an_edit() -> None:
    short, long = ipujob().interactive(HOUR).running(), ipujob().interactive(3 * HOUR).running()
    for old in (None, short.build()):
        (problem,) = judge(review(long.build(), old), Privileges(), LIMITS)
        assert problem.field == "spec.interactive.ttl"
    assert judge(review(short.build(), long.build()), Privileges(), LIMITS) == []


def test_an_edit_of_a_running_session_that_says_nothing_is_no_change_of_its_shape() -> None:
    old = unsaid().running()
    new = unsaid().running().with_spec(suspend=True)
    assert judge(review(new.build(), old.build()), Privileges(), LIMITS) == []


def test_without_webhooks_a_session_above_the_maximum_is_not_begun() -> None:
    planned = plan(with_partition(ipujob().interactive(3 * HOUR), limits=LIMITS), at(1))
    assert created(planned) == []
    kind, reason, message = condition_of(planned)
    assert (kind, reason) == ("Pending", "InvalidSpec")
    assert "use 7200 or less" in message


def test_without_webhooks_a_session_that_says_nothing_begins_with_the_default() -> None:
    planned = plan(with_partition(unsaid(), limits=LIMITS), at(1))
    assert created(planned) == ["Pod sample-worker-0", "Pod sample-launcher"]


def running(*, begun_with: int, written: int) -> Observed:
    """A session whose pods were made of another ttl than its spec has now."""
    before, now = ipujob().interactive(begun_with), ipujob().interactive(written).running()
    manifest = before.build()
    stamp = worker_of(before)["metadata"]["annotations"]
    pods = [launcher(manifest).running(), worker(manifest).running()]
    for pod in pods:
        pod.manifest["metadata"]["annotations"] = stamp
    return with_partition(now, *pods, limits=LIMITS)


@pytest.mark.parametrize(
    ("begun_with", "written", "want_seconds"),
    [
        pytest.param(HOUR, 2 * HOUR, 2 * HOUR, id="made longer as far as it may"),
        pytest.param(HOUR, 9 * HOUR, 2 * HOUR, id="made too long: it ends at the maximum"),
        pytest.param(5 * HOUR, 5 * HOUR, 5 * HOUR, id="begun before the maximum: as promised"),
        pytest.param(5 * HOUR, 9 * HOUR, 5 * HOUR, id="begun before, made longer: as promised"),
        pytest.param(5 * HOUR, 3 * HOUR, 3 * HOUR, id="begun before, made shorter: as written"),
        pytest.param(HOUR, 0, HOUR, id="made nonsense: as begun"),
    ],
)
def test_a_running_session_ends_at_the_maximum_or_as_it_was_promised(
    begun_with: int, written: int, want_seconds: int
) -> None:
    seen = running(begun_with=begun_with, written=written)
    assert "launcherStatus" not in status_of(plan(seen, at(BEGAN + want_seconds - 1)))
    assert status_of(plan(seen, at(BEGAN + want_seconds)))["launcherStatus"] == "Completed"


def test_a_running_session_that_is_made_too_long_says_so() -> None:
    kind, reason, message = condition_of(plan(running(begun_with=HOUR, written=9 * HOUR), at(60)))
    assert (kind, reason) == ("Running", "InvalidSpec")
    assert message.endswith("32400 s exceed the limit of this cluster: use 7200 or less")


def test_who_is_in_a_session_that_was_made_too_long_is_warned_of_its_end_once() -> None:
    seen = running(begun_with=HOUR, written=9 * HOUR)
    planned = plan(seen, at(BEGAN + 2 * HOUR - 300))
    (patch,) = [action for action in planned.actions if isinstance(action, PatchStatus)]
    assert [event.reason for event in patch.events][-1] == "SessionEnding"
    job = {**(seen.job or {}), "status": {**seen.status(), **patch.status}}
    assert plan(replace(seen, job=job), at(BEGAN + 2 * HOUR - 290)).actions == ()


def test_operator_and_webhooks_read_the_same_settings(settings: SettingsWrapper) -> None:
    settings.SESSION_DEFAULT_SECONDS, settings.SESSION_MAXIMUM_SECONDS = 60, 600
    assert webhook_rules().limits == operator_options().limits == SessionLimits(60, 600)


def test_a_session_above_the_maximum_still_goes_when_it_is_deleted() -> None:
    seen = replace(
        with_partition(ipujob().interactive(9 * HOUR).deleted(), limits=LIMITS), children={}
    )
    assert [step.name for step in plan(seen, at(1)).steps] == ["release"]
