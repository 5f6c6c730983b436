"""Installs an agent CLI from the npm registry, once per machine, exactly as its committed lock file specifies.

A lock file next to this module (`pins/<name>/`) has the version and hash of every package and no registry's address, so
`npm ci` verifies what it downloads. Install scripts do not run: the binaries are in the packages.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from platformdirs import user_cache_path

PINS = Path(__file__).parent / "pins"
INSTALL_LIMIT_S = 300.0
"""Claude Code is 235 MB and takes 4 s from a near registry."""
PARTIAL = ".partial"


class Reason(StrEnum):
    """Why an agent cannot be had here."""

    NO_NPM = "npm or Node is not on PATH"
    FAILED = "npm could not install it"
    TIMED_OUT = "npm did not finish in time"
    LOCKED = "another installer held the lock for too long"
    NO_BINARY = "its packages hold no binary for this machine"


class AgentUnavailable(Exception):
    """An agent CLI cannot be installed; `reason` is for programs, the text for people."""

    def __init__(self, agent: str, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{agent}: {reason}" + (f" ({detail})" if detail else ""))
        self.reason = reason


@dataclass(frozen=True)
class AgentPackage:
    """A CLI in the npm registry."""

    name: str
    """Of its folder in `pins/`."""
    binary: str
    """Glob of the program beneath the install folder; npm installs the packages of this machine only, so one fits."""


def default_cache() -> Path:
    """`$CODESDK_CACHE`, else the user's cache directory."""
    named = os.environ.get("CODESDK_CACHE")
    return Path(named) if named else user_cache_path("codesdk")


def install(package: AgentPackage, cache: Path, *, pins: Path = PINS, time_limit_s: float = INSTALL_LIMIT_S) -> Path:
    """The path of the program, installed now or before.

    Safe against a second installer (a lock that dies with its holders) and against a kill at any moment: a folder under
    its final name is complete, and what an earlier run left half done is removed.

    Raises:
        AgentUnavailable: says which of the `Reason`s.
    """
    lock_file = (pins / package.name / "package-lock.json").read_bytes()
    agents = cache / "agents"
    home = agents / f"{package.name}-{hashlib.sha256(lock_file).hexdigest()[:16]}"
    if (found := _program(package, home)) is not None:
        return found
    npm = _npm(package)
    agents.mkdir(parents=True, exist_ok=True)
    with _lock(package, agents, time_limit_s) as lock:
        if (found := _program(package, home)) is not None:
            return found
        partial = home.with_name(home.name + PARTIAL)
        for leftover in (partial, home):
            if leftover.exists():
                shutil.rmtree(leftover)
        shutil.copytree(pins / package.name, partial)
        _npm_ci(package, npm, partial, time_limit_s, lock)
        if _program(package, partial) is None:
            raise AgentUnavailable(package.name, Reason.NO_BINARY, package.binary)
        partial.rename(home)
        found = _program(package, home)
        assert found is not None
        return found


def _program(package: AgentPackage, folder: Path) -> Path | None:
    fitting = [path for path in sorted(folder.glob(package.binary)) if path.is_file() and os.access(path, os.X_OK)]
    return fitting[0] if len(fitting) == 1 else None


def _npm(package: AgentPackage) -> str:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise AgentUnavailable(package.name, Reason.NO_NPM)
    return npm


def _npm_ci(package: AgentPackage, npm: str, folder: Path, time_limit_s: float, lock: int) -> None:
    line = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    with subprocess.Popen(
        line,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        # npm holds the lock too: where we are killed and it lives on, the next installer waits for its last write.
        pass_fds=(lock,),
    ) as process:
        try:
            output, _ = process.communicate(timeout=time_limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AgentUnavailable(package.name, Reason.TIMED_OUT, f"{time_limit_s:.0f} s") from None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise AgentUnavailable(package.name, Reason.FAILED, " ".join(output.split())[-500:])


@contextmanager
def _lock(package: AgentPackage, agents: Path, time_limit_s: float) -> Iterator[int]:
    deadline = time.monotonic() + time_limit_s
    with (agents / f"{package.name}.lock").open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise AgentUnavailable(package.name, Reason.LOCKED, f"{time_limit_s:.0f} s") from None
                time.sleep(0.2)
        yield handle.fileno()
