"""The certificate that the webhooks make themselves: in a Secret, for all replicas, for years."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from cryptography.x509 import load_pem_x509_certificates
from structlog.testing import capture_logs

from devcluster.demo.cluster import apply_manifest, write_account_kubeconfig
from devcluster.server import DevCluster
from ipuhub import composition
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ApiError
from ipuhub.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
)
from jobs.ipujob.names import IPUJOBS
from jobs.webhooks.configuration import NAME, WebhookScope, build_configurations
from jobs.webhooks.keeper import KeeperOptions, KeptCertificate
from jobs.webhooks.server import MUTATE_PATH, VALIDATE_PATH, WebhookRules, build_app
from tests.builders.documents import our_crd
from tests.builders.ipujobs import ipujob
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.embedded_only
SYSTEM, SECRET = "ipuhub-system", "ipuhub-webhooks-tls"
ROOT = Path(__file__).resolve().parents[3]
PAGE, MANAGE = ROOT / "docs/admin/security.md", ROOT / "manage.py"


def documented_rights() -> list[dict[str, Any]]:
    """The YAML block of the page about security that begins with the Role."""
    _, _, rest = PAGE.read_text("utf-8").partition("    # rights of the webhooks\n")
    lines = []
    for line in rest.splitlines():
        if line and not line.startswith("    "):
            break
        lines.append(line.removeprefix("    "))
    return list(yaml.safe_load_all("\n".join(lines)))


@dataclass
class Clock:
    """Tells the time that a test sets; certificates are judged by the real clock."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __call__(self) -> datetime:
        return self.now


@dataclass
class World:
    """Webhooks on an embedded API that calls them over TLS."""

    admin: KubeClient
    cluster: DevCluster
    folder: Path
    clock: Clock
    stack: AsyncExitStack
    ports: list[int] = field(default_factory=list)

    async def replica(self) -> KeptCertificate:
        """One more process, with the documented rights and no other."""
        path = await write_account_kubeconfig(
            self.admin, self.cluster.kubeconfig, self.folder, f"{SYSTEM}/ipuhub-webhooks"
        )
        client = await self.stack.enter_async_context(KubeClient(load_config(str(path), "")))
        options = KeeperOptions(
            namespace=SYSTEM, secret=SECRET, configuration=NAME, names=("127.0.0.1",)
        )
        kept = KeptCertificate(client, options, self.clock)
        runner = web.AppRunner(build_app(WebhookRules()))
        await runner.setup()
        self.stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=kept.context).start()
        self.ports.append(runner.addresses[0][1])
        return kept

    async def ask_at(self, port: int) -> None:
        """Have the API server ask this replica from now on, and trust whom it trusts already."""
        scope = WebhookScope(f"https://127.0.0.1:{port}", b"", MUTATE_PATH, VALIDATE_PATH)
        for manifest in build_configurations(scope):
            kind = manifest["kind"]
            resource = {r.kind: r for r in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}[kind]
            bundle = await self.bundle(kind)
            for hook in manifest["webhooks"]:
                hook["clientConfig"] |= {"caBundle": bundle} if bundle else {}
            del manifest["metadata"]["labels"]
            found = await self.admin.list(resource)
            if found.items:
                version = found.items[0]["metadata"]["resourceVersion"]
                manifest["metadata"]["resourceVersion"] = version
                await self.admin.replace(resource, manifest)
            else:
                await self.admin.create(resource, manifest)

    async def bundle(self, kind: str = "ValidatingWebhookConfiguration") -> str:
        resource = {r.kind: r for r in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}[kind]
        found = await self.admin.list(resource)
        bundles = {
            hook["clientConfig"].get("caBundle")
            for item in found.items
            for hook in item["webhooks"]
        }
        assert len(bundles) <= 1
        return next(iter(bundles), None) or ""

    async def secret(self) -> dict[str, bytes]:
        found = await self.admin.get(SECRETS, SECRET, SYSTEM)
        return {key: base64.b64decode(text) for key, text in (found.get("data") or {}).items()}

    async def unanswered(self) -> list[str]:
        """Return the API server's error when no replica answers: else a job is refused for what it
        is."""
        answers = []
        for port in self.ports:
            await self.ask_at(port)
            body = ipujob().ipus(3).build()
            body["metadata"] = {"name": "asked-about", "namespace": "default"}
            try:
                await self.admin.try_create(IPUJOBS, body)
                answers.append("the job was accepted")
            except ApiError as error:
                if "not a power of two" not in str(error):
                    answers.append(str(error))
        return answers


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    cluster = DevCluster(tmp_path / "cluster", authorization="rbac")
    await cluster.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(cluster.stop)
        config = load_config(str(cluster.kubeconfig), "")
        admin = await stack.enter_async_context(KubeClient(config))
        await admin.create(CUSTOM_RESOURCE_DEFINITIONS, our_crd())
        await admin.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
        await admin.create(
            SERVICE_ACCOUNTS, {"metadata": {"name": "ipuhub-webhooks", "namespace": SYSTEM}}
        )
        await admin.create(SECRETS, {"metadata": {"name": SECRET, "namespace": SYSTEM}})
        for manifest in documented_rights():
            await apply_manifest(admin, manifest)
        folder = tmp_path / "accounts"
        folder.mkdir()
        made = World(admin, cluster, folder, Clock(), stack)
        yield made


async def test_no_request_is_refused_while_authority_and_certificate_are_renewed(
    world: World,
) -> None:
    leader, follower = await world.replica(), await world.replica()

    async def everybody_looks() -> None:
        for kept in (follower, leader):
            await kept.refresh()
        assert (leader.problem, follower.problem) == ("", "")
        assert await world.unanswered() == []

    async def step(**later: float) -> list[str]:
        """Return the trusted authorities after the leader's next look, without a replica that fails
        on the way."""
        world.clock.now += timedelta(**later)
        await leader.renew()
        assert leader.unpublished == ""
        assert await world.unanswered() == []  # the others have not heard of anything yet
        await everybody_looks()
        trusted = (await world.secret())["ca.crt"]
        assert base64.b64decode(await world.bundle()) == trusted
        return [one.subject.rfc4514_string() for one in load_pem_x509_certificates(trusted)]

    real = world.clock.now
    await world.ask_at(world.ports[0])
    world.clock.now = real - timedelta(days=3650 - 60)
    await leader.renew()  # made long ago; what is served now came from it 100 days ago
    (first,) = load_pem_x509_certificates((await world.secret())["ca.crt"])
    world.clock.now = real - timedelta(days=100)
    await leader.renew()
    await everybody_looks()
    assert await step() == [first.subject.rfc4514_string()]
    served = (await world.secret())["tls.crt"]

    world.clock.now = real  # 60 days are left of the authority, and of its certificate
    new, old = await step()
    assert (old, (await world.secret())["tls.crt"]) == (first.subject.rfc4514_string(), served)
    assert await step(seconds=30) == [new, old]
    assert (await world.secret())["tls.crt"] == served  # not before API servers have heard of it
    assert await step(seconds=30) == [new, old]
    renewed = (await world.secret())["tls.crt"]
    assert renewed != served
    assert await step(days=1) == [new, old]
    assert (await world.secret())["tls.crt"] == renewed


async def test_authority_and_certificate_live_as_long_as_is_said(world: World) -> None:
    kept = await world.replica()
    await world.ask_at(world.ports[0])
    await kept.renew()
    found = await world.secret()
    (authority,) = load_pem_x509_certificates(found["ca.crt"])
    (first,) = load_pem_x509_certificates(found["tls.crt"])
    assert authority.not_valid_after_utc - world.clock.now >= timedelta(days=3649)
    assert first.not_valid_after_utc - world.clock.now >= timedelta(days=364)

    world.clock.now += timedelta(days=274)
    await kept.renew()
    assert (await world.secret())["tls.crt"] == found["tls.crt"]
    world.clock.now += timedelta(days=2)
    await kept.renew()
    (second,) = load_pem_x509_certificates((await world.secret())["tls.crt"])
    assert second.not_valid_after_utc - first.not_valid_after_utc > timedelta(days=270)
    assert (await world.secret())["ca.crt"] == found["ca.crt"]


async def test_what_is_broken_is_said_and_mended(world: World) -> None:
    kept = await world.replica()
    await kept.refresh()
    assert kept.problem == f"Secret {SYSTEM}/{SECRET} has no certificate yet"
    await kept.renew()
    assert "make_webhook_configuration" in kept.unpublished  # no configurations yet
    await world.ask_at(world.ports[0])
    await kept.renew()
    assert (kept.unpublished, kept.problem) == ("", "")
    assert await world.unanswered() == []

    notes: list[str] = []
    kept.note = notes.append
    await world.admin.delete(VALIDATING_WEBHOOKS, NAME)
    await kept.renew()
    assert kept.unpublished == ""  # it answers, and its peers may be asked
    assert "make_webhook_configuration" in notes[-1]
    await world.ask_at(world.ports[0])
    await kept.renew()
    assert (notes[-1], await world.unanswered()) == ("", [])

    secret = await world.admin.get(SECRETS, SECRET, SYSTEM)
    secret["data"] = {"tls.crt": base64.b64encode(b"nonsense").decode(), "tls.key": "AAAA"}
    await world.admin.replace(SECRETS, secret)
    await kept.refresh()
    assert "is not usable" in kept.problem
    await kept.renew()
    assert kept.problem == ""
    assert await world.unanswered() == []


async def test_a_certificate_that_could_not_be_renewed_in_time_is_named(world: World) -> None:
    kept = await world.replica()
    await kept.renew()
    world.clock.now += timedelta(days=364)
    await kept.refresh()
    assert kept.problem == ""
    world.clock.now += timedelta(days=2)
    with capture_logs() as lines:
        await kept.refresh()
        assert "the certificate expired on " in kept.problem
        await world.admin.delete(SECRETS, SECRET, SYSTEM)
        await kept.refresh()
    assert "the certificate expired on " in kept.problem
    assert [line["problem"] for line in lines if "problem" in line] == [kept.problem]


async def test_a_secret_that_is_missing_is_named(world: World) -> None:
    kept = await world.replica()
    await world.admin.delete(SECRETS, SECRET, SYSTEM)
    await kept.renew()
    await kept.refresh()
    for problem in (kept.unpublished, kept.problem):
        assert problem.startswith(f"Secret {SYSTEM}/{SECRET} does not exist: create it empty")


async def test_leaving_the_lead_forgets_what_only_the_leader_knows(world: World) -> None:
    kept = await world.replica()
    keeping = asyncio.create_task(kept.keep())
    while "make_webhook_configuration" not in kept.unpublished:
        await asyncio.sleep(0)
        assert not keeping.done()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert kept.unpublished == ""


async def test_the_process_makes_its_certificate_and_says_when_it_is_trusted(world: World) -> None:
    path = await write_account_kubeconfig(
        world.admin, world.cluster.kubeconfig, world.folder, f"{SYSTEM}/ipuhub-webhooks"
    )
    port, health = free_port(), free_port()
    environment = {
        "DJANGO_SETTINGS_MODULE": "",
        "KUBECONFIG": str(path),
        "IPUHUB_WEBHOOK_SECRET": SECRET,
        "IPUHUB_WEBHOOK_DNS_NAMES": "127.0.0.1",
        "IPUHUB_WEBHOOK_PORT": str(port),
        "IPUHUB_HEALTH_PORT": str(health),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(MANAGE), "run_webhooks", env=os.environ | environment
    )
    try:
        readiness = partial(page, f"http://127.0.0.1:{health}/readyz")
        state = await eventually(readiness, lambda text: "make_webhook_configuration" in text)
        assert "webhook configurations: apply the output" in state
        world.ports.append(port)
        await world.ask_at(port)
        await eventually(readiness, lambda text: text == "ok")
        assert await world.unanswered() == []
        lease = await world.admin.get(LEASES, "ipuhub-webhooks", SYSTEM)
        assert lease["spec"]["holderIdentity"]
    finally:
        process.terminate()
        assert await process.wait() == 0


async def page(url: str) -> str:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return await answer.text()
    except aiohttp.ClientError:
        return ""


async def test_two_installations_of_one_namespace_have_leases_of_their_own(
    settings: SettingsWrapper,
) -> None:
    settings.LEASE_PREFIX = "second-"
    options = composition.leadership_options("ipuhub-webhooks")
    assert options is not None
    assert options.lease == "second-ipuhub-webhooks"
