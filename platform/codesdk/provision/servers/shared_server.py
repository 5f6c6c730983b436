"""Shares one server between CodeSDK processes; the last one to exit stops it.

The process that starts the server records its pid and start time. Every user holds a shared file lock, which the
kernel releases if the process is killed, so the next run takes over what a killed run left, and stops it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from codesdk.provision.system.command import ProvisionFailed
from codesdk.provision.system.process_identity import ProcessIdentity

ServerHandle = ProcessIdentity | Literal["systemd"]
"""The started server: a child process, or a systemd unit."""
LOCK_TIMEOUT_S = 1200.0
"""Seconds to wait for another provisioning process. The longest step is an apt-get install from a slow mirror."""
POLL_S = 0.1
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class SharedServer:
    """The lock and record files of one shared server."""

    directory: Path
    name: str

    @property
    def record(self) -> Path:
        """The file that records who started the server."""
        return self.directory / f"{self.name}.json"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the exclusive lock for starting and stopping.

        Raises:
            ProvisionFailed: another process holds it for longer than `LOCK_TIMEOUT_S`.
        """
        until = time.monotonic() + LOCK_TIMEOUT_S
        path = self.directory / f"{self.name}.lock"
        with path.open("ab") as lock:
            while not _try_lock(lock):
                if time.monotonic() > until:
                    raise ProvisionFailed(f"Another process holds {path}.", advice=f"Find it: fuser -v {path}")
                time.sleep(POLL_S)
            yield

    def write(self, started: ServerHandle) -> None:
        """Record the started server."""
        body = {"by": started} if isinstance(started, str) else {"pid": started.pid, "started": started.started}
        self.record.write_text(json.dumps({**body, "boot": _boot()}), encoding="utf-8")

    def read(self) -> ServerHandle | None:
        """Return the server that CodeSDK started, if it still runs; None if the record is missing or unreadable."""
        try:
            body: Any = json.loads(self.record.read_text(encoding="utf-8"))
            if body["boot"] != _boot():  # pids, start times and units are only valid within one boot
                return None
            if body.get("by") == "systemd":
                return "systemd"
            known = ProcessIdentity(int(body["pid"]), int(body["started"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return known if known.alive else None

    def register(self) -> ServerUse:
        """Register this process as a user. Call it under `lock`."""
        users = (self.directory / f"{self.name}.users").open("ab")
        fcntl.flock(users, fcntl.LOCK_SH)
        return ServerUse(self, users)

    def unused(self) -> bool:
        """Whether no process uses the server. Call it under `lock`."""
        with (self.directory / f"{self.name}.users").open("ab") as users:
            return _try_lock(users)


class ServerUse:
    """One process's use of a shared server."""

    def __init__(self, server: SharedServer, users: IO[bytes]) -> None:
        self._server = server
        self._users = users

    def release(self, stop: Callable[[ServerHandle], None]) -> bool:
        """Unregister. The last user calls `stop`; returns whether this one did."""
        with self._server.lock():
            self._users.close()
            started = self._server.read()
            if started is None or not self._server.unused():
                return False
            stop(started)
            self._server.record.unlink(missing_ok=True)
            return True


def _try_lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _boot() -> str:
    return BOOT_ID.read_text(encoding="ascii").strip() if BOOT_ID.is_file() else ""
