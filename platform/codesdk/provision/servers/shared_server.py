"""Shares one server between CodeSDK processes; the last one to leave stops it.

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
    def _record(self) -> Path:
        return self.directory / f"{self.name}.json"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the exclusive lock for starting and stopping.

        Raises:
            ProvisionFailed: another process holds it for longer than `LOCK_TIMEOUT_S`.
        """
        until = time.monotonic() + LOCK_TIMEOUT_S
        path = self.directory / f"{self.name}.lock"
        with path.open("ab") as lock:
            while not _lock(lock, fcntl.LOCK_EX):
                if time.monotonic() > until:
                    raise ProvisionFailed(f"Another process holds {path}.", advice=f"Find it: fuser -v {path}")
                time.sleep(POLL_S)
            yield

    def write(self, started: ServerHandle) -> None:
        """Record the started server."""
        body = {"by": started} if isinstance(started, str) else {"pid": started.pid, "started": started.started}
        self._record.write_text(json.dumps({**body, "boot": _boot()}), encoding="utf-8")

    def read(self) -> ServerHandle | None:
        """Return the server that CodeSDK started, if it still runs; None if the record is missing or unreadable."""
        try:
            body: Any = json.loads(self._record.read_text(encoding="utf-8"))
            if body["boot"] != _boot():  # pids, start times and units are only valid within one boot
                return None
            if body.get("by") == "systemd":
                return "systemd"
            known = ProcessIdentity(int(body["pid"]), int(body["started"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return known if known.alive else None

    def forget(self) -> None:
        """Delete the record, so that no CodeSDK process stops the server."""
        self._record.unlink(missing_ok=True)

    def join(self) -> ServerUse:
        """Register this process as a user. Call it under `alone`."""
        users = (self.directory / f"{self.name}.users").open("ab")
        fcntl.flock(users, fcntl.LOCK_SH)
        return ServerUse(self, users)

    def unused(self) -> bool:
        """Whether no process uses the server. Call it under `alone`."""
        with (self.directory / f"{self.name}.users").open("ab") as users:
            return _lock(users, fcntl.LOCK_EX)


class ServerUse:
    """One process's use of a shared server."""

    def __init__(self, of: SharedServer, held: IO[bytes]) -> None:
        self._of = of
        self._held = held

    def release(self, stop: Callable[[ServerHandle], None]) -> bool:
        """Unregister. The last user calls `stop`; returns whether this one did."""
        with self._of.alone():
            self._held.close()
            started = self._of.read()
            if started is None or not self._of.unused():
                return False
            stop(started)
            self._of.forget()
            return True

    def forget(self) -> None:
        """Unregister and leave the server running for good."""
        with self._of.alone():
            self._of.forget()
            self._held.close()


def _lock(file: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _boot() -> str:
    return BOOT_ID.read_text(encoding="ascii").strip() if BOOT_ID.is_file() else ""
