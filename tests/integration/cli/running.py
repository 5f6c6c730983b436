"""Runs `codesdk` as a program and inspects what it leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CODESDK = (sys.executable, "-m", "codesdk.cli")
READY_S = 90.0
STOP_S = 60.0
DEMO_POLICIES = Path(__file__).parents[3] / "policies" / "demo"


def until(check, seconds: float, what: str) -> Any:
    """What `check` returns, once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:.0f} s"
        time.sleep(0.05)
    return found


@dataclass
class Up:
    """A running `codesdk up`."""

    process: subprocess.Popen[str]
    data_dir: Path
    stderr: Path
    opened: dict[str, Any] = field(default_factory=dict)

    def said(self) -> str:
        return self.stderr.read_text()

    def ready(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()  # ends with the process, which has deadlines of its own
        assert line, self.said()
        self.opened = json.loads(line)
        return self.opened

    def pid_of(self, name: str) -> int:
        return int(json.loads((self.data_dir / "run" / f"{name}.json").read_text())["pid"])

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(STOP_S)

    def containers(self) -> list[str]:
        """Containers and volumes of this installation."""
        instance = (self.data_dir / "instance").read_text().strip()
        listed: list[str] = []
        for kind in (("ps", "--all", "--format", "{{.Names}}"), ("volume", "ls", "--format", "{{.Name}}")):
            found = subprocess.run(
                ["docker", *kind, "--filter", f"label=codesdk.instance={instance}"],
                capture_output=True,
                text=True,
                check=True,
                timeout=30,
            )
            listed += found.stdout.split()
        return listed


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of stderr that is no progress."""
        lines = [line for line in self.err.splitlines() if not line.startswith("·")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        return lines[0]


def end(process: subprocess.Popen[str]) -> None:
    """Whatever a failed test leaves behind."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
