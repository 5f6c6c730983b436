"""Runs a temporary PostgreSQL cluster for tests and benchmarks.

It uses Debian's binaries, its own directory and a Unix socket. It runs as the current user, or as Debian's `postgres`
user if that is root, because PostgreSQL refuses to run as root. Existing clusters are never touched.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from codesdk.provision.servers.shared_server import ServerHandle, ServerUse, SharedServer
from codesdk.provision.system import debian
from codesdk.provision.system.command import ProgressCallback, ProvisionFailed, output_tail, run, which
from codesdk.provision.system.process_identity import ProcessIdentity, mark

PACKAGES = ("postgresql",)
DEBIAN_PROGRAMS = Path("/usr/lib/postgresql")
"""Debian installs each major version's programs here, off PATH."""
DEBIAN_USER = "postgres"
OWNER = "codesdk"
INIT_S = 120.0
START_S = 60.0
"""Seconds until it must answer: 0.1 s here, more on a loaded machine."""
STOP_S = 20.0
POLL_S = 0.02
UNSAFE_SETTINGS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
"""For tests: the cluster survives a killed server or process, but may not survive a crash of the machine."""


class PostgresMissing(ProvisionFailed):
    """No PostgreSQL server could be found or started."""

    code = "POSTGRES_MISSING"


@dataclass(frozen=True)
class _User:
    """The user that runs the server, if it isn't the current one."""

    uid: int
    gid: int


class PostgresServer:
    """A running cluster."""

    def __init__(self, directory: Path, password: str, process: ProcessIdentity, share: ServerUse) -> None:
        self.directory = directory
        self.password = password
        self.process = process
        self._share: ServerUse | None = share
        self.url = self.url_of("postgres")
        """URL of the first database as its owner, who may create others."""

    def url_of(self, database: str, *, user: str = OWNER, password: str | None = None) -> str:
        """Return the URL of a database in the cluster."""
        words = quote(self.password if password is None else password, safe="")
        return f"postgresql://{user}:{words}@/{database}?host={quote(str(self.directory), safe='')}"

    def stop(self) -> bool:
        """Stop the server and remove its directory; return whether this call did so. Idempotent."""
        share, self._share = self._share, None
        if share is None:
            return False
        share.release(self._end)
        if self.process.alive:  # another process uses it
            return False
        shutil.rmtree(self.directory, ignore_errors=True)  # another run may already be removing it
        return True

    def restart(self, *, crash: bool = False) -> None:
        """Restart the server, closing every connection. `crash`: kill it with SIGKILL first."""
        self.halt(signal.SIGKILL if crash else signal.SIGINT)
        self.resume()

    def halt(self, number: int) -> None:
        """Signal the server process: SIGINT for a fast shutdown, SIGQUIT for an immediate one, SIGKILL for a crash."""
        os.kill(self.process.pid, number)
        if not self.process.wait(STOP_S):
            raise PostgresMissing("PostgreSQL does not stop.", advice=f"Its log is {self.directory / 'log'}.")

    def resume(self) -> None:
        """Start the server again after `halt`."""
        self.process = _start_after_crash(self.directory)
        SharedServer(self.directory, "server").write(self.process)

    def _end(self, started: ServerHandle) -> None:
        if isinstance(started, ProcessIdentity):
            _stop(started)


def ensure(directory: Path, progress: ProgressCallback, *, durable: bool = False) -> PostgresServer:
    """Create a cluster in `directory`, which must be new or empty, and start it.

    If this process is root, other users must be able to traverse the parent directories.

    `durable`: use production settings; otherwise don't wait for the disk.

    Raises:
        PostgresMissing: the programs can't be installed, or the server did not start.
    """
    programs(progress)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    shares = SharedServer(directory, "server")
    with shares.lock():  # another run may be cleaning up after killed ones
        share = shares.register()
    password = secrets.token_urlsafe(16)
    try:
        _init(directory, password)
        _write_configuration(directory, {} if durable else UNSAFE_SETTINGS)
        progress(f"Starting PostgreSQL in {directory}")
        process = _start(directory)
        shares.write(process)
    except BaseException:
        share.release(lambda _started: None)
        raise
    return PostgresServer(directory, password, process, share)


def remove_unused(directory: Path) -> bool:
    """Stop the server that a killed run left in a directory and remove the directory; False if it is in use."""
    if not (directory / "server.users").exists():  # not a cluster's, or not initialised yet
        return False
    shares = SharedServer(directory, "server")
    with shares.lock():
        if not shares.unused():
            return False
        left = shares.read()
        if isinstance(left, ProcessIdentity):
            _stop(left)
        shutil.rmtree(directory, ignore_errors=True)
    return True


def programs(progress: ProgressCallback) -> Path:
    """Return the directory of `initdb` and `postgres` of the newest major version; installs them if missing.

    Raises:
        PostgresMissing: they are missing and can't be installed.
    """
    found = _programs()
    if found is None:
        debian.install(PACKAGES, "Tests need PostgreSQL's server programs", progress)
        found = _programs()
    if found is None:
        raise PostgresMissing("There is no PostgreSQL server here.", advice=debian.install_command(PACKAGES))
    return found


def _programs() -> Path | None:
    return next(_program_directories(), None)


def _program_directories() -> Iterator[Path]:
    versions = DEBIAN_PROGRAMS.glob("*/bin")
    yield from sorted((path for path in versions if (path / "initdb").exists()), key=_major, reverse=True)
    if (elsewhere := which("initdb")) is not None:
        yield Path(elsewhere).resolve().parent


def _major(programs_in: Path) -> int:
    found = re.match(r"\d+", programs_in.parent.name)
    return int(found.group()) if found else 0


def _user() -> _User | None:
    if os.geteuid() != 0:
        return None
    try:
        found = pwd.getpwnam(DEBIAN_USER)
    except KeyError:
        raise PostgresMissing(
            f"PostgreSQL does not run as root, and there is no user {DEBIAN_USER}.", advice="Run this as a user."
        ) from None
    return _User(found.pw_uid, found.pw_gid)


def _init(directory: Path, password: str) -> None:
    user = _user()
    secret = directory / "password"
    secret.touch(0o600)
    secret.write_text(password)
    if user is not None:
        for path in (directory, secret):
            os.chown(path, user.uid, user.gid)
    programs_in = _programs()
    assert programs_in is not None
    done = run(
        [
            *_run_as(user),
            str(programs_in / "initdb"),
            f"--pgdata={directory / 'data'}",
            f"--username={OWNER}",
            f"--pwfile={secret}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        ],
        deadline_s=INIT_S,
    )
    secret.unlink()
    if not done.ok:
        raise PostgresMissing(f"initdb failed: {done.output_tail()}.", advice=f"See {directory}.")


def _run_as(user: _User | None) -> list[str]:
    if user is None:
        return []
    return ["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups"]


def _write_configuration(directory: Path, more: dict[str, str]) -> None:
    settings = {"listen_addresses": "", "unix_socket_directories": str(directory), "unix_socket_permissions": "0700"}
    lines = "".join(f"{name} = '{value}'\n" for name, value in {**settings, **more}.items())
    with (directory / "data" / "postgresql.conf").open("a") as conf:
        conf.write(lines)


def _start(directory: Path) -> ProcessIdentity:
    programs_in = _programs()
    assert programs_in is not None
    log_path = directory / "log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [*_run_as(_user()), str(programs_in / "postgres"), "-D", str(directory / "data")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,  # Ctrl-C must not reach the server; the tests stop it in order
        )
    threading.Thread(target=process.wait, name="reap-postgres", daemon=True).start()
    try:
        known = _await_ready(process, directory)
    except BaseException:
        process.kill()
        raise
    if known is None:
        process.kill()
        said = output_tail(log_path.read_text(encoding="utf-8", errors="replace"))
        raise PostgresMissing(f"PostgreSQL did not start: {said or 'it said nothing'}.", advice=f"See {log_path}.")
    return known


def _start_after_crash(directory: Path) -> ProcessIdentity:
    until = time.monotonic() + STOP_S
    while True:
        try:
            return _start(directory)
        except PostgresMissing:  # children of the killed server keep its shared memory until they notice
            if time.monotonic() > until:
                raise
            time.sleep(POLL_S)


def _await_ready(process: subprocess.Popen[bytes], directory: Path) -> ProcessIdentity | None:
    # The eighth line of the pid file holds the status: whether it accepts connections.
    pid_file = directory / "data" / "postmaster.pid"
    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        lines = pid_file.read_text().splitlines() if pid_file.exists() else []
        if lines and lines[0].strip() == str(process.pid) and lines[-1].strip() == "ready":
            return mark(process.pid)
        time.sleep(POLL_S)
    return None


def _stop(process: ProcessIdentity) -> None:
    if process.alive:
        os.kill(process.pid, signal.SIGINT)  # fast shutdown; SIGTERM would wait for every client
        if not process.wait(STOP_S):
            process.terminate(STOP_S)
