"""Containers and workers that are really killed during calls: read-only calls are retried, others are not (ADR 36)."""

from __future__ import annotations

import uuid

import pytest

from codesdk.registry import Registry
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.isolation import spec as specs
from codesdk.toolcalls.records.call_record import Finished, Waiting
from codesdk.worker.calls.dispatcher import Dispatcher
from codesdk.worker.ownership.registration import register
from codesdk.worker.sandboxes.registry import SandboxRegistry
from stage import bundle, wait_for

pytestmark = pytest.mark.engine

SLOWLY = """\
name: look.slowly
version: 1.0.0
title: Look slowly
description: Counts its runs where a test sees them; the first one takes its time.
classification: read-only
timeout_s: 120
runs: {argv: [sh, -c, 'echo run >> looked; test "$(wc -l < looked)" -gt 1 || sleep 100; echo seen']}
input_schema: {type: object, additionalProperties: false, properties: {}}
"""
POLICY = "version: 1\ndefault: allow\nenable: [workspace.exec]\nrules: [{id: all, effect: allow, tool: ['*']}]\n"
WRITE = ("workspace.exec", {"command": "echo run >> wrote; sleep 100"})
END_S = 90.0


class Site:
    """A session's pipeline, and a worker's parts over a real engine."""

    def __init__(self, stage, sandboxes, image, instance):
        (stage.root / "tools").mkdir()
        (stage.root / "tools" / "slowly.yaml").write_text(SLOWLY)
        registry = Registry((*stage.registry.tools(), *Registry.load(stage.root / "tools").tools()))
        rules = bundle(stage.root / "rules", POLICY, registry)
        self.stage, self.engine, self.instance = stage, sandboxes._engine, instance
        host = register(stage.writer, stage.ids, "local", {"base": image}, 0.0)
        self.subject = stage.open_session()
        self.sandbox_registry = SandboxRegistry(
            sandboxes=sandboxes,
            host=host,
            instance=instance,
            database=stage.database,
            writer=stage.writer,
            log=stage.log,
            artifacts=stage.artifacts,
            clock=stage.clock,
        )
        self.pipeline = stage.pipeline_with(rules, registry)
        self.dispatcher = Dispatcher(
            host=host,
            sandbox_registry=self.sandbox_registry,
            claims=stage.claims(rules, registry, generation=host.generation),
            execution=stage.execution(rules, registry),
            approval_flow=self.pipeline._approvals,
            deferred_approvals=self.pipeline._deferred,
            database=stage.database,
            threads=3,
        )
        stage.wakeups.bind(host.id, self.dispatcher.wake)

    def submit(self, name, given):
        return self.pipeline.submit(name, given, self.subject)

    def begun(self, file):
        """Wait until the call has written there."""

        def is_there():
            live = self.sandbox_registry.live(self.subject.session_id)
            return live is not None and not getattr(live.files.stat(file), "error", None)

        wait_for(is_there, "the call to begin", END_S)

    def end(self, how):
        """Do that to the session's container."""
        owner = self.sandbox_registry.live(self.subject.session_id).owner
        getattr(self.engine.api, how)(
            specs.container_name(self.instance, owner), **({"timeout": 0} if how == "restart" else {})
        )

    def ended(self, outcome):
        def end():
            found = self.stage.find(outcome.identity.tool_call_id, self.subject)
            return found if isinstance(found, Finished) else None

        return wait_for(end, "the call to end", END_S)

    def lines(self, file):
        return self.sandbox_registry.ready(self.subject.session_id).files.read(file).data.count(b"\n")

    def close(self):
        self.dispatcher.drain(5.0)
        self.sandbox_registry.close()


@pytest.fixture
def site(stage, engine, sandbox_image, tmp_path):
    instance = f"test-{uuid.uuid4().hex}"
    sandboxes = DockerSandboxes(instance, Engine(engine.host), workspaces=tmp_path / "workspaces")
    made = Site(stage, sandboxes, sandbox_image, instance)
    yield made
    made.close()
    sandboxes.sweep(())
    sandboxes.close()


@pytest.mark.parametrize("how", ["kill", "restart"])
def test_a_container_that_ends_under_calls_has_what_reads_run_again_and_what_writes_asked_about(site, how):
    reading = site.submit("look.slowly", {})
    site.begun("looked")
    site.end(how)
    found = site.ended(reading)
    assert (found.identity.attempt, found.result.structured["stdout"]) == (2, "seen\n")
    assert site.lines("looked") == 2  # once for each attempt
    writing = site.submit(*WRITE)
    site.begun("wrote")
    site.end(how)
    lost = site.ended(writing)
    assert (lost.identity.attempt, lost.result.code) == (1, "WORKER_LOST")
    assert site.lines("wrote") == 1
    assert isinstance(site.submit(*WRITE), Waiting)
    assert site.lines("looked") == 2
