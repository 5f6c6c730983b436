"""A server that several CodeSDK processes use and that the last of them stops.

Whoever starts it records its pid and start time; every process that uses it holds a shared file lock. The kernel drops
the lock of a process that was killed, so what a killed run left is taken over, and stopped, by the next one.
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
"""What was started: a process of ours, or a unit that systemd keeps."""
LOCK_TIMEOUT_S = 1200.0
"""Seconds to wait for another provisioning process: the longest is an apt-get install on a slow mirror."""
POLL_S = 0.1
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class SharedServer:
    """The files of one shared server."""

    directory: Path
    name: str

    @property
    def _record(self) -> Path:
        return self.directory / f"{self.name}.json"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One starting or stopping process at a time.

        Raises:
            ProvisionFailed: another one holds it for longer than `LOCK_TIMEOUT_S`.
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
        """Record what was started."""
        body = {"by": started} if isinstance(started, str) else {"pid": started.pid, "started": started.started}
        self._record.write_text(json.dumps({**body, "boot": _boot()}), encoding="utf-8")

    def read(self) -> ServerHandle | None:
        """What CodeSDK started and what still runs; None where there is none, or the record cannot be read."""
        try:
            body: Any = json.loads(self._record.read_text(encoding="utf-8"))
            if body["boot"] != _boot():  # pids, start times and units begin anew with every boot
                return None
            if body.get("by") == "systemd":
                return "systemd"
            known = ProcessIdentity(int(body["pid"]), int(body["started"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return known if known.alive else None

    def forget(self) -> None:
        """Drop the record: what runs is nobody's to stop."""
        self._record.unlink(missing_ok=True)

    def join(self) -> ServerUse:
        """Take a share, under `alone`."""
        users = (self.directory / f"{self.name}.users").open("ab")
        fcntl.flock(users, fcntl.LOCK_SH)
        return ServerUse(self, users)

    def unused(self) -> bool:
        """Whether no process holds a share, under `alone`."""
        with (self.directory / f"{self.name}.users").open("ab") as users:
            return _lock(users, fcntl.LOCK_EX)


class ServerUse:
    """One process's part in a shared server."""

    def __init__(self, of: SharedServer, held: IO[bytes]) -> None:
        self._of = of
        self._held = held

    def release(self, stop: Callable[[ServerHandle], None]) -> bool:
        """Give the share back. The last one out calls `stop`; True where it did."""
        with self._of.alone():
            self._held.close()
            started = self._of.read()
            if started is None or not self._of.unused():
                return False
            stop(started)
            self._of.forget()
            return True

    def forget(self) -> None:
        """Give the share back and let the server run on as if it had always been there."""
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
