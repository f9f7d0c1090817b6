"""The chart's Helm hooks, and the resource requests of every container. Needs helm, no cluster."""

from __future__ import annotations

import json

import pytest

from tests.chart.rendering import VIPU, container, environment, named, render, template
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


def test_hooks_run_where_the_operator_may() -> None:
    """Without its tolerations a hook would never run if each node has a taint, or another
    architecture."""
    documents = render(
        *EVERYTHING,
        "controller.nodeSelector.pool=services",
        "controller.tolerations[0].key=pool",
        "controller.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1",
        "database.enabled=true",
        "database.nodeSelector.pool=data",
    )
    (operator,) = (
        each["spec"]["template"]["spec"]
        for name, each in named(documents, "Deployment").items()
        if name.endswith("controller-manager")
    )
    hooks = {**named(documents, "Job"), **named(documents, "Pod")}
    assert {name.removeprefix("gc-ipu-operator-") for name in hooks} == {
        *("test", "uninstall", "hide-ipus")
    }
    assert operator["nodeSelector"] == {"pool": "services"}
    for name, hook in hooks.items():
        pod = (hook["spec"].get("template") or hook)["spec"]
        for key in ("nodeSelector", "tolerations", "affinity"):
            assert pod[key] == operator[key], name
    (database,) = named(documents, "StatefulSet").values()
    assert database["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "data"}


def test_every_pod_runs_where_the_release_may_and_its_component_says() -> None:
    documents = render(
        *EVERYTHING,
        "database.enabled=true",
        "extendedScheduler.enabled=true",
        "global.nodeSelector.arch=amd64",
        "global.nodeSelector.pool=services",
        "global.tolerations[0].key=pool",
        "web.nodeSelector.pool=pages",
        "web.tolerations[0].key=pages",
    )
    kinds = ("Deployment", "StatefulSet", "Job", "Pod")
    pods = {
        name: (each["spec"].get("template") or each)["spec"]
        for kind in kinds
        for name, each in named(documents, kind).items()
    }
    assert len(pods) > 12
    web = pods.pop("gc-ipu-operator-web")
    assert web["nodeSelector"] == {"arch": "amd64", "pool": "pages"}
    assert web["tolerations"] == [{"key": "pages"}, {"key": "pool"}]
    for name, pod in pods.items():
        assert pod["nodeSelector"] == {"arch": "amd64", "pool": "services"}, name
        assert pod["tolerations"] == [{"key": "pool"}], name
    unset = template(VIPU, "global.nodeSelector=null", "global.tolerations=null")
    assert unset.returncode == 0, unset.stderr


def test_every_component_has_an_account_of_its_own() -> None:
    """With the namespace's `default`, what is granted to that is every component's."""
    documents = render(*EVERYTHING)
    accounts, used = named(documents, "ServiceAccount"), []
    for each in documents:
        if each["kind"] in {"Deployment", "StatefulSet"}:
            pod = each["spec"]["template"]["spec"]
            used.append(pod.get("serviceAccountName"))
            if pod["automountServiceAccountToken"]:
                bound = [one for one in documents if one["kind"] == "ClusterRoleBinding"]
                assert used[-1] in {one["subjects"][0]["name"] for one in bound}
    assert set(used) <= set(accounts)
    assert {name for name in used if used.count(name) > 1} == {"gc-ipu-operator-vipu-agent"}


def test_a_secret_of_settings_that_is_missing_stops_a_process_that_says_so() -> None:
    """Not a pod, which would have neither log nor /readyz."""
    values = ("mail.host=smtp.example", "mail.from=a@b.example", "mail.existingSecret=smtp")
    deployments = named(render(VIPU, "database.existingSecret=postgres", *values), "Deployment")
    for deployment in deployments.values():
        (one,) = deployment["spec"]["template"]["spec"]["containers"]
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        optional = {each["name"] for each in volumes if each.get("secret", {}).get("optional")}
        read = {
            each["value"].split("/")[3]
            for each in one["env"]
            if each.get("value", "").startswith("/run/ipuhub/") and each["name"].endswith("_FILE")
        }
        assert optional == read, deployment["metadata"]["name"]


@pytest.mark.parametrize("web", ["web.enabled=false", "web.replicas=0", "web.replicas=2"])
@pytest.mark.parametrize(
    "usage", [("usage.enabled=false",), ("prober.replicas=0",), ("prober.replicas=2",)]
)
def test_in_every_combination_a_pod_migrates_the_database_that_others_need(
    web: str, usage: tuple[str, ...]
) -> None:
    """A pod, and no hook: `helm install --wait` runs those only once all pods are ready, and what
    `helm template` renders has none."""
    documents = render(VIPU, "database.enabled=true", web, *usage)
    migrate, need = set(), set()
    for name, deployment in named(documents, "Deployment").items():
        given = environment(deployment) if "DATABASE_URL_FILE" in str(deployment) else None
        if given is None or not deployment["spec"]["replicas"]:
            continue
        component = name.removeprefix("gc-ipu-operator-")
        need.add(component)
        if component == "web" or given.get("IPUHUB_MIGRATE") == "on":
            migrate.add(component)
    # The dashboard alone where there is one: others start sooner.
    others = {"prober", "monitor"} & need
    assert migrate == ({"web"} if "web" in need else others)
    assert bool(migrate) is bool(need)
    jobs = named(documents, "Job").values()
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in jobs} == {"pre-delete"}


def test_only_those_who_make_or_show_reports_get_their_settings() -> None:
    """A zone that does not exist then stops neither jobs nor admissions nor partitions."""
    chosen = ("usage.schedule=0 6 * * 7", "usage.reportZone=Europe/Berlin")
    readers = set()
    for name, deployment in named(render(*EVERYTHING, *chosen), "Deployment").items():
        given = {each["name"]: each.get("value") for each in container(deployment).get("env", ())}
        found = {key: value for key, value in given.items() if key.startswith("IPUHUB_REPORT_")}
        if found:
            readers.add(name.removeprefix("gc-ipu-operator-"))
            assert found == {
                "IPUHUB_REPORT_SCHEDULE": "0 6 * * 7",
                "IPUHUB_REPORT_ZONE": "Europe/Berlin",
            }
    assert readers == {"web", "worker", "beat"}


def test_the_databases_authority_is_a_key_of_its_secret() -> None:
    values = (VIPU, "database.existingSecret=postgres", "database.caKey=ca.pem")
    seen = set()
    for name, deployment in named(render(*values), "Deployment").items():
        given = environment(deployment) if "database" in str(deployment) else {}
        if "DATABASE_URL_FILE" in given:
            seen.add(name.removeprefix("gc-ipu-operator-"))
            folder = given["DATABASE_URL_FILE"].rpartition("/")[0]
            assert given["IPUHUB_DATABASE_CA_PATH"] == f"{folder}/ca.pem"
            (mount,) = (
                each for each in container(deployment)["volumeMounts"] if each["name"] == "database"
            )
            assert mount["mountPath"] == folder
    assert seen == {"web", "prober", "monitor", "worker", "beat"}
    refused = template(VIPU, "database.enabled=true", "database.caKey=ca.pem").stderr
    assert "database.caKey needs database.existingSecret" in refused


@pytest.mark.parametrize("replicas", [1, 2])
def test_several_second_schedulers_are_spread_and_one_stays(replicas: int) -> None:
    values = ("extendedScheduler.enabled=true", f"extendedScheduler.replicas={replicas}")
    documents, name = render(VIPU, *values), "gc-ipu-operator-scheduler"
    deployment = named(documents, "Deployment")[name]
    labels = deployment["spec"]["selector"]["matchLabels"]
    assert container(deployment)["readinessProbe"]["httpGet"]["path"] == "/healthz"
    spread = deployment["spec"]["template"]["spec"].get("topologySpreadConstraints", [])
    assert [each["labelSelector"]["matchLabels"] for each in spread] == [labels] * (replicas - 1)
    budgets = named(documents, "PodDisruptionBudget")
    assert (name in budgets) is (replicas > 1)
    assert replicas == 1 or budgets[name]["spec"]["selector"]["matchLabels"] == labels


@pytest.mark.parametrize("persistent", [True, False])
def test_the_trial_databases_volume_is_64_gi_unless_it_has_none(persistent: bool) -> None:
    values = ("database.enabled=true", f"database.persistent={str(persistent).lower()}")
    spec = named(render(VIPU, *values), "StatefulSet")["gc-ipu-operator-database"]["spec"]
    claims = [
        (each["metadata"]["name"], each["spec"]["resources"]["requests"]["storage"])
        for each in spec.get("volumeClaimTemplates", [])
    ]
    assert claims == ([("data", "64Gi")] if persistent else [])


@pytest.mark.parametrize(
    ("values", "release_in", "namespace"),
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
    values: tuple[str, ...], release_in: str, namespace: str
) -> None:
    documents = render(VIPU, *values, namespace=release_in)
    (pod,) = named(documents, "Pod").values()
    assert json.loads(pod["spec"]["containers"][0]["args"][-1])["jobs"] == namespace
    configuration = named(documents, "ValidatingWebhookConfiguration")["gc-ipu-operator"]
    for webhook in configuration["webhooks"]:
        chosen = webhook["namespaceSelector"]["matchExpressions"][-1]
        assert (namespace in chosen["values"]) is (chosen["operator"] == "In")
