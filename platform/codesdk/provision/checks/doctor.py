"""The checks of `codesdk doctor`. They change nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from codesdk.domain.ids import IdKind, is_id
from codesdk.errors import Fault
from codesdk.provision.checks import config_checks, engine_checks, installation_checks, local_sandbox_checks
from codesdk.provision.checks.check import Check, Status
from codesdk.provision.checks.installation_checks import SQLITE, InstallationFacts
from codesdk.provision.engines.docker_engine import Engine, EngineCandidate, find, with_docker_host
from codesdk.provision.engines.dockerd import DockerdPaths
from codesdk.provision.engines.endpoint import EndpointState
from codesdk.provision.images.base_image import DockerCommand
from codesdk.provision.servers import redis_server
from codesdk.provision.system import debian
from codesdk.provision.system.command import run, which
from codesdk.sandbox.docker.engine import Engine as EngineClient
from codesdk.sandbox.egress import secret_files
from codesdk.sandbox.images.builder import PREFIX
from codesdk.sandbox.isolation import disk_quota as disk_cap
from codesdk.sandbox.local import confinement
from codesdk.sandbox.profiles.profile import Profile
from codesdk.settings import Settings
from codesdk.storage.server_check import inspect_server

PYTHON_FLOOR = (3, 11)
API_FLOOR = (1, 41)
"""Engine API of Docker 20.10, the oldest that is tested."""
DISK_WARN, DISK_FAIL = 5 * 2**30, 2**30
"""Bytes free: a sandbox image, its base and a few workspaces need about 2 GiB."""


def run_checks(settings: Settings) -> tuple[Check, ...]:
    """Every check, in the order in which to fix them."""
    return tuple(_checks(settings))


def worst_status(checks: tuple[Check, ...]) -> Status:
    """The most severe status among the checks."""
    order = list(Status)
    return max((check.status for check in checks), key=order.index, default=Status.OK)


def _checks(settings: Settings) -> Iterator[Check]:
    yield python()
    yield data_directory(settings.data_dir)
    yield disk("disk", settings.data_dir)
    yield database(settings.resolved_database_url())
    yield redis(settings)
    seen = installation_checks.read_installation(settings)
    if isinstance(seen, Check):
        yield seen
    if isinstance(seen, InstallationFacts):
        yield from installation_checks.check_installation(seen, settings)
    yield config_checks.check_policy(settings)
    yield config_checks.check_logins(settings, seen.tenants if isinstance(seen, InstallationFacts) else None)
    if (sources := config_checks.check_mcp_servers(settings)) is not None:
        yield sources
    if settings.is_local:
        yield Check("engine", Status.INFO, "not used: sandboxes are processes of this machine")
    else:
        yield from engine(settings)
    yield secrets(settings.resolved_secrets_dir())
    yield from local_sandbox_checks.check_local_sandboxes(confinement.detect_confinement(), settings.local_sandbox)
    yield node()


def python() -> Check:
    """The interpreter."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] >= PYTHON_FLOOR:
        return Check("python", Status.OK, version)
    return Check("python", Status.FAIL, version, "Install Python 3.11 or newer")


def nearest_existing(path: Path) -> Path:
    """The path, or its nearest ancestor that exists."""
    return next((place for place in (path, *path.absolute().parents) if place.exists()), Path("/"))


def data_directory(path: Path) -> Check:
    """Whether the data directory can be written or created."""
    place = nearest_existing(path)
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return Check("data directory", Status.OK, str(path) if place == path else f"{path} (will be created)")
    what = "cannot be written" if place.is_dir() else "is not a directory"
    fix = "Choose another with --data-dir (or CODESDK_DATA_DIR), or fix its owner and mode"
    return Check("data directory", Status.FAIL, f"{place} {what}", fix)


def disk(name: str, path: Path) -> Check:
    """Free space where `path` is."""
    free = shutil.disk_usage(nearest_existing(path)).free
    detail = f"{free / 2**30:.1f} GiB free at {nearest_existing(path)}"
    if free >= DISK_WARN:
        return Check(name, Status.OK, detail)
    return Check(name, Status.FAIL if free < DISK_FAIL else Status.WARN, detail, "Free some space: docker system df")


def database(url: str) -> Check:
    """SQLite: opens the file read-only. PostgreSQL: queries the server."""
    if not url.startswith(SQLITE):
        return _postgres_check(url)
    path = Path(url.removeprefix(SQLITE))
    if not path.exists():
        return Check("database", Status.OK, f"{path} (will be created)")
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
        try:
            connection.execute("PRAGMA schema_version").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as problem:
        return Check("database", Status.FAIL, f"{path}: {problem}", "Restore it from a backup, or move it away")
    return Check("database", Status.OK, str(path))


def _postgres_check(url: str) -> Check:
    try:
        seen = inspect_server(url)
    except Fault as fault:
        return Check("database", Status.FAIL, fault.message, fault.advice())
    detail = f"PostgreSQL {seen.version} at {seen.name}, up to {seen.connections} connections"
    if seen.wrong:
        return Check("database", Status.FAIL, detail, "; ".join(seen.wrong))
    return Check("database", Status.OK, detail)


def redis(settings: Settings) -> Check:
    """Whether a Redis server answers or can be started."""
    url = settings.redis_url or f"unix://{redis_server.redis_socket_path(settings.data_dir)}"
    if redis_server.answers(url):
        return Check("redis", Status.OK, f"answers at {redis_server.without_password(url)}")
    if settings.redis_url:
        where = redis_server.without_password(url)
        return Check("redis", Status.FAIL, f"nothing answers at {where}", "Start it, or unset CODESDK_REDIS_URL")
    program = redis_server.program()
    if program is not None:
        return Check("redis", Status.OK, f"not running; will be started from {program}")
    return Check("redis", Status.FAIL, "no server program", "apt-get install redis-server, or codesdk[embedded]")


def engine(settings: Settings) -> Iterator[Check]:
    """The engine, and its own report if it answers."""
    found = find(with_docker_host(settings.docker_host, os.environ), DockerdPaths(Path()).host)
    host, tried = found.host, found.ping
    if tried.answer is not EndpointState.ENGINE:
        yield _engine_missing_check(found)
        return
    api = tuple(int(part) for part in tried.api_version.split(".") if part.isdecimal())
    detail = f"{tried.detail} (API {tried.api_version}) at {host}"
    new_enough = api >= API_FLOOR
    yield (
        Check("engine", Status.OK, detail)
        if new_enough
        else Check("engine", Status.FAIL, detail, "Upgrade to Docker 20.10 or newer")
    )
    if which("docker") is None:
        yield Check("docker command", Status.INFO, "not on PATH; only building a base image needs it (docker-cli)")
    try:
        with closing(EngineClient(host)) as client, client.doing("read its info"):
            info, is_engine_container = client.api.info(), client.is_engine_container()
        image = DockerCommand(Engine(host)).tagged(f"{PREFIX}{Profile().image}")
    except Fault as fault:
        yield Check("engine", Status.FAIL, fault.message, fault.advice())
        return
    yield from engine_checks.check_engine(info)
    root_dir = Path(str(info.get("DockerRootDir", "")))
    if host.startswith("unix://") and root_dir.is_dir():
        yield disk("engine disk", root_dir)
    yield workspace_cap(disk_cap.detect_support(host, info, is_engine_container=is_engine_container))
    yield sandbox_image(image)


def _engine_missing_check(found: EngineCandidate) -> Check:
    tried = f"no engine answers at {found.host} ({found.ping.detail})"
    if found.ping.answer is EndpointState.FORBIDDEN:
        fix = 'Run: sudo usermod -aG docker "$USER" && newgrp docker'
        return Check("engine", Status.FAIL, f"{found.host}: {found.ping.detail}", fix)
    if found.ping.answer is EndpointState.NOTHING and not found.variable and debian.can_install():
        return Check("engine", Status.WARN, tried, "`codesdk demo` and `codesdk up` install and start one")
    fix = "Start it (systemctl start docker), install Docker, or set CODESDK_DOCKER_HOST"
    return Check("engine", Status.FAIL, tried, fix)


def workspace_cap(facts: disk_cap.QuotaSupport) -> Check:
    """How the default profile's workspace size is capped, or why it isn't."""
    profile = Profile()
    name, small = "workspace cap", f"up to {profile.memory_bytes // 2**21} MiB in memory (tmpfs)"
    quota = "; the engine's disk has project quotas, which no volume uses yet" if facts.project_quota else ""
    if disk_cap.choose_backend(profile, facts) is disk_cap.QuotaBackend.LOOP:
        size = f"{profile.workspace_bytes // 2**20} MiB and {profile.workspace_inodes} files"
        return Check(name, Status.OK, f"{size} in a loop-mounted file of their own; {small}{quota}")
    return Check(
        name,
        Status.WARN,
        f"counted by the runner for the default profile ({'; '.join(facts.loop_missing)}); {small}{quota}",
        "Usage is checked after the fact; for a hard cap, fix what is missing, or set the profile's "
        "workspace_bytes small enough for memory",
    )


def sandbox_image(image: str | None) -> Check:
    """Whether the sandbox image is on the engine, with its id."""
    if image is not None:
        return Check("sandbox image", Status.OK, image[:19])
    fix = "Build it with `codesdk images build`; `codesdk up` builds it too (2 minutes)"
    return Check("sandbox image", Status.WARN, "not built yet", fix)


def secrets(directory: Path) -> Check:
    """The operator's egress secrets: names and modes, never values."""
    name = "egress secrets"
    if not directory.is_dir():
        return Check(name, Status.INFO, f"none ({directory} does not exist)")
    try:
        about, found = directory.stat(), list(secret_files.list_secrets(directory))
    except OSError as error:
        return Check(name, Status.FAIL, f"{directory} cannot be read: {error.strerror}", "Fix its owner and mode")
    bad = [why for _, _, why in found if why]
    if about.st_mode & 0o022:
        bad.insert(0, f"{directory} may be written by others than its owner.")
    if bad:
        return Check(
            name, Status.FAIL, f"{len(bad)} refused: {' '.join(bad[:5])}", "chmod 700 folders, chmod 600 files"
        )
    tenants = {tenant for tenant, _, _ in found}
    if strangers := sorted(tenant for tenant in tenants if not is_id(tenant, IdKind.TENANT)):
        fix = "Rename the folder to the tenant's id (`codesdk tenants list` shows it)"
        return Check(name, Status.WARN, f"no tenant's id, so never read: {', '.join(strangers[:5])}", fix)
    return Check(name, Status.OK, f"{len(found)} of {len(tenants)} tenants in {directory}")


def node() -> Check:
    """Only acceptance tests and agents from npm need Node."""
    program = which("node")
    if program is None or which("npm") is None:
        return Check("node", Status.INFO, "no node or npm; only agent CLIs from npm need them")
    return Check("node", Status.INFO, run([program, "--version"], deadline_s=10).stdout.strip())
