"""Running the machine's own programs: argv lists, captured output, a deadline, and root where it is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codesdk.errors import ExitCode, Fault
from codesdk.settings import default_data_dir

ProgressCallback = Callable[[str], None]
"""Where provisioning tells people what it is about to do, one line at a time."""

ADMIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where Debian keeps dockerd, iptables and debootstrap; the PATH of an unprivileged user lacks the sbin half."""


class ProvisionFailed(Fault):
    """Something that the machine needs could not be found, installed or started."""

    code = "PROVISION_FAILED"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


@dataclass(frozen=True)
class Outcome:
    """How a program ended."""

    code: int
    """Exit code; negative for a signal, 127 where there is no such program, 124 where the deadline passed."""
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.code == 0

    def output_tail(self) -> str:
        """The end of what it said, for a message to people."""
        return output_tail(self.stderr.strip() or self.stdout) or f"exit code {self.code}"


def output_tail(text: str, lines: int = 3) -> str:
    """The last lines that say something, as one."""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(said[-lines:])


def which(program: str) -> str | None:
    """The program's path, looking into the sbin directories as well."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":" + ADMIN_PATH)


def run(argv: Sequence[str], *, deadline_s: float, env: Mapping[str, str] | None = None) -> Outcome:
    """Run to the end and capture; never raises for what the program does. stdin is empty: nothing may ask."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_s,
            env=None if env is None else {**os.environ, **env},
            check=False,
        )
    except (FileNotFoundError, PermissionError, NotADirectoryError) as problem:
        return Outcome(127, "", f"{argv[0]}: {problem.strerror}")
    except subprocess.TimeoutExpired:
        return Outcome(124, "", f"{argv[0]} did not end within {deadline_s:g} s")
    return Outcome(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Root:
    """How to act as root here: directly, or through a sudo that asks nothing."""

    prefix: tuple[str, ...]

    def argv(self, *words: str) -> list[str]:
        """The command line that runs `words` as root; environment assignments may come first."""
        env = ("env", f"PATH={ADMIN_PATH}")
        return [*self.prefix, *env, *words]

    def run(self, *words: str, deadline_s: float) -> Outcome:
        """Run `words` as root and capture."""
        return run(self.argv(*words), deadline_s=deadline_s)


def root() -> Root | None:
    """The way to root, or None: the caller is root, or sudo lets them in without a password."""
    if os.geteuid() == 0:
        return Root(())
    sudo = which("sudo")
    if sudo is not None and run([sudo, "-n", "true"], deadline_s=10).ok:
        return Root((sudo, "-n"))
    return None


def state_dir() -> Path:
    """Where provisioning keeps pid files, logs and locks, whatever data directory a run uses; private to the user.

    Raises:
        ProvisionFailed: it cannot be made or written.
    """
    home = default_data_dir()
    directory = home / "provision"
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)  # apart from the next: parents get the umask's mode
        directory.mkdir(exist_ok=True, mode=0o700)
    except OSError as problem:
        raise ProvisionFailed(
            f"{directory} cannot be made: {problem.strerror}.",
            advice="Set XDG_STATE_HOME to a directory that this user can write.",
        ) from problem
    return directory
