"""A worker for schedules: the product's own parts, on tasks instead of threads."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from codesdk.errors import Fault
from codesdk.toolcalls.claim import InFlightCalls
from codesdk.worker.calls.dispatcher import Dispatcher
from codesdk.worker.calls.recovery import Recovery
from codesdk.worker.ownership.heartbeat import HostGone
from codesdk.worker.sandboxes.registry import SandboxRegistry
from stepped import Patience, SteppedWriter
from tasks import Process, Tasks

if TYPE_CHECKING:
    from schedules import World

THREADS = 3
"""Calls that one worker runs at once."""


class Worker(Process):
    """A worker, from its registration on."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.writer = SteppedWriter(world.stage.database, self, world)
        self.dispatcher: Dispatcher | None = None
        self.recovery: Recovery
        self.leaving = False

    def start(self) -> None:
        stage = self.world.stage
        stage_writer, stage.writer = stage.writer, self.writer
        try:
            host = stage.register()
            self.generation = host.generation
            in_flight = InFlightCalls()
            execution, claims = stage.execution(), stage.claims(generation=host.generation, in_flight=in_flight)
        finally:
            stage.writer = stage_writer
        execution._abandoned = Patience(self.world)  # type: ignore[assignment]
        self.sandbox_registry = SandboxRegistry(
            sandboxes=self.world.sandboxes,
            host=host,
            instance="ins",
            database=stage.database,
            writer=self.writer,
            log=stage.log,
            artifacts=stage.artifacts,
            clock=stage.clock,
            confirm=self._confirm,
        )
        for name in ("ready", "begin", "forget", "lose", "reconcile"):
            # They hold a lock of threads, which tasks that wait for it would not let go of.
            setattr(self.sandbox_registry, name, self.world.atomically(getattr(self.sandbox_registry, name)))
        pipeline = self.world.pipeline_of(self)
        parts: dict[str, Any] = {
            "host": host,
            "sandbox_registry": self.sandbox_registry,
            "execution": execution,
            "database": stage.database,
        }
        self.recovery = Recovery(**parts, in_flight=in_flight, registry=stage.registry, writer=self.writer)
        dispatcher = Dispatcher(
            **parts,
            claims=claims,
            approval_flow=pipeline._approvals,
            deferred_approvals=pipeline._deferred,
            threads=THREADS,
            pool=lambda width, name: Tasks(self, width, name),
        )
        looking = dispatcher._fingerprints
        looking._put = self.world.atomically(looking._put)  # type: ignore[method-assign] # likewise
        looking._stopping = Patience(self.world)  # type: ignore[assignment]
        self.recovery.take_up(dispatcher.start)
        self.dispatcher = dispatcher

    def poll(self) -> None:
        if self.dispatcher is not None:
            if self._is_replaced():  # as its heartbeat tells it
                self.leave()
                return
            self.dispatcher.poll()
            with suppress(Fault):  # as its round does; the next one comes
                self.recovery.recover_orphaned(self.dispatcher.start)

    def _is_replaced(self) -> bool:
        return self.world.newest_generation() > self.generation

    def _confirm(self) -> None:
        """As its heartbeat, where that is old."""
        if self.world.newest_generation() > self.generation:
            raise HostGone("The host has a newer worker.", advice="")

    def leave(self) -> None:
        """As SIGTERM asks: whatever has not ended when this goes on is handed back."""
        if self.dispatcher is not None and not self.leaving:
            self.leaving = True
            self.dispatcher.drain(0.0)
            self.sandbox_registry.close()
            self.dispatcher._calls.shutdown(wait=True)
        self.dead = True
