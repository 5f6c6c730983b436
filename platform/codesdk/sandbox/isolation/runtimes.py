"""What container runtimes do differently, as data. One that is not here is taken to be like runc."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Runtime:
    """Peculiarities of one runtime; the defaults are runc's."""

    is_linux: bool = True
    """The sandbox's kernel is the host's: /proc shows no-new-privileges, seccomp, cgroups, and the engine's mounts."""
    has_subreapers: bool = True
    """Any process can take the orphans of its descendants. Else the runner must be process 1, whose they become."""
    has_inotify: bool = True
    """Its kernel tells of every change. Else directories that are watched are looked at again and again."""
    pids_each: int = 1
    """Host processes for each of the sandbox, which the engine's limit counts."""
    pids_own: int = 0
    """Host processes of the runtime's own."""

    def pids_limit(self, pids: int) -> int:
        """What the engine is told, so that `pids` processes fit inside."""
        return pids * self.pids_each + self.pids_own


RUNTIMES = {
    # Debian's runsc of 2022 on the ptrace platform: 56 host processes for one, 358 for 40, 884 for 100. Beyond the
    # limit the sandbox ends.
    "runsc": Runtime(is_linux=False, has_subreapers=False, has_inotify=False, pids_each=10, pids_own=128),
}


def of(name: str) -> Runtime:
    """The runtime of that name."""
    return RUNTIMES.get(name, Runtime())
