"""A worker's parts over the fake sandboxes."""

from __future__ import annotations

import threading

import pytest

from codesdk.sandbox.fake import FakeSandboxes, Script
from codesdk.worker.dispatcher import Dispatcher
from codesdk.worker.hand import Hand
from codesdk.worker.recovery import Recovery
from codesdk.worker.rooms import Rooms

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
        self.rooms = Rooms(
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
        self.hand = Hand()
        self.recovery = Recovery(
            host=self.host,
            rooms=self.rooms,
            registry=stage.registry,
            execution=self.execution,
            hand=self.hand,
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
                rooms=self.rooms,
                claims=self.stage.claims(generation=self.host.generation, most_of_tenant=THREADS),
                execution=self.execution,
                hand=self.hand,
                pipeline=self.stage.pipeline,
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
        self.rooms.close()


@pytest.fixture
def crew(stage):
    made = Crew(stage)
    yield made
    made.close()
