"""Alerts and dashboard of the chart: queries are about metrics that there are, and alerts fire.

promtool evaluates them as Prometheus does, on one sample of each metric of the reference.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
ALERTS = ROOT / "charts/ipuhub/files/alerts.yaml"
DASHBOARD = ROOT / "charts/ipuhub/files/dashboard.json"
REFERENCE = ROOT / "docs/reference/metrics.md"
# Some process of IPUHub is scraped.
SCRAPED = {'ipuhub_ready{namespace="n", container="other", check="cluster"}': "1"}
FIRING = {
    "IPUHubDown": ('up{namespace="n", container="webhook"}', "1x9 stale _"),
    "IPUHubNoMetrics": ('up{namespace="n", container="webhook"}', "1"),
    "IPUHubNotReady": ('ipuhub_ready{namespace="n", container="c", check="proxy"}', "0"),
    "IPUHubNoLeader": ('ipuhub_leader{namespace="n", container="c"}', "0"),
    "IPUHubWebhookUnavailable": (
        'ipuhub_jobs_refused{namespace="n", reason="WebhookUnavailable"}',
        "2",
    ),
    "IPUHubVipuControllerUnreachable": (
        'ipuhub_vipu_controller_reachable{namespace="n", controller="pod001"}',
        "0",
    ),
    "IPUHubVipuOrdersUnanswered": (
        'ipuhub_vipu_circuit_state{namespace="n", calls="create", state="half-open"}',
        "1",
    ),
    "IPUHubPartitionsDiffer": ('ipuhub_drift_partitions{namespace="n", kind="lost"}', "1"),
    "IPUHubRecordingBehind": (
        'ipuhub_recording_position_age_seconds{namespace="n", watch="pods"}',
        "301",
    ),
    "IPUHubRecordingGap": ('ipuhub_recording_gaps{namespace="n", watch="pods"}', "0+1"),
    "IPUHubMonitorStalled": ('ipuhub_monitor_round_age_seconds{namespace="n"}', "301"),
    "IPUHubNotificationsLost": (
        'ipuhub_notification_attempts_total{namespace="n", outcome="dead"}',
        "0+1",
    ),
    "IPUHubNotificationErrors": (
        'ipuhub_notification_errors_total{namespace="n", step="send"}',
        "0+1",
    ),
    "IPUHubCertificateExpires": (
        'ipuhub_webhook_certificate_expiry_timestamp_seconds{namespace="n"}',
        "86400",
    ),
}
HEALTHY = {
    **SCRAPED,
    'up{namespace="n", container="web", pod="a"}': "0",
    'up{namespace="n", container="web", pod="b"}': "1",
    # Of others: no IPUHub runs there.
    'up{namespace="m", container="web"}': "0",
    'up{namespace="m", container="monitor"}': "1x9 stale _",
    'ipuhub_ready{namespace="n", container="c", check="proxy", pod="leads"}': "1",
    'ipuhub_ready{namespace="n", container="c", check="proxy", pod="stands by"}': "0",
    'ipuhub_leader{namespace="n", container="c", pod="leads"}': "1",
    'ipuhub_leader{namespace="n", container="c", pod="stands by"}': "0",
    'ipuhub_jobs_refused{namespace="n", reason="QuotaExceeded"}': "2",
    'ipuhub_vipu_controller_reachable{namespace="n", controller="pod001"}': "1",
    'ipuhub_vipu_circuit_state{namespace="n", controller="pod001", calls="create", '
    'state="open"}': "0",
    'ipuhub_vipu_circuit_state{namespace="n", controller="pod001", calls="all", state="open"}': "1",
    'ipuhub_drift_partitions{namespace="n", kind="untracked"}': "1",
    'ipuhub_recording_position_age_seconds{namespace="n", watch="pods"}': "60",
    'ipuhub_recording_gaps{namespace="n", watch="pods"}': "3",
    'ipuhub_monitor_round_age_seconds{namespace="n"}': "60",
    'ipuhub_notification_attempts_total{namespace="n", outcome="retried"}': "0+1",
    'ipuhub_notification_attempts_total{namespace="n", outcome="dead"}': "3",
    'ipuhub_notification_errors_total{namespace="n", step="send"}': "3",
    'ipuhub_webhook_certificate_expiry_timestamp_seconds{namespace="n"}': "9000000",
}


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def queries() -> dict[str, str]:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return {
        f"{panel['title']} {target['refId']}": target["expr"].replace("$__rate_interval", "5m")
        for panel in panels
        for target in panel["targets"]
    }


def metrics() -> dict[str, tuple[str, list[str]]]:
    """Type and labels of each metric of the reference, by name."""
    rows = re.findall(
        r"^\| [^|]+ \| `(\w+)` \| (\w+) \| ([^|]*) \|", REFERENCE.read_text("utf-8"), re.MULTILINE
    )
    return {name: (kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in rows}


def one_sample_each() -> list[dict[str, str]]:
    """A growing series of each metric, with all its labels."""
    found = []
    for name, (kind, labels) in metrics().items():
        given = [f'{label}="x"' for label in {"namespace", "container", *labels}]
        bucket = ['le="1"'] if kind == "histogram" else []
        series = f"{name}_bucket" if bucket else name
        falling = "0x60" if name == "ipuhub_ready" else "1+1x60"
        found.append({"series": f"{series}{{{', '.join(given + bucket)}}}", "values": falling})
    return found


def for_an_hour(given: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": series, "values": f"{value}x60"} for series, value in given.items()]


def is_firing(name: str) -> str:
    return f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) > 0 or vector(0)'


def evaluate(
    folder: Path, rules: dict[str, Any], series: list[dict[str, str]], expected: dict[str, bool]
) -> None:
    """Let promtool say which of these alerts fire after an hour; `expected`: by name."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    about = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": is_firing(name),
                        "eval_time": "59m",
                        "exp_samples": [{"labels": "{}", "value": int(fires)}],
                    }
                    for name, fires in expected.items()
                ],
            }
        ],
    }
    (folder / "tests.yaml").write_text(yaml.safe_dump(about), encoding="utf-8")
    done = subprocess.run(
        ["promtool", "test", "rules", "tests.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_alone(tmp_path: Path) -> None:
    assert set(FIRING) == set(alerts())
    rules = yaml.safe_load(ALERTS.read_text("utf-8"))
    for name, (series, value) in FIRING.items():
        folder = tmp_path / name
        folder.mkdir()
        given = {series: value} | ({} if name == "IPUHubNoMetrics" else SCRAPED)
        evaluate(folder, rules, for_an_hour(given), {each: each == name for each in FIRING})


def test_a_component_whose_pods_are_there_and_answer_nothing_is_down(tmp_path: Path) -> None:
    rules = yaml.safe_load(ALERTS.read_text("utf-8"))
    silent = {f'up{{namespace="n", container="vipu-proxy", pod="{pod}"}}': "0" for pod in "ab"}
    expected = {each: each == "IPUHubDown" for each in FIRING}
    evaluate(tmp_path, rules, for_an_hour(SCRAPED | silent), expected)


def test_nothing_fires_while_all_is_well(tmp_path: Path) -> None:
    rules = yaml.safe_load(ALERTS.read_text("utf-8"))
    evaluate(tmp_path, rules, for_an_hour(HEALTHY), dict.fromkeys(FIRING, False))


def test_each_panel_of_the_dashboard_shows_something(tmp_path: Path) -> None:
    rules = [
        {"alert": re.sub(r"\W", "_", title), "expr": f"count({query}) > 0"}
        for title, query in queries().items()
    ]
    assert len(rules) >= 18
    grouped = {"groups": [{"name": "panels", "rules": rules}]}
    evaluate(tmp_path, grouped, one_sample_each(), {rule["alert"]: True for rule in rules})


@pytest.mark.parametrize("query", [*queries().values(), *(r["expr"] for r in alerts().values())])
def test_a_query_names_metrics_of_the_reference(query: str) -> None:
    known = metrics()
    named = set(re.findall(r"\b(?:ipuhub|process)_\w+", query))
    assert named
    assert {re.sub(r"_bucket$", "", name) for name in named} <= set(known)


def test_the_page_about_monitoring_names_each_alert() -> None:
    page = (ROOT / "docs/admin/monitoring.md").read_text("utf-8")
    assert [name for name in alerts() if f"`{name}`" not in page] == []
