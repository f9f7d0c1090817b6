"""What Helm runs for the chart, and what every container asks for. Needs helm, no cluster."""

from __future__ import annotations

import pytest

from tests.chart.rendering import VIPU, named, render
from tests.chart.test_chart_rights import EVERYTHING


def test_every_container_has_requests_and_a_limit() -> None:
    """A ResourceQuota refuses pods without; a hook refused is an uninstallation that fails."""
    for each in render(*EVERYTHING):
        if each["kind"] not in {"Deployment", "StatefulSet", "Job", "Pod"}:
            continue
        (one,) = (each["spec"].get("template") or each)["spec"]["containers"]
        found = one.get("resources", {})
        hook = each["kind"] in {"Job", "Pod"}
        limited = {"cpu", "memory"} if hook else {"memory"}
        assert {*found.get("requests", ())} == {"cpu", "memory"}, each["metadata"]["name"]
        assert {*found.get("limits", ())} == limited, each["metadata"]["name"]


@pytest.mark.parametrize(
    ("values", "release_in", "asked"),
    [
        ((), "ipus", "default"),
        ((), "default", "kube-public"),
        (("controller.namespaces={team-a,team-b}",), "ipus", "team-a"),
        (("admissionWebhooks.scope=team-c\\, team-d",), "ipus", "team-c"),
        (
            ("admissionWebhooks.scope=team-c", "controller.namespaces={team-a}"),
            "ipus",
            "team-c",
        ),
    ],
)
def test_helms_own_test_sends_its_wrong_job_where_the_webhooks_are_asked(
    values: tuple[str, ...], release_in: str, asked: str
) -> None:
    documents = render(VIPU, *values, namespace=release_in)
    (pod,) = named(documents, "Pod").values()
    assert pod["spec"]["containers"][0]["args"][-1] == asked
    configuration = named(documents, "ValidatingWebhookConfiguration")["gc-ipu-operator"]
    for webhook in configuration["webhooks"]:
        chosen = webhook["namespaceSelector"]["matchExpressions"][-1]
        assert (asked in chosen["values"]) is (chosen["operator"] == "In")
