"""An engine that fails or kills the process at a chosen call. As a program: a worker that is killed at each step."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import AttachedStream, Engine
from codesdk.sandbox.port import SandboxSpec

Trip = Callable[[int, str], None]
"""Called with the number of the call and `before` or `after`."""


class TrippingEngine(Engine):
    """Counts what it is asked to do, from the moment that it is armed."""

    def __init__(self, host: str) -> None:
        self.calls = 0
        self._trip: Trip | None = None
        super().__init__(host)

    def arm(self, trip: Trip | None) -> None:
        self.calls = 0
        self._trip = trip

    @contextlib.contextmanager
    def doing(self, what: str, *, image: str = "") -> Iterator[None]:
        if self._trip is None:
            with super().doing(what, image=image):
                yield
            return
        self.calls += 1
        number = self.calls
        self._trip(number, "before")
        with super().doing(what, image=image):
            yield
        self._trip(number, "after")

    def attach(self, container: str) -> AttachedStream:
        if self._trip is None:
            return super().attach(container)
        self.calls += 1
        number = self.calls
        self._trip(number, "before")
        trip, self._trip = self._trip, None
        try:
            stream = super().attach(container)
        finally:
            self._trip = trip
        try:
            trip(number, "after")
        except BaseException:
            stream.close()  # nobody got it who could
            raise
        return stream


def die_at(number: int, side: str) -> Trip:
    def trip(now: int, here: str) -> None:
        if (now, here) == (number, side):
            os.kill(os.getpid(), signal.SIGKILL)

    return trip


def main() -> None:
    """Host, workspaces, spec and specs' owners on the command line; one child dies at each step of an open."""
    host, workspaces, text = sys.argv[1:4]
    died = 0
    for number in range(1, 40):
        ended = [_child(host, Path(workspaces), text, number, side) for side in ("before", "after")]
        died += sum(ended)
        if not any(ended):
            break  # the open has fewer calls than that: it came through
    sys.stdout.write(json.dumps({"died": died, "steps": number - 1}))


def _child(host: str, workspaces: Path, text: str, number: int, side: str) -> bool:
    """Whether it was killed."""
    child = os.fork()
    if child == 0:
        spec = SandboxSpec.model_validate_json(text)
        spec = spec.model_copy(update={"owner": f"{spec.owner}-{number}-{side}", "tool_uid": spec.tool_uid + number})
        engine = TrippingEngine(host)
        engine.arm(die_at(number, side))
        DockerSandboxes(spec.instance, engine, workspaces=workspaces).open(spec)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


if __name__ == "__main__":
    main()
