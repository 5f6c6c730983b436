"""What of a fake sandbox lives on while workers come and go: the part that the runner keeps in a real one."""

from __future__ import annotations

import threading
from itertools import count

from codesdk.sandbox.fake.files import FakeFiles
from codesdk.sandbox.fake.processes import Run
from codesdk.sandbox.port import SandboxSpec

_RUNNERS = count(1)


class FakeState:
    """Of one sandbox."""

    def __init__(self, spec: SandboxSpec) -> None:
        self.spec = spec
        self.runner = f"{spec.owner}-{next(_RUNNERS)}"
        self.keeps = True
        """Whether the workspace outlives what runs in it."""
        self.heard = False
        """Whether it took what was asked of its files while it ended."""
        self.generation = spec.generation
        self.files = FakeFiles(spec.profile)
        self.runs: dict[tuple[str, int], Run] = {}
        self.acknowledged: set[tuple[str, int]] = set()
        self.gone = ""
        self.paused = False
        self.lock = threading.Lock()
