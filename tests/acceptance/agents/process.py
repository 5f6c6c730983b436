"""One run of an agent CLI: a private home, a minimal environment, and a process group that ends with the run."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

POLL_S = 0.02
STDERR_TAIL = 2000
"""Characters of stderr that a record shows."""


@dataclass(frozen=True)
class Rooms:
    """The folders of one run. The agent sees no other home and nothing of the developer's."""

    home: Path
    work: Path
    logs: Path

    @classmethod
    def beneath(cls, folder: Path) -> Self:
        """Fresh rooms in `folder`."""
        sandbox_registry = cls(home=folder / "home", work=folder / "work", logs=folder / "logs")
        for room in (sandbox_registry.home, sandbox_registry.work, sandbox_registry.logs):
            room.mkdir(parents=True)
        return sandbox_registry


def private_env(sandbox_registry: Rooms, extra: Mapping[str, str]) -> dict[str, str]:
    """An environment that holds nothing of ours; a dead proxy makes any step off loopback fail at once."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(sandbox_registry.home),
        "TMPDIR": str(sandbox_registry.logs),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "USER": "agent",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1,localhost",
        **extra,
    }


@dataclass(frozen=True)
class Exit:
    """How the process ended."""

    code: int | None
    """Negative for a signal, as in `subprocess`; None where the deadline came first."""
    lines: tuple[str, ...]
    """Of stdout."""
    stderr_tail: str


@dataclass(frozen=True)
class Dialogue:
    """Standard input of a CLI that is led by a program; it stays open until there is nothing more to say."""

    says: bytes
    over: bytes
    """Stands in the CLI's output when it has done all."""


class AgentProcess:
    """A context manager around the running CLI; leaving it leaves nothing of the group alive."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], sandbox_registry: Rooms, dialogue: Dialogue | None = None
    ) -> None:
        """`dialogue`: none: it has no standard input."""
        self._dialogue = dialogue
        self._argv = list(argv)
        self._env = dict(env)
        self._rooms = sandbox_registry
        self._stdout = sandbox_registry.logs / "stdout"
        self._stderr = sandbox_registry.logs / "stderr"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        # Files, not pipes: nobody has to read along, and a failed test leaves them behind as evidence.
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                self._argv,
                cwd=self._rooms.work,
                env=self._env,
                stdin=subprocess.PIPE if self._dialogue else subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        if self._dialogue is not None:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):  # it ended at once: what it printed says why
                self._process.stdin.write(self._dialogue.says)
                self._process.stdin.flush()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    @property
    def running(self) -> bool:
        """Whether the CLI itself still lives."""
        return self._process is not None and self._process.returncode is None and not self._ended()

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self._stdout.read_text(encoding="utf-8", errors="replace")

    def interrupt(self) -> None:
        """SIGINT to the whole group, as a terminal sends it."""
        if self.running:
            assert self._process is not None
            os.killpg(self._process.pid, signal.SIGINT)

    def finish(self, time_limit_s: float) -> Exit:
        """Wait for the end, at most that long; then the group is killed in any case."""
        deadline = time.monotonic() + time_limit_s
        while self.running and time.monotonic() < deadline:
            time.sleep(POLL_S)
            self._hang_up()
        late = self.running
        code = self._end()
        return Exit(
            code=None if late else code,
            lines=tuple(self.output.splitlines()),
            stderr_tail=self._stderr.read_text(encoding="utf-8", errors="replace")[-STDERR_TAIL:],
        )

    def printed(self, what: bytes, time_limit_s: float) -> None:
        """Wait until its output holds that.

        Raises:
            AssertionError: it ended, or the time was over, and it had not come.
        """
        deadline = time.monotonic() + time_limit_s
        while what not in self._stdout.read_bytes():
            assert self.running, f"it ended without {what!r}: {self._stdout.read_text(errors='replace')[-STDERR_TAIL:]}"
            assert time.monotonic() < deadline, f"no {what!r} within {time_limit_s:.0f} s"
            time.sleep(POLL_S)

    def _hang_up(self) -> None:
        """Close its standard input once it has done all."""
        stdin = self._process.stdin if self._process else None
        if self._dialogue and stdin and not stdin.closed and self._dialogue.over in self._stdout.read_bytes():
            stdin.close()

    def _ended(self) -> bool:
        """Looks without reaping: as long as the leader is a zombie, its group's number cannot be another's."""
        assert self._process is not None
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _end(self) -> int | None:
        if self._process is None:
            return None
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        return self._process.returncode
