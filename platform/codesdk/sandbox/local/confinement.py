"""Detects how a runner can be confined on this machine, by trying."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from enum import StrEnum
from pathlib import Path

from codesdk.domain.model import FrozenModel
from codesdk.sandbox.local import bwrap, cgroups, seccomp
from codesdk.sandbox.local.cgroups import NO_CGROUPS, CgroupSupport

PROBE_S = 15.0


class Isolation(StrEnum):
    """What isolates tools from this machine."""

    BUBBLEWRAP = "bubblewrap"
    """Namespaces of their own for network, processes and mounts."""
    NONE = "none"
    """Only user ids and limits."""


class Confinement(FrozenModel):
    """How local sandboxes are confined on this machine."""

    isolation: Isolation
    apart: bool
    """Whether tools run as a separate user, who has no access to the runner and the data directory."""
    program: str = ""
    """Path of bwrap, if used."""
    why_not: str = ""
    """Why bubblewrap isn't used."""
    groups: CgroupSupport = NO_CGROUPS
    """Cgroups that can cap a whole sandbox."""

    @property
    def network(self) -> bool:
        """Whether tools can reach this machine's network."""
        return self.isolation is Isolation.NONE


def detect_confinement(program: str | None = None) -> Confinement:
    """Return the strongest confinement that works. `program`: path of bwrap; None searches PATH, empty uses none."""
    apart = os.geteuid() == 0
    found = shutil.which("bwrap") if program is None else program
    if not found:
        why = "bubblewrap is not installed (`apt-get install bubblewrap`)" if program is None else "it is switched off"
        return Confinement(isolation=Isolation.NONE, apart=apart, why_not=why, groups=cgroups.detect())
    refused = _probe(found, apart=apart)
    if refused is None:
        return Confinement(isolation=Isolation.BUBBLEWRAP, apart=apart, program=found, groups=cgroups.detect())
    why = f"bubblewrap does not work here: {refused}"
    return Confinement(isolation=Isolation.NONE, apart=apart, why_not=why, groups=cgroups.detect())


def _probe(program: str, *, apart: bool) -> str | None:
    """Run `true` confined as a sandbox is. Returns why that fails, or None."""
    read, write = os.pipe()
    try:
        with tempfile.TemporaryDirectory(prefix="codesdk-bwrap-") as folder, os.fdopen(write, "wb") as pipe:
            (Path(folder) / "etc").mkdir()
            for name in ("passwd", "group"):
                (Path(folder) / "etc" / name).touch()
            workspace = Path(folder) / "workspace"
            workspace.mkdir()
            if seccomp.supported():
                pipe.write(seccomp.program())
            pipe.close()
            isolation = bwrap.BwrapConfig(
                program=program, etc=Path(folder) / "etc", source=workspace, workspace="/workspace", apart=apart
            )
            argv = [
                str(read) if part == bwrap.SECCOMP_FD else part
                for part in bwrap.command(isolation, ["true"], info=False)
            ]
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROBE_S, check=False,
                pass_fds=[read], env={"PATH": bwrap.SYSTEM_PATH},
            )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        os.close(read)
    return None if done.returncode == 0 else (done.stderr.strip() or f"exit code {done.returncode}")
