"""On a secure V-IPU, a job's pods get the key to their partition, and other pods get none."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.partition import PodKey
from ipuhub.variables.jobs import JOB_SECRETS
from jobs.builders.launcher import build_launcher
from jobs.builders.pods import PodPlace, build_key_secret, build_worker, secret_name
from jobs.ipujob.names import LABEL_JOB_UID
from tests.builders.ipujobs import ipujob, partition
from tests.builders.jobpods import context_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobs.builders.pods import BuildContext

SECURE = PodPlace(0, 0, replace(partition(), pod_key="0123abcd"))
NAME = "vipu-sample-0123abcd"
KEY = PodKey(
    id="0123abcd",
    user_id="partition/p-sample-default-0",
    access_key="secret",
    ca="ca",
    certificate="certificate",
    private_key="private",
)


def worker(context: BuildContext, place: PodPlace) -> dict[str, Any]:
    return build_worker(context, place, 0)


@pytest.mark.parametrize("build", [worker, build_launcher])
def test_pods_read_their_key_from_the_secret_of_that_key(
    build: Callable[[BuildContext, PodPlace], dict[str, Any]],
) -> None:
    spec = build(context_of(ipujob()), SECURE)["spec"]
    main = spec["containers"][0]
    given = {variable["name"]: variable for variable in main["env"]}
    for name, key in (
        ("VIPU_CLI_API_USER_ID", "user-id"),
        ("VIPU_CLI_API_ACCESS_KEY", "access-key"),
    ):
        assert given[name] == {
            "name": name,
            "valueFrom": {"secretKeyRef": {"name": NAME, "key": key}},
        }
    assert given["VIPU_CLI_API_HOST"]["value"] == given["IPUOF_VIPU_API_HOST"]["value"]
    assert given["VIPU_CLI_API_PORT"]["value"] == given["IPUOF_VIPU_API_PORT"]["value"]
    (volume,) = [one for one in spec["volumes"] if one["name"] == "ipuhub-vipu"]
    assert volume["secret"]["secretName"] == NAME
    (mount,) = [one for one in main["volumeMounts"] if one["name"] == "ipuhub-vipu"]
    files = {item["path"] for item in volume["secret"]["items"]}
    paths = {given[f"VIPU_CLI_{word}"]["value"] for word in ("CA", "CERTIFICATE", "KEY")}
    assert paths == {f"{mount['mountPath']}/{file}" for file in files}
    assert files <= build_key_secret(context_of(ipujob()).key, KEY)["stringData"].keys()


@pytest.mark.parametrize("build", [worker, build_launcher])
@pytest.mark.parametrize("key", ["", "0123abcd"])
def test_an_insecure_controller_changes_no_pod(
    build: Callable[[BuildContext, PodPlace], dict[str, Any]], key: str
) -> None:
    place = PodPlace(0, 0, replace(partition(), pod_key=key))
    text = str(build(context_of(ipujob()), place))
    assert ("VIPU_CLI" in text, "ipuhub-vipu" in text) == (bool(key), bool(key))


def test_a_variable_of_the_template_wins() -> None:
    job = ipujob()
    context = context_of(job)
    own = {"name": "VIPU_CLI_API_ACCESS_KEY", "value": "mine"}
    context.spec.template["spec"]["containers"][0]["env"] = [own]
    env = worker(context, SECURE)["spec"]["containers"][0]["env"]
    assert [one for one in env if one["name"] == own["name"]] == [own]


def test_the_secret_goes_with_the_job_and_never_changes() -> None:
    context = context_of(ipujob())
    made = build_key_secret(context.key, KEY)
    meta = made["metadata"]
    assert (meta["name"], meta["namespace"]) == (NAME, "default")
    assert meta["labels"][LABEL_JOB_UID] == context.key.uid
    assert [owner["uid"] for owner in meta["ownerReferences"]] == [context.key.uid]
    assert made["immutable"] is True
    assert made["stringData"] == {
        "user-id": "partition/p-sample-default-0",
        "access-key": "secret",
        "ca.crt": "ca",
        "tls.crt": "certificate",
        "tls.key": "private",
    }


def test_templates_may_not_name_the_secret_unless_somebody_allows_it() -> None:
    for job in ("sample", "ipujob-sample"):
        name = secret_name(job, KEY.id)
        assert not any(fnmatch(name, pattern) for pattern in JOB_SECRETS)
