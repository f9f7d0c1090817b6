"""Access of users and ServiceAccounts by Kubernetes RBAC, on a real API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from dashboard import clusteraccess
from dashboard.clusteraccess import KubernetesAuthority
from dashboard.notify.events import collect
from dashboard.notify.outbox import notify
from dashboard.notify.rounds import make_round
from ipuhub.kube.access import User
from ipuhub.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
)
from ipuhub.models import ExternalIdentity, Notification, Subscription
from ipuhub.roles import parse_group_roles
from ipuhub.web.clusterusers import ClusterAway
from partitions.connections import close
from tests.builders import jobhistory
from tests.builders.clients import api_client
from tests.builders.notifications import MINUTE, store_ended_job, subscribe
from tests.builders.roles import grant
from tests.integration.dashboard.actionslab import ActionsLab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import SettingsWrapper

    from tests.fakes.background import Background
    from tests.fakes.receivers import HttpReceiver

pytestmark = pytest.mark.django_db
RBAC = "rbac.authorization.k8s.io"
REVIEWING = "access-test-reviewing"
API = "/api/v1/subscriptions"
JSON = "application/json"
ASKED = {"event": "job-ended", "channel": "webhook", "target": "https://chat.example/h"}


@pytest.fixture(scope="module")
def shared(
    background: Background, tmp_path_factory: pytest.TempPathFactory, given_cluster: str
) -> Iterator[ActionsLab]:
    made = ActionsLab(background, tmp_path_factory.mktemp("access"), given_cluster)
    _bind(made, {"kind": "ServiceAccount", "name": "dashboard", "namespace": "team-a"})
    made.run("create", SERVICE_ACCOUNTS, _named("reader"), "team-a")
    made.run("create", ROLE_BINDINGS, _reads("reader"), "team-a")
    group = {"kind": "Group", "name": "oidc:ml", "apiGroup": RBAC}
    made.run("create", ROLE_BINDINGS, _reads("ml") | {"subjects": [group]}, "team-a")
    yield made
    for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
        made.run("delete", resource, REVIEWING)
    made.close()


def _named(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


def _bind(lab: ActionsLab, subject: dict[str, str]) -> None:
    rules = [
        {"apiGroups": [f"{group}.k8s.io"], "resources": [reviews], "verbs": ["create"]}
        for group, reviews in (
            ("authentication", "tokenreviews"),
            ("authorization", "subjectaccessreviews"),
        )
    ]
    head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": REVIEWING}}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": REVIEWING}
    lab.run("create", CLUSTER_ROLES, head | {"kind": "ClusterRole", "rules": rules})
    binding = head | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]}
    lab.run("create", CLUSTER_ROLE_BINDINGS, binding)


def _reads(account: str) -> dict[str, Any]:
    role = {"apiGroup": RBAC, "kind": "Role", "name": "look"}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "team-a"}
    head = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": account}}
    return head | {"roleRef": role, "subjects": [subject]}


@pytest.fixture
def lab(shared: ActionsLab, settings: SettingsWrapper) -> Iterator[ActionsLab]:
    settings.KUBECONFIG = shared.kubeconfig
    settings.ACCESS = "kubernetes"
    settings.ACTIONS_USERS = {"bob": "bob@lab", "eve": "eve@lab"}
    settings.API_SERVICE_ACCOUNTS = True
    for namespace in ("team-a", "team-b"):
        jobhistory.job(namespace=namespace)
    clusteraccess.authority.cache_clear()
    yield shared
    clusteraccess.authority.cache_clear()


def seen_by(client: Client, **headers: str) -> set[str]:
    answer = client.get("/api/v1/jobs", headers=headers)
    assert answer.status_code == 200, answer.content
    return {job["namespace"] for job in answer.json()["results"]}


def browser(name: str, **fields: Any) -> Client:
    made = Client()
    made.force_login(get_user_model().objects.create_user(name, **fields))
    return made


def token_of(lab: ActionsLab, account: str = "reader", audience: str = "ipuhub-api") -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    spec = {"audiences": [audience], "expirationSeconds": 3600}
    made = lab.run(
        "create",
        SERVICE_ACCOUNTS,
        body | {"spec": spec},
        "team-a",
        subresource="token",
        name=account,
    )
    return f"Bearer {made['status']['token']}"


@pytest.mark.parametrize(
    ("template", "groups", "want"),
    [
        ("oidc:{group}", ["ml", "other"], {"team-a"}),
        ("oidc:{group}", ["other"], set()),
        ("{group}", ["ml", "system:masters"], set()),
        ("", ["ml", "oidc:ml"], set()),
    ],
)
def test_rights_of_groups_of_single_sign_on_count(
    lab: ActionsLab, settings: SettingsWrapper, template: str, groups: list[str], want: set[str]
) -> None:
    settings.ACCESS_GROUPS = template
    settings.ACTIONS_SINGLE_SIGN_ON = "sso:{subject}"
    user = get_user_model().objects.create_user("gina")
    ExternalIdentity.objects.create(user=user, issuer="i", subject="gina", groups=groups)
    client = Client()
    client.force_login(user)
    assert seen_by(client) == want


def test_with_two_identities_no_group_counts(lab: ActionsLab, settings: SettingsWrapper) -> None:
    settings.ACCESS_GROUPS, settings.ACTIONS_USERS = "oidc:{group}", {"gina": "gina@lab"}
    user = get_user_model().objects.create_user("gina")
    client = Client()
    client.force_login(user)
    ExternalIdentity.objects.create(user=user, issuer="i", subject="gina", groups=["ml"])
    assert seen_by(client) == {"team-a"}
    ExternalIdentity.objects.create(user=user, issuer="j", subject="gina", groups=["ml"])
    assert seen_by(client) == set()


def test_a_user_sees_the_namespaces_that_his_kubernetes_user_may_list(lab: ActionsLab) -> None:
    bob = browser("bob")
    assert seen_by(bob) == {"team-a"}
    page = bob.get("/jobs/").content.decode()
    assert "uid-team-a-train" in page
    assert "uid-team-b-train" not in page
    assert bob.get("/jobs/uid-team-b-train/").status_code == 404
    assert bob.get("/jobs/?namespace=team-b").status_code == 403


def test_roles_do_not_add_to_it_but_administrators_see_everything(lab: ActionsLab) -> None:
    eve = browser("eve")  # may list nothing
    grant(get_user_model().objects.get(username="eve"), "operator", "team-b")
    assert seen_by(eve) == set()
    assert seen_by(browser("nobody-in-kubernetes")) == set()
    assert seen_by(browser("root", is_staff=True)) == {"team-a", "team-b"}


def test_a_user_is_told_of_the_jobs_that_kubernetes_lets_him_list(
    lab: ActionsLab, settings: SettingsWrapper, receiver: HttpReceiver, tmp_path: Any
) -> None:
    """bob may list team-a, eve nothing, and a stranger has no Kubernetes user."""
    for name in ("bob", "eve", "stranger"):
        user = get_user_model().objects.create_user(name)
        grant(user, "operator", "team-b")  # counts for nothing here
        page = api_client(user)
        made = page.post(API, {**ASKED, "target": f"{receiver.url}&{name}"}, JSON)
        assert made.status_code == 201, made.content
        refused = page.post(API, {**ASKED, "namespace": "team-b"}, JSON)
        assert "do not have access" in str(refused.json()["errors"])
    Subscription.objects.update(since=timezone.now() - 60 * MINUTE)
    for namespace in ("team-a", "team-b"):
        store_ended_job("over", namespace)
    at_home, settings.KUBECONFIG = settings.KUBECONFIG, str(tmp_path / "none")
    clusteraccess.authority.cache_clear()  # answers of a moment ago
    close()
    collect(timezone.now())
    assert not Notification.objects.exists()  # while Kubernetes is away nobody is told anything
    settings.KUBECONFIG = at_home
    close()
    make_round(timezone.now())
    ((path, _, body),) = receiver.got
    assert path.endswith("&bob")
    assert json.loads(body)["subject"] == "Job team-a/over ended: Failed"


def test_a_silent_kubernetes_is_asked_thrice_a_round_and_administrators_are_told(
    lab: ActionsLab, settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = [f"user{number}" for number in range(5)]
    settings.ACTIONS_USERS = {name: f"{name}@lab" for name in people}
    users = []

    def away(_: KubernetesAuthority, user: User) -> frozenset[str]:
        users.append(user.username)
        raise ClusterAway

    monkeypatch.setattr(KubernetesAuthority, "namespaces_of", away)
    for name in (*people, "root"):
        user = get_user_model().objects.create_user(name, is_staff=name == "root")
        for event in ("job-ended", "job-waiting"):
            subscribe(user, event)
    store_ended_job("over", "team-a")
    collect(timezone.now())
    assert len(users) == len(set(users)) == 3
    assert Notification.objects.get().subscription.owner.get_username() == "root"


def test_a_user_whose_reviews_fail_silences_nobody_else(
    lab: ActionsLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = KubernetesAuthority.namespaces_of

    def fails_for_eve(self: KubernetesAuthority, user: User) -> frozenset[str] | None:
        if user.username == "eve@lab":
            raise ClusterAway
        return real(self, user)

    monkeypatch.setattr(KubernetesAuthority, "namespaces_of", fails_for_eve)
    for name in ("eve", "bob"):
        subscribe(get_user_model().objects.create_user(name))
    store_ended_job("over", "team-a")
    collect(timezone.now())
    assert Notification.objects.get().subscription.owner.get_username() == "bob"


@pytest.mark.parametrize("outage_rounds", [0, 2])
def test_users_whose_reviews_always_fail_silence_those_after_them_for_one_round_only(
    lab: ActionsLab, settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch, outage_rounds: int
) -> None:
    """Also where for some rounds before that the reviews of everybody failed."""
    odd = [f"odd{number}" for number in range(3)]
    settings.ACTIONS_USERS |= {name: f"{name}@lab" for name in odd}
    real, is_away = KubernetesAuthority.namespaces_of, outage_rounds > 0

    def fails(self: KubernetesAuthority, user: User) -> frozenset[str] | None:
        if is_away or user.username.startswith("odd"):
            raise ClusterAway
        return real(self, user)

    monkeypatch.setattr(KubernetesAuthority, "namespaces_of", fails)
    for name in (*odd, "bob"):
        subscribe(get_user_model().objects.create_user(name))
    store_ended_job("over", "team-a")
    now = timezone.now()
    for number in range(outage_rounds):
        collect(now + number * MINUTE / 2)
    is_away = False
    for number in range(outage_rounds, outage_rounds + 2):
        collect(now + number * MINUTE / 2)
    assert Notification.objects.get().subscription.owner.get_username() == "bob"


def test_the_worker_decides_about_no_job(lab: ActionsLab, settings: SettingsWrapper) -> None:
    """It may have other settings than the dashboard, which asks Kubernetes."""
    settings.ACCESS = "roles"
    user = get_user_model().objects.create_user("bob")
    grant(user, "viewer", "team-b")
    subscribe(user)
    store_ended_job("over", "team-b")
    notify()
    assert not Notification.objects.exists()


def test_while_kubernetes_is_away_nothing_is_shown_and_a_sentence_says_so(
    lab: ActionsLab, settings: SettingsWrapper, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page asks once, although its navigation shows what the user may open: while Kubernetes
    is silent each question takes seconds."""
    settings.KUBECONFIG = str(tmp_path / "none")
    real, users = KubernetesAuthority.namespaces_of, []

    def counted(self: KubernetesAuthority, user: User) -> frozenset[str] | None:
        users.append(user.username)
        return real(self, user)

    monkeypatch.setattr(KubernetesAuthority, "namespaces_of", counted)
    bob = browser("bob")
    for path in ("/jobs/", "/api/v1/jobs", "/jobs/uid-team-a-train/logs/"):
        users.clear()
        answer = bob.get(path)
        assert answer.status_code == 403
        assert users == ["bob@lab"]
        assert "Kubernetes does not answer" in answer.content.decode()
        assert b"uid-team-a-train" not in answer.content.replace(path.encode(), b"")
    token = {"Authorization": "Bearer x.y.z"}
    answer = Client().get("/api/v1/jobs", headers=token)
    assert (answer.status_code, answer.json()["type"]) == (
        503,
        "urn:ipuhub:problem:cluster-unavailable",
    )


def test_an_answer_is_used_for_a_bounded_time(lab: ActionsLab, settings: SettingsWrapper) -> None:
    settings.ACCESS_CACHE_SECONDS = 30
    now = [0.0]
    authority = KubernetesAuthority(lambda: now[0])
    user = User("bob@lab")
    assert authority.namespaces_of(user) == frozenset({"team-a"})
    settings.KUBECONFIG = "/none"
    close()
    now[0] = 29.9
    assert authority.namespaces_of(user) == frozenset({"team-a"})
    now[0] = 30.0
    with pytest.raises(ClusterAway):
        authority.namespaces_of(user)


def test_a_service_account_reads_the_namespaces_that_it_may_list(lab: ActionsLab) -> None:
    token = token_of(lab)
    assert seen_by(Client(), Authorization=token) == {"team-a"}
    headers = {"Authorization": token}
    assert Client().get("/api/v1/jobs/uid-team-b-train", headers=headers).status_code == 404
    assert Client().get("/api/v1/components", headers=headers).status_code == 403
    assert Client().get("/api/v1/usage/summary", headers=headers).status_code == 200
    refused = Client().post("/api/v1/jobs/uid-team-a-train/cancel", headers=headers)
    assert refused.status_code == 403
    assert "only read" in refused.json()["detail"]


def test_a_role_of_the_settings_takes_the_place_of_the_review(
    lab: ActionsLab, settings: SettingsWrapper
) -> None:
    settings.API_SERVICE_ACCOUNT_ROLES = parse_group_roles(["team-a/reader=viewer:team-b"])
    assert seen_by(Client(), Authorization=token_of(lab)) == {"team-b"}


@pytest.mark.parametrize("given", ["other audience", "garbage", "switched off"])
def test_no_other_token_is_accepted(lab: ActionsLab, settings: SettingsWrapper, given: str) -> None:
    settings.API_SERVICE_ACCOUNTS = given != "switched off"
    token = token_of(lab, audience="elsewhere" if given == "other audience" else "ipuhub-api")
    token = "Bearer garbage" if given == "garbage" else token
    answer = Client().get("/api/v1/jobs", headers={"Authorization": token})
    assert (answer.status_code, answer.json()["type"]) == (
        401,
        "urn:ipuhub:problem:invalid-token",
    )
