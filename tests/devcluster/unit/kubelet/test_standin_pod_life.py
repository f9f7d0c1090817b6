"""The life of a simulated pod, on a clock that only the tests move."""

from __future__ import annotations

from datetime import timedelta

import pytest

from devcluster.kubelet.machine import build_patch
from devcluster.kubelet.options import Durations
from tests.devcluster.unit.kubelet.standin_pods import NOON, Driver, container, pod

CRASH = "main=CrashLoopBackOff"


class TestTheWayUp:
    def test_a_pod_is_created_runs_and_succeeds_in_single_visible_steps(self) -> None:
        driver = Driver(pod(sim={"startup-seconds": "2", "runtime-seconds": "5"})).settle()
        assert driver.summary() == "Pending main=ContainerCreating"
        assert "podIP" not in driver.status
        driver.pass_time(2)
        assert driver.summary() == "Running main=running+"
        driver.pass_time(4.9)
        assert driver.summary() == "Running main=running+"
        driver.pass_time(0.1)
        assert driver.history() == [
            "Pending main=ContainerCreating",
            "Running main=running+",
            "Succeeded main=0",
        ]
        assert driver.wake_at is None

    def test_init_containers_run_one_after_the_other(self) -> None:
        inits = [container("first"), container("second")]
        sim = {"init-seconds.first": "3", "runtime-seconds": "1"}
        driver = Driver(pod(initContainers=inits, sim=sim)).pass_time(10)
        assert driver.history() == [
            "Pending first=PodInitializing second=PodInitializing main=PodInitializing",
            "Pending first=running second=PodInitializing main=PodInitializing",
            "Pending first=0+ second=PodInitializing main=PodInitializing",
            "Pending first=0+ second=0+ main=PodInitializing",
            "Running first=0+ second=0+ main=running+",
            "Succeeded first=0+ second=0+ main=0",
        ]

    def test_a_status_has_what_kubectl_and_the_operator_read(self) -> None:
        driver = Driver(pod(sim={"runtime-seconds": "60"})).settle()
        status = driver.status
        assert status["startTime"] == "2026-03-01T12:00:00Z"
        assert (status["hostIP"], status["podIP"]) == ("10.64.0.1", "10.128.0.1")
        assert status["podIPs"] == [{"ip": "10.128.0.1"}]
        main = driver.container()
        assert (main["restartCount"], main["started"], main["ready"]) == (0, True, True)
        assert main["lastState"] == {}
        assert main["containerID"].startswith("sim://")

    def test_a_pod_on_the_host_network_has_the_nodes_address(self) -> None:
        assert Driver(pod(hostNetwork=True)).settle().status["podIP"] == "10.64.0.1"

    @pytest.mark.parametrize(
        ("name", "want_container", "want_ready_at"),
        [
            ("at once without a probe", container(), 0),
            (
                "after a probe's initial delay",
                container(readinessProbe={"initialDelaySeconds": 7}),
                7,
            ),
        ],
    )
    def test_containers_become_ready(self, name: str, want_container: object, want_ready_at: int):
        driver = Driver(pod(containers=[want_container])).settle()
        if want_ready_at:
            driver.pass_time(want_ready_at - 0.1)
            assert driver.truths()["Ready"] == "False", name
            driver.pass_time(0.1)
        assert driver.truths()["Ready"] == "True", name

    def test_the_annotation_decides_readiness_before_the_probe_does(self) -> None:
        probed = container(readinessProbe={"initialDelaySeconds": 7})
        driver = Driver(pod(containers=[probed], sim={"ready-seconds": "2"})).pass_time(2)
        assert driver.truths()["Ready"] == "True"

    def test_conditions_keep_their_times_until_they_change(self) -> None:
        driver = Driver(pod(sim={"startup-seconds": "5", "ready-seconds": "5"})).settle()
        assert driver.truths() == {
            "PodScheduled": "True",
            "Initialized": "True",
            "ContainersReady": "False",
            "Ready": "False",
        }
        assert driver.condition("Ready")["reason"] == "ContainersNotReady"
        assert driver.condition("Ready")["message"] == "containers with unready status: [main]"
        driver.pass_time(10)
        assert driver.condition("Initialized")["lastTransitionTime"] == "2026-03-01T12:00:00Z"
        assert driver.condition("Ready")["lastTransitionTime"] == "2026-03-01T12:00:10Z"

    def test_a_pod_that_initializes_says_which_container_is_missing(self) -> None:
        inits = [container("prepare")]
        driver = Driver(pod(initContainers=inits, sim={"init-seconds": "9"})).settle()
        initialized = driver.condition("Initialized")
        assert initialized["reason"] == "ContainersNotInitialized"
        assert initialized["message"] == "containers with incomplete status: [prepare]"

    @pytest.mark.parametrize(
        ("want_code", "want_phase", "want_reason"),
        [("0", "Succeeded", "PodCompleted"), ("3", "Failed", "PodFailed")],
    )
    def test_an_ended_pod_is_not_ready(self, want_code: str, want_phase: str, want_reason: str):
        sim = {"runtime-seconds": "1", "exit-code": want_code}
        driver = Driver(pod(sim=sim)).pass_time(1)
        assert driver.status["phase"] == want_phase
        assert driver.condition("Ready")["status"] == "False"
        assert driver.condition("Ready")["reason"] == want_reason
        assert driver.condition("Initialized")["status"] == "True"


class TestTheEnd:
    def test_a_failed_container_says_why(self) -> None:
        sim = {
            "runtime-seconds": "4",
            "exit-code": "137",
            "termination-reason": "OOMKilled",
            "termination-message": "out of IPU memory",
        }
        driver = Driver(pod(sim=sim)).pass_time(4)
        ended = driver.container()["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
        assert ended["message"] == "out of IPU memory"
        assert ended["startedAt"] == "2026-03-01T12:00:00Z"
        assert ended["finishedAt"] == "2026-03-01T12:00:04Z"

    def test_a_failed_container_falls_back_to_the_end_of_its_log(self) -> None:
        sim = {"runtime-seconds": "1", "exit-code": "1", "log": "x" * 3000 + "Traceback"}
        quoting = container(terminationMessagePolicy="FallbackToLogsOnError")
        driver = Driver(pod(containers=[quoting, container("other")], sim=sim)).pass_time(1)
        assert driver.container()["state"]["terminated"]["message"].endswith("xTraceback")
        assert len(driver.container()["state"]["terminated"]["message"]) == 2048
        assert "message" not in driver.container("other")["state"]["terminated"]

    def test_containers_end_each_at_its_own_time(self) -> None:
        sim = {"runtime-seconds.main": "1", "runtime-seconds.side": "2", "exit-code.side": "5"}
        mains = [container(), container("side")]
        driver = Driver(pod(containers=mains, sim=sim)).pass_time(1)
        assert driver.summary() == "Running main=0 side=running+"
        assert driver.condition("Ready")["message"] == "containers with unready status: [main]"
        driver.pass_time(1)
        assert driver.summary() == "Failed main=0 side=5"

    @pytest.mark.parametrize(
        ("name", "role", "restart", "command", "want_seconds"),
        [
            ("a launcher", "launcher", "Never", ["train"], 30),
            ("a worker", "worker", "Always", ["train"], 20),
            ("a pod that is not to restart", "", "OnFailure", ["train"], 10),
            ("a sleep that ends on SIGTERM", "", "Always", ["sh", "-c", "sleep 2m & wait"], 120),
        ],
    )
    def test_run_times_without_annotations(
        self, name: str, role: str, restart: str, command: list[str], want_seconds: int
    ) -> None:
        manifest = pod(restart, containers=[container(command=command)])
        if role:
            manifest["metadata"]["labels"] = {
                "graphcore.ai/ipujob-uid": "u",
                "graphcore.ai/role": role,
            }
        driver = Driver(manifest, Durations(launcher=30, worker=20, pod=10)).settle()
        driver.pass_time(want_seconds - 1)
        assert driver.summary() == "Running main=running+", name
        driver.pass_time(1)
        assert driver.container()["restartCount"] == 1 or driver.status["phase"] == "Succeeded"

    @pytest.mark.parametrize(
        ("name", "restart", "command", "sim"),
        [
            ("restartPolicy Always", "Always", ["serve"], {}),
            ("an empty run time", "Never", ["train"], {"runtime-seconds": ""}),
            ("the operator's sleep", "Never", ["sleep 365d"], {"runtime-seconds": "1"}),
        ],
    )
    def test_what_runs_for_ever(
        self, name: str, restart: str, command: list[str], sim: dict[str, str]
    ) -> None:
        driver = Driver(pod(restart, containers=[container(command=command)], sim=sim))
        driver.pass_time(100 * 86400)
        assert driver.summary() == "Running main=running+", name
        assert driver.wake_at is None


class TestRestarts:
    @pytest.mark.parametrize(
        ("restart", "code", "want"),
        [
            ("Always", "0", "Running main=running+"),
            ("Always", "1", "Running main=running+"),
            ("OnFailure", "0", "Succeeded main=0"),
            ("OnFailure", "1", "Running main=running+"),
            ("Never", "1", "Failed main=1"),
        ],
    )
    def test_the_restart_policy_decides(self, restart: str, code: str, want: str) -> None:
        sim = {"runtime-seconds": "10", "exit-code": code}
        assert Driver(pod(restart, sim=sim)).pass_time(10).summary() == want

    def test_the_second_failure_backs_off_and_the_code_follows_the_count(self) -> None:
        sim = {"runtime-seconds": "5", "exit-code": "1,2,0"}
        driver = Driver(pod("OnFailure", sim=sim)).pass_time(5)
        assert driver.container()["restartCount"] == 1
        assert driver.container()["lastState"]["terminated"]["exitCode"] == 1
        driver.pass_time(5)
        assert driver.summary() == f"Running {CRASH}"
        waiting = driver.container()["state"]["waiting"]
        assert waiting["message"] == (
            "back-off 10s restarting failed container=main pod=a_default(uid-a)"
        )
        assert driver.container()["lastState"]["terminated"]["exitCode"] == 2
        assert driver.truths()["Ready"] == "False"
        driver.pass_time(9.9)
        assert driver.summary() == f"Running {CRASH}"
        driver.pass_time(0.1)
        assert driver.container()["restartCount"] == 2
        driver.pass_time(5)
        assert driver.summary() == "Succeeded main=0"

    def test_the_back_off_doubles_up_to_its_limit(self) -> None:
        driver = Driver(pod("Always", sim={"runtime-seconds": "0", "exit-code": "1"}))
        driver.pass_time(10 + 20 + 40 + 80 + 160 + 300)
        assert driver.container()["restartCount"] == 7
        assert "back-off 5m0s" in driver.container()["state"]["waiting"]["message"]

    def test_a_container_that_ran_long_restarts_without_a_back_off(self) -> None:
        driver = Driver(pod("Always", sim={"runtime-seconds": "601", "exit-code": "1"}))
        driver.pass_time(601 * 3)
        assert driver.container()["restartCount"] == 3
        assert driver.summary() == "Running main=running+"

    @pytest.mark.parametrize(
        ("restart", "want"),
        [
            ("Never", "Failed prepare=7 main=PodInitializing"),
            ("OnFailure", "Running prepare=0+ main=running+"),
        ],
    )
    def test_a_failed_init_container_fails_the_pod_or_is_tried_again(
        self, restart: str, want: str
    ) -> None:
        sim = {"init-exit-code": "7,7,0"}
        driver = Driver(pod(restart, initContainers=[container("prepare")], sim=sim))
        driver.pass_time(10)
        assert driver.summary() == want

    def test_an_init_container_in_its_back_off_keeps_the_pod_pending(self) -> None:
        driver = Driver(
            pod("Always", initContainers=[container("prepare")], sim={"init-exit-code": "7"})
        ).settle()
        assert driver.summary() == "Pending prepare=CrashLoopBackOff main=PodInitializing"


class TestImagePulls:
    def test_a_failed_pull_is_tried_again_and_both_wordings_are_seen(self) -> None:
        driver = Driver(pod(sim={"image-pull-error": "true"})).settle()
        assert driver.summary() == "Pending main=ErrImagePull"
        driver.pass_time(1)
        assert driver.summary() == "Pending main=ImagePullBackOff"
        message = driver.container()["state"]["waiting"]["message"]
        assert message == 'Back-off pulling image "main:1"'
        driver.pass_time(9)
        assert driver.summary() == "Pending main=ErrImagePull"
        assert [note.reason for note in driver.notes] == ["Failed", "Failed"]

    def test_a_pod_starts_when_the_image_can_be_pulled_again(self) -> None:
        driver = Driver(pod(sim={"image-pull-error": "true"})).pass_time(100)
        driver.annotate(image_pull_error=None)
        assert driver.summary() == "Running main=running+"
        assert driver.container()["restartCount"] == 0

    def test_one_containers_image_holds_the_phase_only(self) -> None:
        mains = [container(), container("side")]
        driver = Driver(pod(containers=mains, sim={"image-pull-error.side": "true"})).settle()
        assert driver.summary() == "Pending main=running+ side=ErrImagePull"


class TestTheLaunchersInitContainer:
    def test_it_lasts_until_all_workers_are_ready(self) -> None:
        inits = [container("ipuhub-launcher")]
        driver = Driver(pod(initContainers=inits, sim={"runtime-seconds": "5"})).pass_time(3600)
        assert driver.summary() == "Pending ipuhub-launcher=running main=PodInitializing"
        driver.workers_ready = True
        driver.settle()
        assert driver.summary() == "Running ipuhub-launcher=0+ main=running+"

    def test_one_that_is_to_fail_does_not_wait(self) -> None:
        inits = [container("ipuhub-launcher")]
        driver = Driver(pod(initContainers=inits, sim={"init-exit-code": "3"})).settle()
        assert driver.summary() == "Failed ipuhub-launcher=3 main=PodInitializing"


class TestANodeProcessThatWasAway:
    @pytest.mark.parametrize("at", [0.0, 1.0, 2.5, 4.0, 30.0])
    def test_it_goes_on_from_the_api_objects(self, at: float) -> None:
        sim = {"startup-seconds": "2", "init-seconds": "2", "runtime-seconds": "20"}
        driver = Driver(pod(initContainers=[container("prepare")], sim=sim)).pass_time(at)
        before = len(driver.writes)
        driver.restart_node()
        assert len(driver.writes) == before, "nothing had changed"
        driver.pass_time(24 - at if at < 24 else 0)
        assert driver.summary() == "Succeeded prepare=0+ main=0"

    def test_a_container_that_ended_meanwhile_ended_at_its_time(self) -> None:
        driver = Driver(pod(sim={"runtime-seconds": "60"})).pass_time(10)
        driver.restart_node(down_seconds=3600)
        ended = driver.container()["state"]["terminated"]
        assert ended["finishedAt"] == "2026-03-01T12:01:00Z"

    def test_a_back_off_goes_on(self) -> None:
        sim = {"runtime-seconds": "5", "exit-code": "1"}
        driver = Driver(pod("Always", sim=sim)).pass_time(11)
        assert driver.summary() == f"Running {CRASH}"
        driver.restart_node(down_seconds=4)
        assert driver.summary() == f"Running {CRASH}"
        driver.pass_time(6)
        assert driver.container()["restartCount"] == 2

    def test_nothing_is_written_when_nothing_changes(self) -> None:
        driver = Driver(pod(sim={"runtime-seconds": "60"})).settle()
        before = len(driver.writes)
        for _ in range(5):
            driver.now += timedelta(seconds=1)
            driver.settle()
        assert len(driver.writes) == before

    def test_a_pod_that_somebody_failed_stays_failed(self) -> None:
        manifest = pod()
        manifest["status"] = {"phase": "Failed", "reason": "Evicted"}
        driver = Driver(manifest).settle()
        assert driver.writes == []
        assert driver.wake_at is None

    def test_a_pod_that_another_node_process_left_half_written_is_taken_on(self) -> None:
        manifest = pod(sim={"runtime-seconds": "5"})
        manifest["status"] = {"phase": "Pending", "startTime": "2026-03-01T11:00:00Z"}
        driver = Driver(manifest).pass_time(5)
        assert driver.summary() == "Succeeded main=0"
        assert driver.status["startTime"] == "2026-03-01T11:00:00Z"


def test_the_patch_is_for_this_pod_only_and_clears_what_is_gone() -> None:
    driver = Driver(pod(sim={"startup-seconds": "1"})).settle()
    patch = build_patch("uid-a", driver.status)
    assert patch["metadata"] == {"uid": "uid-a"}
    assert patch["status"]["reason"] is None
    ready = next(one for one in patch["status"]["conditions"] if one["type"] == "Initialized")
    assert ready["message"] is None
    assert patch["status"]["startTime"] == NOON.strftime("%Y-%m-%dT%H:%M:%SZ")
