"""The parts of a worker, with fake sandboxes."""

from __future__ import annotations

import threading

import pytest

from codesdk.sandbox.fake.sandboxes import FakeSandboxes, Script
from codesdk.toolcalls.claim import InFlightCalls
from codesdk.worker.calls.dispatcher import Dispatcher
from codesdk.worker.calls.recovery import Recovery
from codesdk.worker.sandboxes.registry import SandboxRegistry

THREADS = 4
"""Calls of one tenant that a worker runs at once."""


class Crew:
    """What one worker is made of, on a stage; `next()` is the worker after a crash."""

    def __init__(self, stage, sandboxes=None, host=None):
        self.stage = stage
        self.sandboxes = sandboxes or FakeSandboxes(self.choose)
        self.hold = threading.Event()
        self.scripts = {}
        self.host = host or stage.host
        self.sandbox_registry = SandboxRegistry(
            sandboxes=self.sandboxes,
            host=self.host,
            instance="ins",
            database=stage.database,
            writer=stage.writer,
            log=stage.log,
            artifacts=stage.artifacts,
            clock=stage.clock,
        )
        self.execution = stage.execution()
        self.in_flight = InFlightCalls(THREADS)
        self.recovery = Recovery(
            host=self.host,
            sandbox_registry=self.sandbox_registry,
            registry=stage.registry,
            execution=self.execution,
            in_flight=self.in_flight,
            database=stage.database,
            writer=stage.writer,
        )
        self._dispatcher = None

    def choose(self, request):
        """Commands by their line: `hold` runs until told; any other says its own line."""
        line = request.argv[-1]
        if line == "hold":
            return Script(stdout=b"held", hold=self.hold)
        return self.scripts.get(line, Script(stdout=line.encode()))

    @property
    def dispatcher(self):
        if self._dispatcher is None:
            self._dispatcher = Dispatcher(
                host=self.host,
                sandbox_registry=self.sandbox_registry,
                claims=self.stage.claims(generation=self.host.generation, in_flight=self.in_flight),
                execution=self.execution,
                approval_flow=self.stage.approval_flow(),
                deferred_approvals=self.stage.deferred,
                database=self.stage.database,
                threads=THREADS,
            )
        return self._dispatcher

    def next(self):
        """The next generation of worker, over the same sandboxes."""
        return Crew(self.stage, self.sandboxes, self.stage.register())

    def close(self):
        self.hold.set()
        if self._dispatcher is not None:
            self._dispatcher.drain(5.0)
        self.sandbox_registry.close()


@pytest.fixture
def crew(stage):
    made = Crew(stage)
    yield made
    made.close()
