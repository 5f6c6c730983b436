"""A core with one MCP server as a source, in real sandboxes: accepted like an operator, called like a worker."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from codesdk.domain.calls import CallIdentity
from codesdk.domain.clock import SystemClock
from codesdk.domain.decisions import Obligations
from codesdk.domain.ids import RandomIds, SessionId, TenantId, ToolCallId
from codesdk.domain.tool_results import ToolResult
from codesdk.registry import ActiveRegistry
from codesdk.registry.pins import Pins, pin_tool, pins_text
from codesdk.sandbox.port import Sandboxes
from codesdk.sandbox.profiles.loader import Profiles
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.records import store as sandbox_store
from codesdk.sources.servers.server import list_offered_tools
from codesdk.sources.servers.server_list import ServerReporter
from codesdk.sources.service import SourceService
from codesdk.sources.starters.server_sandboxes import EngineHost, ServerSandboxes
from codesdk.sources.starters.stdio import StdioStarter
from codesdk.sources.tool_changes import ToolChanges, ToolListing
from codesdk.toolcalls.run.sources import SourceRequest
from codesdk.tools import Attachment
from stage import REPOSITORY, Stage

PROGRAM = (REPOSITORY / "tests" / "fixtures" / "sources" / "server.py").read_text()
MANIFEST: dict[str, Any] = {
    "kind": "mcp",
    "name": "fx",
    "version": "1.0.0",
    "title": "Fixture",
    "description": "A server of the tests.",
    "argv": ["python3", "-c", PROGRAM],
    "timeout_s": 30,
    "tools": {"add": {"classification": "read-only"}},
}


class LeavingClock(SystemClock):
    """The machine's clock, which a test can move on."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._stopped: float | None = None

    def stop(self) -> None:
        """Move by `ahead` alone from now on."""
        self._stopped = super().monotonic()

    def monotonic(self) -> float:
        return (super().monotonic() if self._stopped is None else self._stopped) + self.ahead


class SourceStage:
    """One worker's servers."""

    def __init__(self, stage: Stage, sandboxes: Sandboxes, instance: str, image: str, **manifest: Any) -> None:
        self.stage = stage
        self.sandboxes = sandboxes
        self.image = image
        self.instance = instance
        self.profile = Profile(grace_s=0.3)
        self.secrets: set[str] = set()
        self.clock = LeavingClock()
        self.tools = stage.root / "tools"
        self.tools.mkdir(exist_ok=True)
        shipped = (REPOSITORY / "tool-registry" / "workspace.read.yaml").read_text()
        (self.tools / "workspace.read.yaml").write_text(shipped)
        self.write(**manifest)
        self.registry = ActiveRegistry(self.tools)
        self.changes = ToolChanges(stage.database, stage.writer, self.clock)
        self.registry.set_withheld_lookup(self.changes.withheld)
        self.desk = self.worker()
        self.attached: list[Attachment] = []
        self.lines: list[bytes] = []
        self.sent: list[str] = []
        self._calls = ThreadPoolExecutor(8)

    def write(self, **changes: Any) -> None:
        """The source's manifest (JSON is YAML)."""
        (self.tools / "fx.yaml").write_text(json.dumps({**MANIFEST, **changes}))

    def starter(self, generation: int = 1) -> StdioStarter:
        """As a worker of that generation has it."""
        housing = ServerSandboxes(
            sandboxes=self.sandboxes,
            place=EngineHost(self.stage.host.id, generation, self.instance, {"base": self.image}),
            profiles=Profiles({"default": self.profile}),
            database=self.stage.database,
            writer=self.stage.writer,
            clock=self.clock,
            ids=RandomIds(self.clock),
            quotas=self.stage.quotas,
        )
        return StdioStarter(housing, self.clock, RandomIds(self.clock))

    def worker(self, generation: int = 1) -> SourceService:
        """Another worker's servers."""
        return SourceService(
            registry=self.registry,
            starter=self.starter(generation),
            changes=self.changes,
            database=self.stage.database,
            clock=self.clock,
            server_reporter=ServerReporter(self.stage.writer, self.stage.host.id, generation),
            secret_problem=lambda _, name: "" if name in self.secrets else "this tenant has none of that name",
        )

    def listing(self) -> ToolListing:
        """What the server offers now."""
        source = self.registry.shared.sources["fx"]
        subject = self.stage.subject
        begin = lambda: self.starter().begin(source, SessionId(subject.session_id), subject.tenant_id)  # noqa: E731
        return list_offered_tools(source, begin, self.clock)

    def accept(self, *names: str) -> None:
        """What it offers, or of that these tools alone."""
        listing = self.listing()
        chosen = tuple(pin_tool(tool) for tool in listing.tools if not names or tool.name in names)
        (self.tools / "fx.pins.json").write_text(pins_text(Pins(source="fx", server=listing.server, tools=chosen)))
        self.registry.refresh()

    def asked(
        self, name: str, session: str = "", tenant: str = "", timeout_s: float = 30.0, **given: Any
    ) -> SourceRequest:
        """A call as the worker hands it on."""
        call = ToolCallId(f"call_{uuid.uuid4().hex}")
        return SourceRequest(
            tool=self.registry.shared.resolve(f"fx.{name}"),
            arguments=given,
            identity=CallIdentity(tool_call_id=call, input_hash="sha256:" + "0" * 64),
            tenant=TenantId(tenant or self.stage.subject.tenant_id),
            session=SessionId(session or self.stage.subject.session_id),
            profile=self.stage.profile,
            obligations=Obligations(),
            timeout_s=timeout_s,
            on_output=lambda chunk: self.lines.append(chunk.data),
            attach=self.attached.append,
            sent=lambda: self.sent.append(call),
        )

    def call(self, name: str, **given: Any) -> ToolResult:
        """Call and wait."""
        return self.desk.call(self.asked(name, **given))

    def begin(self, asked: SourceRequest) -> Future[ToolResult]:
        """Call on another thread."""
        return self._calls.submit(self.desk.call, asked)

    def bounded(self, asked: SourceRequest, **bounds: Any) -> SourceRequest:
        """The same call, which policy holds to bounds."""
        return replace(asked, obligations=Obligations.model_validate({"sandbox": bounds}))

    def owners(self) -> list[str]:
        """Rows of the servers' sandboxes."""
        with self.stage.database.read() as connection:
            return list(sandbox_store.of_sources(connection, self.stage.host.id))

    def close(self) -> None:
        """Stop everything."""
        self.desk.close()
        self._calls.shutdown()
        assert self.owners() == []


@contextmanager
def source_stage(
    stage: Stage, sandboxes: Sandboxes, image: str, accept: bool = True, pins: str = "", **manifest: Any
) -> Iterator[SourceStage]:
    """Ends with the block, and nothing of it is left. `pins`: a text that was accepted before, in place of asking again."""
    made = SourceStage(stage, sandboxes, sandboxes._instance, image, **manifest)
    try:
        if pins:
            (made.tools / "fx.pins.json").write_text(pins)
            made.registry.refresh()
        elif accept:
            made.accept()
        yield made
    finally:
        made.close()


def until(fact: Callable[[], Any], what: str, deadline_s: float = 60.0) -> Any:
    """Wait for a fact; a loaded machine keeps the deadline."""
    tick = threading.Event()
    for _ in range(int(deadline_s / 0.05)):
        if found := fact():
            return found
        tick.wait(0.05)
    raise AssertionError(f"not within {deadline_s} s: {what}")


def pins_of(path: Path) -> dict[str, Any]:
    """A file of pins."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found
