"""Cgroups for local sandboxes: caps on a whole sandbox, where this process may create cgroups.

Detected by trying, for both layouts: one hierarchy for all controllers (v2), or one for each (v1). A sandbox's cgroup
contains its runner and all processes started from it, also escaped ones; only the shim stays outside.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from codesdk.domain.model import FrozenModel
from codesdk.sandbox.profiles.profile import Profile

PROBE_S = 10.0
PERIOD_US = 100_000
"""CFS period, the kernel's default."""
POLL_S = 0.02
FOREIGN_PID = 0
"""Pid that the kernel shows for a process outside our PID namespace. Never pass it to kill: 0 is our own group."""
SELF = Path("/proc/self")
ENTER_SCRIPT = 'for file; do echo $$ > "$file" || exit 1; done'
"""Shell line that moves itself into the cgroups whose `cgroup.procs` are its arguments."""


class Controller(StrEnum):
    """The cgroup controllers that sandboxes use."""

    MEMORY = "memory"
    CPU = "cpu"
    PIDS = "pids"
    FREEZER = "freezer"


class Hierarchy(NamedTuple):
    """A cgroup hierarchy, and this process's place in it."""

    controllers: tuple[str, ...]
    """Empty for v2."""
    root: Path
    own: Path


class CgroupSupport(FrozenModel):
    """Where cgroups can be created; empty where they can't."""

    parents: dict[Controller, str] = {}
    """Parent directory by controller; with v2 the same for all."""
    unified: bool = False
    why_not: str = ""
    """Why some or all controllers are missing."""

    @property
    def whole(self) -> bool:
        """Whether memory, CPU and processes of a whole sandbox can all be capped."""
        return {Controller.MEMORY, Controller.CPU, Controller.PIDS} <= set(self.parents)

    def of(self, name: str) -> Cgroup:
        """Return the cgroup of this name, whether it exists or not."""
        return Cgroup({control: Path(parent, name) for control, parent in self.parents.items()})

    def make(self, name: str, profile: Profile) -> Cgroup:
        """Create the cgroup with the profile's caps; reuses one left by an interrupted start.

        Raises:
            OSError: the kernel refused.
        """
        group = self.of(name)
        for control, directory in group.directories.items():
            if self.unified:
                _delegate(directory.parent)
            directory.mkdir(exist_ok=True)
            for file, value in _cap_files(control, profile, unified=self.unified):
                if (directory / file).exists():
                    (directory / file).write_text(value)
        return group


class Cgroup:
    """The cgroups of one sandbox."""

    def __init__(self, directories: dict[Controller, Path]) -> None:
        self.directories = directories

    @property
    def procs_files(self) -> list[str]:
        """The `cgroup.procs` files that a process writes its pid to, to enter the cgroup."""
        return [str(place / "cgroup.procs") for place in dict.fromkeys(self.directories.values())]

    @property
    def views(self) -> dict[str, str]:
        """Name -> directory, as mounted below one path in a sandbox. An empty name stands for a single directory."""
        if len(set(self.directories.values())) == 1:
            return {"": str(next(iter(self.directories.values())))}
        return {control.value: str(path) for control, path in self.directories.items()}

    def holds(self, pid: int) -> bool:
        """Return whether the process is in all directories of the cgroup."""
        return all(str(pid) in (place / "cgroup.procs").read_text().split() for place in self.directories.values())

    def limits(self) -> dict[Controller, str]:
        """Return the limits in force by the kernel's files: bytes of memory, processes, `quota period` of CPU."""
        files = {
            Controller.MEMORY: ("memory.max", "memory.limit_in_bytes"),
            Controller.PIDS: ("pids.max",),
            Controller.CPU: ("cpu.max", "cpu.cfs_quota_us"),
        }
        found = {}
        for control, place in self.directories.items():
            for name in files.get(control, ()):
                if (place / name).exists():
                    found[control] = (place / name).read_text().strip()
        return found

    def freeze(self, *, frozen: bool) -> None:
        """Freeze or thaw all processes; does nothing without a freezer.

        Raises:
            OSError: the kernel refused, or took too long.
        """
        place = self.directories.get(Controller.FREEZER)
        if place is None or not place.is_dir():
            return
        unified = (place / "cgroup.freeze").exists()
        word = ("1" if frozen else "0") if unified else ("FROZEN" if frozen else "THAWED")
        (place / ("cgroup.freeze" if unified else "freezer.state")).write_text(word)
        deadline = time.monotonic() + PROBE_S
        while self.is_frozen() != frozen:
            if time.monotonic() > deadline:
                raise TimeoutError("the kernel did not freeze its processes in time")
            time.sleep(POLL_S)

    def is_frozen(self) -> bool:
        """Return whether all processes are frozen."""
        place = self.directories.get(Controller.FREEZER)
        if place is None:
            return False
        with contextlib.suppress(FileNotFoundError):
            if (place / "cgroup.freeze").exists():
                return "frozen 1" in (place / "cgroup.events").read_text().splitlines()
            return (place / "freezer.state").read_text().strip() == "FROZEN"
        return False

    def end(self, timeout_s: float) -> bool:
        """Kill all processes. Returns False if some survive or can't be reached."""
        deadline = time.monotonic() + timeout_s
        while pids := set(self._pids()):
            # Freeze first: a process that keeps forking could outrun the kills forever.
            with contextlib.suppress(OSError):
                self.freeze(frozen=True)
            for pid in (pids | set(self._pids())) - {FOREIGN_PID}:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # Frozen processes don't die; if thawing fails, the next round tries again until the deadline.
            with contextlib.suppress(OSError):
                self.freeze(frozen=False)
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def remove(self, timeout_s: float) -> None:
        """Remove the cgroup; its processes must have ended.

        Raises:
            OSError: processes are still in it.
        """
        deadline = time.monotonic() + timeout_s
        for place in dict.fromkeys(self.directories.values()):
            while place.is_dir():
                try:
                    place.rmdir()
                except OSError:
                    # A reaped process leaves its cgroup with a short delay.
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(POLL_S)

    def _pids(self) -> Iterator[int]:
        for place in dict.fromkeys(self.directories.values()):
            with contextlib.suppress(FileNotFoundError):
                yield from map(int, (place / "cgroup.procs").read_text().split())


NO_CGROUPS = CgroupSupport(why_not="cgroups were not looked for")


def detect(mounts: Iterable[Hierarchy] | None = None) -> CgroupSupport:
    """Return the best cgroup support that this process has here. `mounts`: for tests."""
    try:
        places = list(_hierarchies() if mounts is None else mounts)
    except OSError as error:
        return CgroupSupport(why_not=f"the kernel shows no cgroups: {error}")
    separate = [mount for mount in places if mount.controllers]
    unified = [mount for mount in places if not mount.controllers]
    found = _find_unified(unified[0]) if unified and not separate else CgroupSupport()
    if found.parents:
        return found
    parents: dict[Controller, str] = {}
    refused: list[str] = []
    for control in Controller:
        for mount in (mount for mount in separate if control.value in mount.controllers):
            why = _probe(CgroupSupport(parents={control: str(mount.own)}))
            if why is None:
                parents[control] = str(mount.own)
            else:
                refused.append(why)
    if not parents:
        return CgroupSupport(why_not=(refused or [found.why_not or "this kernel has none mounted"])[0])
    missing = [control.value for control in Controller if control not in parents]
    return CgroupSupport(parents=parents, why_not=f"no controller for {', '.join(missing)}" if missing else "")


def _find_unified(mount: Hierarchy) -> CgroupSupport:
    """Find the nearest ancestor that can have children with controllers: not one with processes, except the root."""
    why = ""
    for place in (mount.own, *mount.own.parents):
        if not place.is_relative_to(mount.root):
            break
        found = CgroupSupport(parents=dict.fromkeys(Controller, str(place)), unified=True)
        refused = _probe(found)
        if refused is None:
            return found
        why = why or refused
    return CgroupSupport(unified=True, why_not=why)


def _probe(groups: CgroupSupport) -> str | None:
    """Create a cgroup with limits and run a process in it. Returns why that fails, or None."""
    name = f"codesdk-try-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        group = groups.make(name, Profile())
        if not all(Path(door).exists() for door in group.procs_files):
            return f"{group.procs_files[0]} does not exist: this is not a cgroup file system"
        done = subprocess.run(
            ["/bin/sh", "-c", ENTER_SCRIPT, "sh", *group.procs_files],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROBE_S, check=False,
        )  # fmt: skip
        missing = {Controller.MEMORY, Controller.CPU, Controller.PIDS} & set(groups.parents) - set(group.limits())
        if done.returncode:
            return done.stderr.strip() or f"a process cannot enter it: exit code {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    else:
        return f"it has no file for the limit of {', '.join(sorted(missing))}" if missing else None
    finally:
        with contextlib.suppress(OSError):  # it was never made
            groups.of(name).remove(PROBE_S)


def _delegate(place: Path) -> None:
    """Enable the controllers for children of this cgroup."""
    wanted = {control.value for control in Controller} - {Controller.FREEZER.value}  # every cgroup of v2 can be frozen
    file = place / "cgroup.subtree_control"
    if wanted - set(file.read_text().split()):
        file.write_text(" ".join(f"+{name}" for name in sorted(wanted)))


def _cap_files(control: Controller, profile: Profile, *, unified: bool) -> tuple[tuple[str, str], ...]:
    memory, memory_and_swap = profile.memory_bytes, profile.memory_bytes + profile.swap_bytes
    quota = int(profile.cpus * PERIOD_US)
    match control, unified:
        case Controller.MEMORY, True:
            return (("memory.max", str(memory)), ("memory.swap.max", str(profile.swap_bytes)))
        case Controller.MEMORY, False:
            return (("memory.limit_in_bytes", str(memory)), ("memory.memsw.limit_in_bytes", str(memory_and_swap)))
        case Controller.CPU, True:
            return (("cpu.max", f"{quota} {PERIOD_US}"),)
        case Controller.CPU, False:
            return (("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", str(quota)))
        case Controller.PIDS, _:
            return (("pids.max", str(profile.pids)),)
    return ()


def _hierarchies() -> Iterator[Hierarchy]:
    """Yield the mounted hierarchies, from proc_pid_mountinfo(5) and cgroups(7)."""
    own: dict[frozenset[str], str] = {}
    for line in (SELF / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own[frozenset(controllers.split(",")) - {""}] = path
    for line in (SELF / "mountinfo").read_text().splitlines():
        fields = line.split()
        kind, options = fields[fields.index("-") + 1], set(fields[-1].split(","))
        if kind not in ("cgroup", "cgroup2"):
            continue
        root, where = Path(fields[3]), Path(fields[4])
        names = next((item for item in own if item and item <= options), frozenset())
        if bool(names) != (kind == "cgroup"):
            continue  # this process isn't in the hierarchy
        ours = Path(own.get(names, "/"))
        yield Hierarchy(
            tuple(sorted(names)), where, where / (ours.relative_to(root) if ours.is_relative_to(root) else ".")
        )
