"""Fixtures of all suites: the database server, and the rule that CI skips nothing.

Also the switch to a real API server, and the mark of the tests that use it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from django.db import connections
from django.test import TransactionTestCase
from hypothesis import HealthCheck, settings

from devcluster.demo.postgres import EmbeddedPostgres
from ipuhub.database import database_settings
from tests.fakes.chromium import end_browser
from tests.fakes.demosfirst import begin_with_demos
from tests.fakes.emptytables import empty_tables
from tests.fakes.freeport import free_port
from tests.fakes.postgresbinaries import chosen_binaries
from tests.fakes.staticfiles import find_static_files_once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What is collected stays, so nothing is to be found in it: a fifth of the CPU of each worker until
# its first test. It goes on in pytest_collection_finish.
gc.disable()
_skipped: list[str] = []
_rerun: list[pytest.TestReport] = []
MOST_RERUN = 3
# What pytest-django sets up for each test for the sake of marks, fixtures and an app that no test
# here has: 0.8 ms of CPU for each of twelve thousand tests.
_WITHOUT_USE = {
    "_django_clear_site_cache",
    "_django_isolate_apps",
    "_django_set_urlconf",
    "_django_setup_unittest",
    "_live_server_helper",
    "_template_string_if_invalid_marker",
}
_IGNORED_TEMPLATES = "ignore_template_errors"
# The first run of a fresh clone builds Hypothesis' tables in the first strategy that needs them:
# a second on these machines, which its health check takes for a slow strategy.
settings.register_profile(
    "ipuhub", suppress_health_check=[HealthCheck.too_slow], deadline=None, print_blob=True
)
settings.load_profile("ipuhub")


def pytest_configure() -> None:
    """Give Django a key: in production only the web process has a key. Keep loggers open for
    `capture_logs`: a logger that was used under a command's configuration would never be heard
    again."""
    from django.conf import settings as django_settings

    django_settings.SECRET_KEY = "only for the tests " * 4
    django_settings.PASSWORD_HASHERS = ["tests.fakes.quickhasher.OneRoundHasher"]
    TransactionTestCase._fixture_teardown = _empty_tables
    find_static_files_once()
    configure = structlog.configure

    def configure_without_cache(**given: Any) -> None:
        configure(**given | {"cache_logger_on_first_use": False})

    structlog.configure = configure_without_cache


def pytest_collection_finish() -> None:
    """Exclude the objects of test collection, a million that stay, from later garbage
    collections, which come after 10,000 objects, not 700: a tenth of the CPU of long tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


def _empty_tables(case: TransactionTestCase) -> None:
    """Take the place of Django's flush after a test that committed."""
    for name in case._databases_names(include_mirrors=False):
        empty_tables(connections[name])


_PROGRAMS = {
    "kubectl": "kubectl is not installed: 1.31 or later drives the product in these tests",
    "mpirun": "mpirun is not installed: Debian's package openmpi-bin has it",
    "prometheus": "prometheus is not installed: Debian's package of that name has it",
    "promtool": "promtool is not installed: Debian's package prometheus has it",
    "zsh": "zsh is not installed: Debian's package of that name has it",
}


def _without_program(error: FileNotFoundError) -> None:
    """Skip what needs a program that is not here; any other missing file stays an error."""
    if error.filename in _PROGRAMS:
        pytest.skip(_PROGRAMS[error.filename])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    except FileNotFoundError as error:
        _without_program(error)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    except FileNotFoundError as error:
        _without_program(error)
        raise


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)
    if report.outcome == "rerun":
        _rerun.append(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a CI run that skipped a test: a green run must have run everything. Fail a run, too, in
    which many tests passed the second time only: a single retry is the machine's load, many are a
    fault."""
    end_browser()
    forbidden = os.environ.get("IPUHUB_NO_SKIP") and _skipped
    if (forbidden or len(_rerun) > MOST_RERUN) and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if os.environ.get("IPUHUB_NO_SKIP") and _skipped:
        terminalreporter.section("skipped tests, which IPUHUB_NO_SKIP forbids", red=True)
        for nodeid in _skipped:
            terminalreporter.write_line(nodeid)
    if _rerun:
        terminalreporter.section("failed once, tried again", yellow=True)
        for report in _rerun:
            terminalreporter.write_line(f"{report.nodeid} ({report.when})\n{report.longreprtext}")
        if len(_rerun) > MOST_RERUN:
            terminalreporter.write_line(f"more than {MOST_RERUN}: the run fails", red=True)


@pytest.fixture(scope="session")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server: the server in DATABASE_URL, else an embedded server for this run."""
    given = os.environ.get("DATABASE_URL")
    if given:
        yield given
        return
    with _running_postgres(tmp_path_factory.mktemp("postgres")) as url:
        yield url


@contextlib.contextmanager
def _running_postgres(folder: Path) -> Iterator[str]:
    deadline = time.monotonic() + 90
    while True:
        port = free_port()
        server = EmbeddedPostgres(folder, port, durable=False, binaries=chosen_binaries())
        server.prepare()
        process = subprocess.Popen(server.command(), stderr=subprocess.DEVNULL)
        while process.poll() is None and not server.is_ready():
            assert time.monotonic() < deadline, "PostgreSQL did not come up in 90 s"
        if process.poll() is None:
            break  # else another process took the port meanwhile
        assert time.monotonic() < deadline, "PostgreSQL ended at once, again and again"
    try:
        yield server.url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(90)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(database_url: str) -> None:
    """Point Django at the tests' server before pytest-django makes its database."""
    from django.conf import settings as django_settings

    wanted = database_settings(database_url)
    django_settings.DATABASES["default"].update(wanted)
    connections["default"].settings_dict.update(wanted)


@pytest.fixture(scope="session")
def given_cluster() -> str:
    """The kubeconfig in IPUHUB_TEST_KUBECONFIG; nothing: an embedded API server is made."""
    return os.environ.get("IPUHUB_TEST_KUBECONFIG", "")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what runs on a given cluster: all else is the same with and without a cluster. Set up
    nothing that no test uses. Where several workers share the tests, let one begin with those that
    share a demo, and another with those that start one of their own."""
    if worker := getattr(config, "workerinput", None):
        items[:] = begin_with_demos(items, _demo_of, worker["workercount"])
    for item in items:
        names = getattr(item, "fixturenames", [])
        if not any(item.iter_markers("urls")) and not any(item.iter_markers(_IGNORED_TEMPLATES)):
            item.fixturenames = [name for name in names if name not in _WITHOUT_USE]  # type: ignore[attr-defined]
        if "given_cluster" in names:
            item.add_marker(pytest.mark.takes_cluster)


def _demo_of(item: pytest.Item) -> str:
    """Return the demo of a test: "shared", its "own", or none."""
    if "start_demo" in vars(item.getparent(pytest.Module).obj):  # type: ignore[union-attr]
        return "own"
    return "shared" if item.path.parent.name == "e2e" else ""
