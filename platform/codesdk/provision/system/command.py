"""Runs system programs: argv lists, captured output, a deadline, and root if allowed."""

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
"""Receives one line about each provisioning step before it runs."""

ADMIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Debian installs dockerd, iptables and debootstrap in sbin, which an unprivileged user's PATH lacks."""


class ProvisionFailed(Fault):
    """A dependency could not be found, installed or started."""

    code = "PROVISION_FAILED"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


@dataclass(frozen=True)
class Outcome:
    """A finished program's exit code and output."""

    code: int
    """Exit code; negative for a signal, 127 if there is no such program, 124 if the deadline passed."""
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.code == 0

    def output_tail(self) -> str:
        """The end of its output, for an error message."""
        return output_tail(self.stderr.strip() or self.stdout) or f"exit code {self.code}"


def output_tail(text: str, lines: int = 3) -> str:
    """Return the last non-empty lines as one."""
    filled = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(filled[-lines:])


def which(program: str) -> str | None:
    """Return the program's path; also searches the sbin directories."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":" + ADMIN_PATH)


def run(argv: Sequence[str], *, deadline_s: float, env: Mapping[str, str] | None = None) -> Outcome:
    """Run a program to completion and capture its output.

    Never raises if the program fails. stdin is empty, so it can't prompt.
    """
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
        return Outcome(124, "", f"{argv[0]} did not exit within {deadline_s:g} s")
    return Outcome(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Root:
    """How to run commands as root: directly, or through passwordless sudo."""

    prefix: tuple[str, ...]

    def argv(self, *words: str) -> list[str]:
        """Return the command line that runs `words` as root. Environment assignments may come first."""
        env = ("env", f"PATH={ADMIN_PATH}")
        return [*self.prefix, *env, *words]

    def run(self, *words: str, deadline_s: float) -> Outcome:
        """Run `words` as root and capture the output."""
        return run(self.argv(*words), deadline_s=deadline_s)


def root() -> Root | None:
    """Return how to run commands as root; None without root or passwordless sudo."""
    if os.geteuid() == 0:
        return Root(())
    sudo = which("sudo")
    if sudo is not None and run([sudo, "-n", "true"], deadline_s=10).ok:
        return Root((sudo, "-n"))
    return None


def state_dir() -> Path:
    """Return the directory for pid files, logs and locks, independent of the data directory and private to the user.

    Raises:
        ProvisionFailed: it can't be created or written.
    """
    home = default_data_dir()
    directory = home / "provision"
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)  # mode applies to the last one only
        directory.mkdir(exist_ok=True, mode=0o700)
    except OSError as problem:
        raise ProvisionFailed(
            f"{directory} cannot be created: {problem.strerror}.",
            advice="Set XDG_STATE_HOME to a directory that this user can write.",
        ) from problem
    return directory
