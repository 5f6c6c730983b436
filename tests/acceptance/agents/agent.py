"""Runs one agent CLI, of any kind: its directories, its process, and the parsed result of its output."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from acceptance.agents.process import AgentProcess, Dialogue, Exit, Rooms, private_env
from acceptance.agents.record import AgentRun

PROMPT = "Do what the script says."
CALL_LIMIT_S = 120.0
"""How long an agent waits for one tool call. Their own limits differ by program and version, so it is set."""
RUN_LIMIT_S = 90.0
"""A run takes one to seven seconds; a busy machine may need ten times that."""


@dataclass(frozen=True)
class Wiring:
    """What one run is connected to."""

    model_url: str
    mcp_url: str
    token: str
    """A session's, for the MCP host."""
    call_limit_s: float = CALL_LIMIT_S
    """How long it waits for one tool call; what counts as waiting differs by program."""

    @property
    def call_limit_ms(self) -> int:
        """The same in milliseconds."""
        return int(self.call_limit_s * 1000)

    @property
    def bearer(self) -> dict[str, str]:
        """The token as a header of HTTP."""
        return {"Authorization": f"Bearer {self.token}"}


class Agent(ABC):
    """A context manager, so that a failing test leaves no process behind."""

    def __init__(
        self, sandbox_registry: Rooms, argv: Sequence[str], env: Mapping[str, str], dialogue: Dialogue | None = None
    ) -> None:
        """`env`: beyond what every agent gets."""
        self._rooms = sandbox_registry
        self._process = AgentProcess(argv, private_env(sandbox_registry, env), sandbox_registry, dialogue)

    @abstractmethod
    def read(self, end: Exit) -> AgentRun:
        """What its output says."""

    @property
    def work(self) -> Path:
        """Its working directory on the host, where a built-in tool would leave its traces."""
        return self._rooms.work

    @property
    def running(self) -> bool:
        """Whether it still lives."""
        return self._process.running

    @property
    def output(self) -> str:
        """All that it printed so far."""
        return self._process.output

    def __enter__(self) -> Self:
        self._process.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.__exit__(kind, error, at)

    def printed(self, what: bytes, time_limit_s: float = RUN_LIMIT_S) -> None:
        """Wait until its output holds that."""
        self._process.printed(what, time_limit_s)

    def interrupt(self) -> None:
        """What Ctrl-C at its terminal would do."""
        self._process.interrupt()

    def finish(self, time_limit_s: float = RUN_LIMIT_S) -> AgentRun:
        """Wait for its end, kill what is left, and say what happened."""
        return self.read(self._process.finish(time_limit_s))


def parse_lines(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Lines of JSON. A last one that a kill cut in half is passed over; any other must be JSON."""
    every = list(lines)
    events = []
    for number, line in enumerate(every):
        try:
            events.append(json.loads(line))
        except ValueError:
            if number != len(every) - 1:
                raise
    return events
