"""The table of the Pod Security Standards: each control refuses what the standard refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jobs.ipujob.podstandards import POD, TEMPLATE
from jobs.ipujob.privileges import PROFILES, Privileges, privilege_excesses
from tests.builders.podcases import CONTAINERS, hardened, pod_cases

if TYPE_CHECKING:
    from jobs.ipujob.privileges import PrivilegeExcess
    from tests.builders.podcases import PodCase

CASES = list(pod_cases())


def excesses(
    pod: dict[str, Any],
    profile: str = "graphcore",
    annotations: dict[str, str] | None = None,
    **settings: Any,
) -> list[PrivilegeExcess]:
    template = {"metadata": {"annotations": annotations or {}}, "spec": pod}
    privileges = Privileges(profile, **settings)
    return list(privilege_excesses({"workers": {"template": template}}, privileges))


def fields_of(*arguments: Any, **named: Any) -> list[str]:
    return [one.field.removeprefix(f"{POD}.") for one in excesses(*arguments, **named)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("profile", ["baseline", "restricted"])
def test_each_control_refuses_its_values_and_allows_the_others(case: PodCase, profile: str) -> None:
    found = excesses(case.spec, profile, case.annotations)
    if profile in case.refused_by:
        assert any(one.field.endswith(case.field) for one in found), found
    else:
        assert found == []


def test_there_is_a_pod_that_each_standard_refuses_in_each_kind_of_container() -> None:
    for kind in CONTAINERS:
        assert fields_of(hardened(kind), "restricted") == []


def test_nothing_at_all_is_beyond_the_profile_privileged() -> None:
    for case in CASES:
        assert excesses(case.spec, "privileged", case.annotations) == []


def test_graphcore_is_baseline_with_host_ipc_host_network_and_ipc_lock() -> None:
    allowed = set()
    for case in CASES:
        graphcore = {one.field for one in excesses(case.spec, annotations=case.annotations)}
        baseline = {one.field for one in excesses(case.spec, "baseline", case.annotations)}
        assert graphcore <= baseline
        allowed |= {(one.removeprefix(f"{POD}."), case.name) for one in baseline - graphcore}
    assert {field for field, _ in allowed} == {
        "hostIPC",
        "hostNetwork",
        *(f"{kind}[0].securityContext.capabilities.add[0]" for kind in CONTAINERS),
    }
    adding = [name for field, name in allowed if field.endswith(".add[0]")]
    assert all(name.endswith("['IPC_LOCK']") for name in adding)


def test_where_the_operator_adds_no_host_network_graphcore_does_not_allow_it() -> None:
    pod = hardened() | {"hostNetwork": True, "hostIPC": True}
    assert fields_of(pod, host_network=False) == ["hostNetwork"]


@pytest.mark.parametrize(
    ("change", "version", "want"),
    [
        ({"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}, 31, ["sysctls[0].name"]),
        ({"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}, 32, []),
        ({"sysctls": [{"name": "net.ipv4.ip_local_reserved_ports"}]}, 26, ["sysctls[0].name"]),
        ({"seLinuxOptions": {"type": "container_engine_t"}}, 30, ["seLinuxOptions.type"]),
        ({"seLinuxOptions": {"type": "container_engine_t"}}, 31, []),
        ({"runAsUser": 0}, 22, []),
        ({"runAsUser": 0}, 23, ["runAsUser"]),
    ],
)
def test_each_version_has_its_standards(
    change: dict[str, Any], version: int, want: list[str]
) -> None:
    pod = hardened()
    pod["securityContext"] |= change
    wanted = [f"securityContext.{field}" for field in want]
    assert fields_of(pod, "restricted", version=version) == wanted


def test_before_their_version_user_namespaces_and_probes_change_nothing() -> None:
    cases = {case.name: case for case in CASES}
    apart = cases["procMount in a user namespace"].spec
    want = ["containers[0].securityContext.procMount"]
    assert fields_of(apart, "baseline", version=34) == want
    assert fields_of(cases["hook"].spec, "baseline", version=33) == []
    assert fields_of(cases["windows"].spec, "restricted", version=24) != []


@pytest.mark.parametrize("profile", ["graphcore", "baseline", "restricted"])
def test_other_accounts_and_the_systems_priorities_are_refused(profile: str) -> None:
    for field in ("serviceAccountName", "serviceAccount"):
        assert fields_of(hardened() | {field: "default"}, profile) == []
        assert fields_of(hardened() | {field: "admin"}, profile) == [field]
    for name, want in (
        ("system-node-critical", ["priorityClassName"]),
        ("system-cluster-critical", ["priorityClassName"]),
        ("batch", []),
    ):
        assert fields_of(hardened() | {"priorityClassName": name}, profile) == want


def secret_pod(name: str) -> dict[str, Any]:
    pod = hardened("initContainers")
    reference = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": name, "key": "a"}}}
    pod["containers"][0]["env"] = [{"name": "A", "value": "b"}, reference]
    pod["initContainers"][0]["envFrom"] = [{"configMapRef": {"name": "a"}}]
    pod["initContainers"][0]["envFrom"] += [{"secretRef": {"name": name}}]
    pod["volumes"] = [
        {"name": "a", "secret": {"secretName": name}},
        {"name": "b", "projected": {"sources": [{"downwardAPI": {}}, {"secret": {"name": name}}]}},
        {"name": "c", "csi": {"driver": "a", "nodePublishSecretRef": {"name": name}}},
    ]
    pod["imagePullSecrets"] = [{"name": name}]
    return pod


SECRET_FIELDS = [
    "initContainers[0].envFrom[1].secretRef.name",
    "containers[0].env[1].valueFrom.secretKeyRef.name",
    "volumes[0].secret.secretName",
    "volumes[1].projected.sources[1].secret.name",
    "volumes[2].csi.nodePublishSecretRef.name",
]


def test_secrets_are_refused_wherever_a_pod_names_them_but_those_for_jobs() -> None:
    assert sorted(fields_of(secret_pod("admin"))) == sorted(SECRET_FIELDS)
    assert fields_of(secret_pod("ipujob-wandb")) == []
    assert fields_of(secret_pod("wandb"), secrets=("s3-*", "wandb")) == []
    assert fields_of(secret_pod("admin"), secrets=("*",)) == []
    assert sorted(fields_of(secret_pod("ipujob-a"), secrets=())) == sorted(SECRET_FIELDS)


def test_the_launchers_own_environment_reads_no_other_secret_either() -> None:
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "admin", "key": "a"}}}]
    spec = {"launcher": {"command": ["true"], "env": env}}
    (found,) = privilege_excesses(spec, Privileges())
    assert found.field == "spec.launcher.env[0].valueFrom.secretKeyRef.name"
    assert "IPUHUB_JOB_SECRETS" in found.instead


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("odd", [None, "text", 7, [], [7, None], {"a": 1}, {"containers": 7}])
def test_what_is_no_pod_at_all_is_judged_without_a_crash(profile: str, odd: Any) -> None:
    for spec in (odd, {"workers": odd}, {"workers": {"template": odd}}):
        list(privilege_excesses(spec, Privileges(profile)))
    excesses({"containers": odd, "volumes": odd, "securityContext": odd}, profile)
    list(
        privilege_excesses(
            {"workers": {"template": {"metadata": {"annotations": odd}}}}, Privileges(profile)
        )
    )


def test_a_field_is_named_once_by_its_whole_path() -> None:
    pod = {"containers": [{"name": "a", "securityContext": {"capabilities": {"add": ["ALL"]}}}]}
    found = [one.field for one in excesses(pod, "restricted")]
    assert len(found) == len(set(found))
    assert f"{TEMPLATE}.spec.containers[0].securityContext.capabilities.add[0]" in found
