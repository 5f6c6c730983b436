"""The external programs that tests need, found or started once per run, outside of any test's deadline.

A test that requests a fixture below (or has its marker) is skipped if the program is not available; the end of the run
lists these tests with the reason. With CI=true that is a failure instead.

Tests run in several worker processes (pytest-xdist; `suite` assigns tests to them). Workers share what belongs to the
machine: the engine, images, programs. Servers that hold a test's data (Redis, PostgreSQL, S3) are each worker's own.
`run_control` ends workers in order and records each test's outcome.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import sqlalchemy

import gvisor
import leftovers
import postgres_cluster
import suite
from codesdk.errors import Fault
from codesdk.provision.engines import docker_engine
from codesdk.provision.images import base_image as base_images
from codesdk.provision.servers import redis_server
from codesdk.provision.system import bubblewrap, debian
from codesdk.provision.system.command import state_dir, which
from codesdk.sandbox.local.confinement import Confinement
from codesdk.storage.database import Database
from codesdk.storage.migration import current_revision, upgrade
from databases import (
    POSTGRES_DIRECTORY,
    Databases,
    MemoryDatabases,
    PostgresDatabases,
    SharedStatements,
    SqliteDatabases,
    copy_template,
)
from stage import Stage, staged

pytest_plugins = ["run_control"]
# How long an example takes says how busy the machine is. All else stays as Hypothesis has it, for CI too.
SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("codesdk", parent=hypothesis.settings(), deadline=None, suppress_health_check=SLOW)
hypothesis.settings.load_profile("codesdk")
REDIS_DIRECTORY = "codesdk-tests-"
Provider = Callable[["Machine"], Any]


class Machine:
    """What was found or started for this run."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.things: dict[str, Any] = {}
        self.missing: dict[str, str] = {}
        self._cleanups: list[Callable[[], object]] = []

    def provide(self, name: str) -> None:
        """Make sure of one thing, and first of those that it is made from; remembers why where that fails."""
        if name in self.things or name in self.missing:
            return
        provider, needs = PROVIDERS[name]
        for need in needs:
            self.provide(need)
            if need in self.missing:
                self.missing[name] = self.missing[need]
                return
        try:
            self.things[name] = provider(self)
        except Fault as fault:
            self.missing[name] = str(fault)

    def at_end(self, cleanup: Callable[[], object]) -> None:
        """Run this when the tests are over, last registered first."""
        self._cleanups.append(cleanup)

    def close(self) -> None:
        """Stop what this run started."""
        while self._cleanups:
            self._cleanups.pop()()


def _engine(machine: Machine) -> docker_engine.Engine:
    found = docker_engine.ensure(machine.say)
    machine.at_end(found.stop)
    return found


def _base_image(machine: Machine) -> str:
    return base_images.ensure(machine.things["engine"], machine.say)


def _sandbox_image(machine: Machine) -> str:
    from codesdk.provision.images import sandbox_images  # noqa: PLC0415 - docker is slow to import, and few runs need it

    return sandbox_images.ensure_image_built(machine.things["engine"], machine.say)


def _gvisor_engine(machine: Machine) -> docker_engine.Engine:
    found = gvisor.ensure(machine.say)
    machine.at_end(found.stop)
    gvisor.copy_image(machine.things["sandbox_image"], machine.things["engine"], found, machine.say)
    return found


def _redis_url(machine: Machine) -> str:
    for left in Path(tempfile.gettempdir()).glob(f"{REDIS_DIRECTORY}*"):
        if left.owner() == getpass.getuser():
            redis_server.remove_unused(left)
    data_dir = Path(tempfile.mkdtemp(prefix=REDIS_DIRECTORY))
    machine.at_end(lambda: shutil.rmtree(data_dir))
    server = redis_server.ensure(data_dir, machine.say)
    machine.at_end(server.stop)
    return server.url


def _postgres(machine: Machine) -> postgres_cluster.PostgresServer:
    for left in Path(tempfile.gettempdir()).glob(f"{POSTGRES_DIRECTORY}*"):
        postgres_cluster.remove_unused(left)
    server = postgres_cluster.ensure(Path(tempfile.mkdtemp(prefix=POSTGRES_DIRECTORY)), machine.say)
    machine.at_end(server.stop)
    return server


def _s3_server(machine: Machine) -> Any:
    import s3_server  # noqa: PLC0415 - boto3 is slow to import, and few runs need it

    for left in Path(tempfile.gettempdir()).glob("codesdk-tests-s3-*"):
        if left.owner() == getpass.getuser() and not s3_server.in_use(left):
            shutil.rmtree(left, ignore_errors=True)
    directory = s3_server.make_directory()
    machine.at_end(lambda: shutil.rmtree(directory, ignore_errors=True))
    server = s3_server.ensure(directory)
    machine.at_end(server.stop)
    return server


CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def _bubblewrap(machine: Machine) -> Confinement:
    return bubblewrap.ensure(machine.say)


def _npm(machine: Machine) -> str:
    if which("npm") is None or which("node") is None:
        debian.install(
            ("nodejs", "npm"), "npm is missing (the acceptance tests install agent CLIs with it)", machine.say
        )
    return which("npm") or "npm"


def _chromium(machine: Machine) -> str:
    found = next((path for name in CHROMIUM if (path := which(name)) is not None), None)
    if found is None:
        debian.install(
            ("chromium", "fonts-dejavu-core"), "Chromium is missing (the approval page is tested in it)", machine.say
        )
    return found or which("chromium") or "chromium"


PROVIDERS: dict[str, tuple[Provider, tuple[str, ...]]] = {
    "engine": (_engine, ()),
    "base_image": (_base_image, ("engine",)),
    "sandbox_image": (_sandbox_image, ("engine",)),
    "gvisor_engine": (_gvisor_engine, ("engine", "sandbox_image")),
    "redis_url": (_redis_url, ()),
    "postgres_server": (_postgres, ()),
    "s3_server": (_s3_server, ()),
    "bubblewrap_here": (_bubblewrap, ()),
    "npm": (_npm, ()),
    "chromium_command": (_chromium, ()),
}
MARKER_OF = {
    "engine": "engine",
    "base_image": "engine",
    "sandbox_image": "engine",
    "gvisor_engine": "engine",
    "redis_url": "redis",
    "postgres_server": "postgres",
    "npm": "node",
}
FIXTURE_OF = {"engine": "engine", "redis": "redis_url", "postgres": "postgres_server", "node": "npm"}
WORKERS_OWN = {"redis_url", "postgres_server", "s3_server"}
"""Started by each worker process for itself, before the first of its tests that needs it."""
MACHINE = pytest.StashKey[Machine]()
NOT_HAD = "missing"
"""In what a worker tells at its end: reasons why something could not be had."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marker and fixture imply each other, so `-m "not engine"` is exact and a marked test cannot run without."""
    for item in items:
        fixtures: list[str] = getattr(item, "fixturenames", [])
        for fixture, marker in MARKER_OF.items():
            if fixture in fixtures:
                item.add_marker(marker)
        for marker, fixture in FIXTURE_OF.items():
            if item.get_closest_marker(marker) and fixture not in fixtures:
                fixtures.insert(0, fixture)
        path = item.path.relative_to(config.rootpath).as_posix()
        if suite.is_full(path, getattr(getattr(item, "callspec", None), "params", {})):
            item.add_marker("full")
    items.sort(key=lambda item: suite.turn_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: many tests wait."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives each worker whole groups of tests, one after the other."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only where tests run in several processes

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return suite.group_of(nodeid)

        def schedule(self) -> None:
            super().schedule()
            # A worker in place of one that crashed gets one group by that. It would wait for a second one, for ever,
            # before it begins the last test of the first.
            for node in self.nodes:
                self._reschedule(node)

    config.option.loadscopereorder = False  # the order is `suite.turn_of`
    return ByGroup(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Provide all that the selected tests need of the machine."""
    option = session.config.option
    if option.collectonly or (session.testsfailed and not option.continue_on_collection_errors):
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts its background jobs so; agents that are stopped by SIGINT would inherit it and never end.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(session.config, "workerinput"):
        leftovers.unmount(leftovers.temporary_root())
    machine = Machine(_speaker(session.config))
    session.config.stash[MACHINE] = machine
    wanted = {name for item in session.items for name in _needs(item)} - WORKERS_OWN
    if wanted:
        with (state_dir() / "tests.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one worker installs and builds, the others find it done
            for name in PROVIDERS:
                if name in wanted:
                    machine.provide(name)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Provide what the test needs beside, before its deadline begins."""
    for name in _needs(item):
        item.config.stash[MACHINE].provide(name)
    return (yield)


def _needs(item: pytest.Item) -> list[str]:
    return [name for name in getattr(item, "fixturenames", []) if name in PROVIDERS]


def _speaker(config: pytest.Config) -> Callable[[str], None]:
    reporter = config.pluginmanager.getplugin("terminalreporter")
    capture = config.pluginmanager.getplugin("capturemanager")
    worker = getattr(config, "workerinput", {}).get("workerid")

    def say(line: str) -> None:
        if worker is not None:
            with capture.global_and_fixture_disabled():
                os.write(2, f"\n[{worker}] {line}\n".encode())
        elif reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(line)

    return say


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop what this run started; what was there before stays."""
    machine = session.config.stash.get(MACHINE, None)
    if machine is not None and hasattr(session.config, "workeroutput"):
        session.config.workeroutput[NOT_HAD] = sorted(set(machine.missing.values()))
    from run_control import closing  # noqa: PLC0415 - a plugin is imported by pytest first, which rewrites its asserts

    closing(session, machine.close if machine is not None else lambda: None)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Remember what a worker could not have."""
    told = getattr(node, "workeroutput", {}).get(NOT_HAD, [])
    machine = node.config.stash.get(MACHINE, None)
    if machine is not None:
        machine.missing.update({reason: reason for reason in told})


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name every test that the machine could not run."""
    machine = config.stash.get(MACHINE, None)
    for reason in sorted(set(machine.missing.values())) if machine is not None else ():
        skipped = [
            report.nodeid
            for report in terminalreporter.stats.get("skipped", [])
            if isinstance(report.longrepr, tuple) and report.longrepr[2] == f"Skipped: {reason}"
        ]
        if skipped:
            terminalreporter.section(f"{len(skipped)} not run")
            terminalreporter.write_line(reason)
            for nodeid in skipped:
                terminalreporter.write_line(f"  {nodeid}")


def _thing(request: pytest.FixtureRequest, name: str) -> Any:
    machine = request.config.stash[MACHINE]
    machine.provide(name)  # a fixture may ask for it by name, which collection cannot see
    if name not in machine.missing:
        return machine.things[name]
    reason = machine.missing[name]
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI=true, and this machine cannot run the test: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> docker_engine.Engine:
    """A Docker engine that answers; `.host` is its address."""
    return _thing(request, "engine")


@pytest.fixture(scope="session")
def base_image(request: pytest.FixtureRequest) -> str:
    """What sandbox images are built from."""
    return _thing(request, "base_image")


@pytest.fixture(scope="session")
def sandbox_image(request: pytest.FixtureRequest) -> str:
    """The id of the default sandbox image."""
    return _thing(request, "sandbox_image")


@pytest.fixture(scope="session")
def gvisor_engine(request: pytest.FixtureRequest) -> docker_engine.Engine:
    """A second engine that has the runtime `runsc` and the default sandbox image."""
    return _thing(request, "gvisor_engine")


@pytest.fixture(scope="session")
def redis_url(request: pytest.FixtureRequest) -> str:
    """A Redis server's URL, shared by the run: use keys of your own, and socket_timeout=None."""
    return _thing(request, "redis_url")


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> postgres_cluster.PostgresServer:
    """A PostgreSQL cluster of this run: make databases of your own in it."""
    return _thing(request, "postgres_server")


@pytest.fixture(scope="session")
def bubblewrap_here(request: pytest.FixtureRequest) -> Confinement:
    """What local sandboxes are confined with."""
    return _thing(request, "bubblewrap_here")


@pytest.fixture(scope="session")
def s3_server(request: pytest.FixtureRequest) -> Any:
    """A running S3-compatible server; see tests/s3_server.py."""
    return _thing(request, "s3_server")


@pytest.fixture(scope="session")
def npm(request: pytest.FixtureRequest) -> str:
    """The npm command."""
    return _thing(request, "npm")


@pytest.fixture(scope="session")
def chromium_command(request: pytest.FixtureRequest) -> str:
    """A real browser's command."""
    return _thing(request, "chromium_command")


@pytest.fixture(scope="session", autouse=True)
def quick_databases() -> Iterator[None]:
    """Make databases cheap: tables come from a copy (tests of migrations call `upgrade`), compiled statements are shared."""
    engine = partial(sqlalchemy.create_engine, execution_options={"compiled_cache": SharedStatements()})

    def create(database: Database) -> None:
        (copy_template if database.is_sqlite and current_revision(database) is None else upgrade)(database)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codesdk.storage.migration.upgrade", create)
        patch.setattr("codesdk.storage.engines.create_engine", engine)
        yield


@pytest.fixture
def database_kind() -> str:
    """What a test's databases are; a directory or a module whose tests run on both overrides it."""
    return "sqlite"


@pytest.fixture
def databases(request: pytest.FixtureRequest, tmp_path: Path, database_kind: str) -> Iterator[Databases]:
    """Databases of the test's own."""
    made: Databases
    if database_kind == "sqlite":
        made = SqliteDatabases(tmp_path)
    elif database_kind == "memory":
        made = MemoryDatabases()
    else:
        made = PostgresDatabases(request.getfixturevalue("postgres_server"))
    yield made
    made.close()


@pytest.fixture
def stage(tmp_path: Path, databases: Databases) -> Iterator[Stage]:
    """One tenant, one host, one open session, under `stage.POLICY`."""
    with staged(tmp_path, databases.migrated()) as made:
        yield made
