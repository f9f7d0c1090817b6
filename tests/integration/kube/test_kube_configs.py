"""The choice and content of kubeconfigs, as found in practice."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import ConfigError, load_config
from ipuhub.kube.resources import PODS
from tests.builders.kubeconfigs import encoded, write_kubeconfig

from .conftest import pod, reply
from .pki import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import ScriptedApi


async def authorization_sent(api: ScriptedApi, kubeconfig: str) -> str | None:
    """Send one request and return the Authorization header that arrived."""
    api.answers.append(reply(pod("a", "1")))
    async with KubeClient(load_config(kubeconfig)) as client:
        await client.get(PODS, "a", "x")
    return api.seen[-1].headers.get("Authorization")


@pytest.mark.parametrize(
    ("user", "want_header"),
    [
        ({}, None),
        ({"token": "abc"}, "Bearer abc"),
        ({"username": "u", "password": "p"}, "Basic " + encoded(b"u:p")),
    ],
)
async def test_a_kubeconfigs_user_is_who_the_server_sees(
    api: ScriptedApi, tmp_path: Path, user: dict[str, str], want_header: str | None
) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "config", {"server": api.url}, user)
    assert await authorization_sent(api, kubeconfig) == want_header


async def test_a_kubeconfigs_user_may_act_as_another_one(api: ScriptedApi, tmp_path: Path) -> None:
    user = {"token": "abc", "as": "ada"}
    kubeconfig = write_kubeconfig(tmp_path / "config", {"server": api.url}, user)
    assert await authorization_sent(api, kubeconfig) == "Bearer abc"
    assert api.seen[-1].headers["Impersonate-User"] == "ada"


async def test_a_token_file_is_found_beside_the_kubeconfig_and_read_again_when_replaced(
    api: ScriptedApi, tmp_path: Path
) -> None:
    token = tmp_path / "deep" / "token"
    kubeconfig = write_kubeconfig(
        tmp_path / "deep" / "config", {"server": api.url}, {"tokenFile": "token"}
    )
    token.write_text("first\n")
    api.answers += [reply(pod("a", "1"))] * 2
    async with KubeClient(load_config(kubeconfig)) as client:
        await client.get(PODS, "a", "x")
        token.with_name("new").write_text("second\n")
        token.with_name("new").rename(token)
        await client.get(PODS, "a", "x")
    got = [seen.headers["Authorization"] for seen in api.seen]
    assert got == ["Bearer first", "Bearer second"]


async def test_the_named_context_and_its_namespace_count(api: ScriptedApi, tmp_path: Path) -> None:
    path = tmp_path / "config"
    write_kubeconfig(path, {"server": "http://127.0.0.1:9"}, {})
    content = yaml.safe_load(path.read_text())
    content["clusters"].append({"name": "c2", "cluster": {"server": api.url + "/prefix/"}})
    content["contexts"].append(
        {"name": "other", "context": {"cluster": "c2", "user": "u", "namespace": "team"}}
    )
    path.write_text(yaml.safe_dump(content))
    assert load_config(str(path)).namespace == "default"
    config = load_config(str(path), "other")
    assert (config.server, config.namespace) == (api.url + "/prefix", "team")
    api.answers.append(reply(pod("a", "1")))
    async with KubeClient(config) as client:
        await client.create(PODS, {"metadata": {"name": "a"}})
    assert api.seen[0].path == "/prefix/api/v1/namespaces/team/pods"


def test_several_kubeconfigs_are_merged_as_kubectl_does(tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / "one", {"server": "http://one"}, {})
    other = yaml.safe_load((tmp_path / "one").read_text())
    other["contexts"][0]["name"] = "second"
    other["contexts"][0]["context"]["cluster"] = "c2"
    other["clusters"] = [{"name": "c2", "cluster": {"server": "http://two"}}]
    del other["current-context"]
    (tmp_path / "two").write_text(yaml.safe_dump(other))
    both = f"{tmp_path / 'one'}:{tmp_path / 'two'}"
    assert load_config(both).server == "http://one"
    assert load_config(both, "second").server == "http://two"
    turned = f"{tmp_path / 'missing'}:{tmp_path / 'two'}:{tmp_path / 'one'}"
    assert load_config(turned).server == "http://one"  # the only file that names a current context
    write_kubeconfig(tmp_path / "two", {"server": "http://three"}, {})
    assert load_config(both).server == "http://one"  # of entries with one name the first counts
    assert load_config(turned).server == "http://three"


def test_the_first_of_file_variable_and_home_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = write_kubeconfig(tmp_path / "given", {"server": "http://given"}, {})
    variable = write_kubeconfig(tmp_path / "variable", {"server": "http://variable"}, {})
    write_kubeconfig(tmp_path / ".kube" / "config", {"server": "http://home"}, {})
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", variable)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert load_config(given).server == "http://given"
    assert load_config().server == "http://variable"
    monkeypatch.delenv("KUBECONFIG")
    assert load_config().server == "http://home"
    (tmp_path / ".kube" / "config").unlink()
    with pytest.raises(ConfigError, match="set KUBECONFIG"):
        load_config()


@pytest.mark.parametrize(
    ("content", "want_sentence"),
    [
        (None, "does not exist"),
        ("", "empty"),
        ("just text", "cannot be used"),
        ("[1, 2]", "cannot be used"),
        ("a: [", "cannot be used"),
        ("clusters: []", "cannot be used"),
        ("clusters: 3", "clusters is not a list"),
        ("clusters: [{cluster: {}}]", "no name"),
        ("clusters: [{name: c, cluster: 5}]", "not a mapping"),
        ("contexts: [{name: x, context: {}}]\ncurrent-context: x", "no None in its clusters"),
        ("{contexts: [], clusters: [], users: [], current-context: x}", "'?x'? in"),
    ],
)
def test_an_unusable_kubeconfig_is_named_in_the_sentence(
    tmp_path: Path, content: str | None, want_sentence: str
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=want_sentence) as caught:
        load_config(str(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "user", "want_sentence"),
    [
        ({}, {}, "does not name a server"),
        ({"server": "http://x", "certificate-authority-data": "%"}, {}, "not valid base64"),
        ({"server": "http://x", "certificate-authority": "missing.crt"}, {}, "missing.crt"),
        ({"server": "http://x"}, {"client-key-data": "a"}, "client-key-data .* not valid base64"),
    ],
)
def test_a_wrong_entry_of_a_kubeconfig_is_named(
    tmp_path: Path, cluster: dict[str, str], user: dict[str, str], want_sentence: str
) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "config", cluster, user)
    with pytest.raises(ConfigError, match=want_sentence):
        load_config(kubeconfig)


def test_a_plain_kubeconfig_is_read_without_the_kubernetes_package(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "config", {"server": "http://x"}, {"token": "t"})
    code = (
        "import sys; from ipuhub.kube.config import load_config; "
        f"load_config({kubeconfig!r}); print('kubernetes' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


async def test_a_context_may_have_no_user(api: ScriptedApi, tmp_path: Path) -> None:
    path = tmp_path / "config"
    write_kubeconfig(path, {"server": api.url}, {})
    content = yaml.safe_load(path.read_text())
    content["users"], content["contexts"][0]["context"] = [], {"cluster": "c"}
    path.write_text(yaml.safe_dump(content))
    assert await authorization_sent(api, str(path)) is None


def test_a_removed_auth_provider_names_what_replaced_it(tmp_path: Path) -> None:
    user = {"auth-provider": {"name": "oidc", "config": {}}}
    kubeconfig = write_kubeconfig(tmp_path / "config", {"server": "http://x"}, user)
    with pytest.raises(ConfigError, match="exec plug-in"):
        load_config(kubeconfig)


@pytest.mark.parametrize(
    ("server", "want_proxy"),
    [
        ("https://cluster.example:6443", "http://proxy:3128"),
        ("https://inside.example:6443", ""),
        ("https://127.0.0.1:6443", ""),
        ("https://localhost:6443", ""),
    ],
)
def test_the_environments_proxy_is_for_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, want_proxy: str
) -> None:
    for name in ("https_proxy", "no_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    kubeconfig = write_kubeconfig(tmp_path / "config", {"server": server}, {})
    assert load_config(kubeconfig).trust.proxy == want_proxy


def test_inside_a_pod_the_mounted_account_is_used_and_its_token_rotates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    from kubernetes.config import incluster_config

    import ipuhub.kube.config as module

    (tmp_path / "token").write_text("first")
    (tmp_path / "ca.crt").write_bytes(Authority().pem)
    (tmp_path / "namespace").write_text("ipuhub\n")
    monkeypatch.setattr(module, "ACCOUNT_FOLDER", tmp_path)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    config = load_config()
    assert (config.server, config.namespace) == ("https://[fd00::1]:443", "ipuhub")
    assert config.ssl_context() is not None
    assert asyncio.run(config.headers()) == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("rotated")
    assert asyncio.run(config.headers()) == {"Authorization": "Bearer rotated"}
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigError, match="service account"):
        load_config()
