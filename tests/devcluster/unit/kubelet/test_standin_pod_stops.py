"""Termination of simulated pods: deletion, grace periods, deadlines."""

from __future__ import annotations

import pytest

from tests.devcluster.unit.kubelet.standin_pods import TRAPPED, Driver, container, pod

BARE = ["sleep", "365d"]


class TestDeletion:
    @pytest.mark.parametrize(
        ("name", "command", "sim", "want_after", "want_code", "want_phase"),
        [
            ("ends at once with 143", ["train"], {}, 0, 143, "Failed"),
            ("our trapped sleep ends with 0", TRAPPED, {}, 0, 0, "Succeeded"),
            ("a bare sleep costs the whole grace", BARE, {}, 30, 137, "Failed"),
            ("takes its time", ["train"], {"stop-seconds": "12"}, 12, 143, "Failed"),
            ("takes too long", ["train"], {"stop-seconds": "99"}, 30, 137, "Failed"),
            ("its own code", ["train"], {"stop-exit-code": "0"}, 0, 0, "Succeeded"),
            ("its own code also with a trap", TRAPPED, {"stop-exit-code": "5"}, 0, 5, "Failed"),
            (
                "ends by itself meanwhile",
                ["train"],
                {"stop-seconds": "20", "runtime-seconds": "15"},
                5,
                0,
                "Succeeded",
            ),
        ],
    )
    def test_a_running_pod(
        self,
        name: str,
        command: list[str],
        sim: dict[str, str],
        want_after: int,
        want_code: int,
        want_phase: str,
    ) -> None:
        driver = Driver(pod(containers=[container(command=command)], sim=sim)).pass_time(10)
        driver.delete(grace=30)
        if want_after:
            driver.pass_time(want_after - 0.1)
            assert not driver.removed, name
            assert driver.summary() == "Running main=running+", name
            driver.pass_time(0.1)
        assert driver.removed, name
        assert driver.container()["state"]["terminated"]["exitCode"] == want_code, name
        assert driver.status["phase"] == want_phase, name

    def test_each_container_stops_in_its_own_time(self) -> None:
        mains = [container(command=TRAPPED), container("side")]
        driver = Driver(pod(containers=mains, sim={"stop-seconds.side": "3"})).settle()
        driver.delete()
        assert driver.summary() == "Running main=0 side=running+"
        driver.pass_time(3)
        assert driver.summary() == "Failed main=0 side=143"
        assert driver.removed

    def test_a_second_deletion_shortens_the_grace(self) -> None:
        driver = Driver(pod(sim={"stop-seconds": "99"})).settle()
        driver.delete(grace=60).pass_time(5)
        driver.delete(grace=2).pass_time(1.9)
        assert not driver.removed
        driver.pass_time(0.1)
        assert driver.removed
        assert driver.container()["state"]["terminated"]["exitCode"] == 137

    @pytest.mark.parametrize("sim", [{"startup-seconds": "60"}, {"image-pull-error": "true"}])
    def test_a_pod_that_never_ran_goes_at_once(self, sim: dict[str, str]) -> None:
        driver = Driver(pod(sim=sim)).settle().delete()
        assert driver.removed
        assert driver.status["phase"] == "Pending"

    def test_a_pod_that_was_never_accepted_goes_unwritten(self) -> None:
        driver = Driver(pod()).delete()
        assert driver.removed
        assert driver.writes == []

    def test_an_ended_pod_goes_as_it_is(self) -> None:
        driver = Driver(pod(sim={"runtime-seconds": "1"})).pass_time(1)
        before = len(driver.writes)
        driver.delete()
        assert driver.removed
        assert len(driver.writes) == before

    def test_an_init_container_is_stopped_too(self) -> None:
        driver = Driver(pod(initContainers=[container("ipuhub-launcher")])).settle().delete()
        assert driver.summary() == "Failed ipuhub-launcher=143 main=PodInitializing"
        assert driver.removed

    def test_a_grace_goes_on_after_a_restart_of_the_node_process(self) -> None:
        driver = Driver(pod(sim={"stop-seconds": "20"})).settle().delete(grace=30)
        driver.pass_time(5).restart_node(down_seconds=10)
        assert not driver.removed
        driver.pass_time(5)
        assert driver.removed

    def test_a_grace_that_ended_while_the_node_process_was_away_is_over(self) -> None:
        driver = Driver(pod(sim={"stop-seconds": "99"})).settle().delete(grace=30)
        driver.restart_node(down_seconds=300)
        assert driver.removed
        assert driver.container()["state"]["terminated"]["exitCode"] == 137


class TestDeadlines:
    def test_a_pod_that_runs_too_long_fails(self) -> None:
        driver = Driver(pod("Always", activeDeadlineSeconds=60)).pass_time(59)
        assert driver.status["phase"] == "Running"
        driver.pass_time(1)
        assert driver.status["phase"] == "Failed"
        assert driver.status["reason"] == "DeadlineExceeded"
        assert driver.status["message"] == (
            "Pod was active on the node longer than the specified deadline"
        )
        assert driver.container()["state"]["terminated"]["exitCode"] == 143
        assert not driver.removed

    def test_a_deadline_set_on_a_sleeping_worker_ends_it_with_code_0(self) -> None:
        driver = Driver(pod(containers=[container(command=TRAPPED)])).pass_time(3600)
        driver.pod["spec"]["activeDeadlineSeconds"] = 1
        driver.settle()
        assert driver.summary() == "Failed main=0"
        assert driver.status["reason"] == "DeadlineExceeded"
        ended = driver.container()["state"]["terminated"]
        assert ended["finishedAt"] == "2026-03-01T13:00:00Z"

    def test_the_pod_is_not_failed_before_its_containers_have_stopped(self) -> None:
        driver = Driver(
            pod(
                sim={"stop-seconds": "8"}, activeDeadlineSeconds=10, terminationGracePeriodSeconds=5
            )
        ).pass_time(14)
        assert driver.summary() == "Running main=running+"
        driver.pass_time(1)
        assert driver.summary() == "Failed main=137"

    def test_a_pod_that_still_waits_for_its_image_fails(self) -> None:
        driver = Driver(pod(sim={"image-pull-error": "true"}, activeDeadlineSeconds=5))
        driver.pass_time(5)
        assert driver.status["phase"] == "Failed"
        assert driver.status["reason"] == "DeadlineExceeded"

    def test_a_deadline_survives_a_restart_of_the_node_process(self) -> None:
        driver = Driver(pod(activeDeadlineSeconds=60)).pass_time(10)
        driver.restart_node(down_seconds=45)
        assert driver.status["phase"] == "Running"
        driver.pass_time(5)
        assert driver.status["reason"] == "DeadlineExceeded"

    def test_a_pod_being_stopped_by_its_deadline_can_be_deleted(self) -> None:
        manifest = pod(sim={"stop-seconds": "50"}, activeDeadlineSeconds=10)
        driver = Driver(manifest).pass_time(11).delete(grace=2).pass_time(2)
        assert driver.removed
