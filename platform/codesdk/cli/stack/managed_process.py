"""One supervised process with its own process group, log and readiness check."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

from codesdk.cli.effective_settings import settings_environment
from codesdk.errors import ExitCode, Fault
from codesdk.settings import Settings, runfile

POLL_S = 0.02
LOG_LIMIT = 10 * 1024 * 1024
"""Size in bytes from which a log is renamed to `.old` at the next start."""
ERROR_PREFIX = "error: "
"""Prefix of the last line that our processes print on failure."""


class ChildFailed(Fault):
    """One of our processes did not start or did not become ready."""

    code = "PROCESS_FAILED"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


class ManagedProcess:
    """A process started from `module`, which writes `run/<name>.json` when it is ready."""

    def __init__(self, name: str, module: str, settings: Settings, *, heartbeats: bool = False) -> None:
        """`heartbeats`: whether it touches that file every second."""
        self.name = name
        self._heartbeats = heartbeats
        self._module = module
        self._settings = settings
        self.log = settings.data_dir / "log" / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._log_offset = 0

    def start(self) -> None:
        """Start the process.

        Call this from the main thread: the kernel kills the child when the thread that started it ends.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            self.log.replace(self.log.with_suffix(".log.old"))
        argv = [sys.executable, "-m", "codesdk.cli.stack.launch", str(os.getpid()), self._module]
        with self.log.open("ab") as log:
            self._log_offset = log.tell()
            # New session: Ctrl-C reaches only the supervisor, which then stops everything in order.
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **settings_environment(self._settings)},
                start_new_session=True,
            )

    def use(self, settings: Settings) -> None:
        """Use these settings for the next start."""
        self._settings = settings

    @property
    def ended(self) -> int | None:
        """Return the exit code; None while it runs or before it was started."""
        return self._process.poll() if self._process is not None else None

    def ready(self) -> dict[str, Any] | None:
        """Return the content of its run file; None until it is ready."""
        content = runfile.read(self._settings.data_dir, self.name)
        return content if content and self._process is not None and content.get("pid") == self._process.pid else None

    def last_heartbeat(self) -> object:
        """Return its last heartbeat; None if it sends none."""
        if not self._heartbeats or self.ready() is None:
            return None
        try:
            return runfile.path_of(self._settings.data_dir, self.name).stat().st_mtime_ns
        except FileNotFoundError:  # it is shutting down
            return None

    def kill(self) -> None:
        """Kill the process and its group, even if it is stopped. `ended` reports it shortly after."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait_ready(self, until: float) -> dict[str, Any]:
        """Wait for the run file and return its content. `until`: deadline on the monotonic clock.

        Raises:
            ChildFailed: it exited or timed out; the message has the end of its output.
        """
        while (content := self.ready()) is None:
            if self.ended is not None:
                raise ChildFailed(f"The {self.name} process did not start: {self.output_tail()}", advice=self._advice())
            if time.monotonic() > until:
                raise ChildFailed(f"The {self.name} process was not ready in time.", advice=self._advice())
            time.sleep(POLL_S)
        return content

    def stop(self, grace_s: float) -> None:
        """Stop it: SIGTERM, wait `grace_s` seconds, SIGKILL to its process group. Idempotent."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.kill()
                self._process.wait()
        self._process = None

    def output_tail(self) -> str:
        """Return the error that it ended with, or the last line of its log since it was started."""
        with self.log.open("rb") as log:
            log.seek(self._log_offset)
            lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        error = next(
            (line.removeprefix(ERROR_PREFIX) for line in reversed(lines) if line.startswith(ERROR_PREFIX)), None
        )
        if error is None and (self.ended or 0) < 0:
            return f"it was killed; its log is {self.log}."
        return error or (lines[-1] if lines else "it printed nothing.")

    def _advice(self) -> str:
        return f"Its log is {self.log}."
