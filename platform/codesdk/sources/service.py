"""The MCP servers of a worker: starts them on demand, calls their tools, and stops them. Implements `toolcalls.run.sources`."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import mcp_types as types

from codesdk.domain.calls import CallIdentity
from codesdk.domain.clock import Clock
from codesdk.domain.ids import SessionId, TenantId
from codesdk.domain.network import hostnames
from codesdk.domain.tool_results import ToolResult
from codesdk.errors import Fault
from codesdk.registry import RegistryProvider, Source, SourceCall, ToolWithheld
from codesdk.registry.source import running_hash
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sources import store
from codesdk.sources.faults import SourceDied, SourceUnavailable
from codesdk.sources.servers.event_loop import EventLoopThread
from codesdk.sources.servers.progress_lines import ProgressLines
from codesdk.sources.servers.server import Server, StartedServer, StatusSnapshot
from codesdk.sources.servers.server_list import ServerReporter
from codesdk.sources.servers.server_status import ServerStatus
from codesdk.sources.servers.tool_results import to_tool_result
from codesdk.sources.tool_changes import ToolChanges, ToolListing, describe_change
from codesdk.storage.database import Database
from codesdk.toolcalls.run.effective_limits import SecretProblem, no_secrets
from codesdk.toolcalls.run.sources import SourceRequest

_log = logging.getLogger(__name__)

MAX_SERVERS = 64
"""Servers per worker."""
MAX_PER_TENANT = 24
"""Servers per worker for the sessions of one tenant."""
MAX_REASON = 300
"""Characters of the reason for a server's end shown to operators."""
_FIXED_LIMITS = ("memory_bytes", "pids", "open_files", "file_bytes", "egress")
"""Limits that policy may set for a call, but that can't be changed for a running server."""
_MIN_TIMEOUT_S = 0.01
"""Minimum timeout of a call whose server used up its time to start."""


class Starter(Protocol):
    """Starts servers."""

    def begin(self, source: Source, serves: SessionId | None, tenant: TenantId) -> StartedServer:
        """Start a server of a source, for one session or (None) for all."""
        ...

    def profile_of(self, source: Source) -> Profile | None:
        """The profile of its sandbox; None for a remote server."""
        ...

    def remove_orphans(self) -> None:
        """Remove sandboxes that no server of this worker uses."""
        ...


class ServerKey(NamedTuple):
    """Identifies one server."""

    source: str
    session: str
    """Empty for a shared server."""
    tenant: str
    """Empty for a shared server."""
    running: str
    """Hash of the manifest fields it runs with: a changed manifest means a new server."""


class SourceService:
    """Safe to use from the worker's threads; `tend` from one thread at a time."""

    def __init__(
        self,
        *,
        registry: RegistryProvider,
        starter: Starter,
        changes: ToolChanges,
        database: Database,
        clock: Clock,
        server_reporter: ServerReporter,
        secret_problem: SecretProblem = no_secrets,
    ) -> None:
        """`server_reporter`: publishes the servers' status. `secret_problem`: returns why a tenant's secret can't be used."""
        self._registry = registry
        self._starter = starter
        self._changes = changes
        self._database = database
        self._clock = clock
        self._server_reporter = server_reporter
        self._secret_problem = secret_problem
        self._lock = threading.Lock()
        self._servers: dict[ServerKey, Server] = {}
        self._calls: dict[CallIdentity, _InFlightCall] = {}
        self._closed = False
        self._thread = EventLoopThread("codesdk-sources")

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, asked: SourceRequest) -> ToolResult:
        """Run a call to its end; see the port."""
        runs = asked.tool.runs
        assert isinstance(runs, SourceCall)  # noqa: S101 (what the port is for)
        source = self._registry.of(asked.tenant).sources.get(runs.source)
        if source is None:
            raise SourceUnavailable(runs.source, "is no longer in the tool registry")
        if (refused := self._unmet_requirement(asked, source)) is not None:
            return refused
        in_flight = _InFlightCall()
        with self._lock:
            self._calls[asked.identity] = in_flight
        try:
            return self._run(asked, source, runs.tool, in_flight)
        except CancelledError:
            if self._closed:  # not cancelled by a client: the next worker recovers it
                raise SourceDied(source.name, "was stopped with its worker") from None
            text = f"{asked.tool.name} was cancelled; its server was sent a cancellation, and may have done part of the work."
            return ToolResult(text=text, is_error=True, code="CANCELLED")
        finally:
            with self._lock:
                self._calls.pop(asked.identity, None)

    def cancel(self, identity: CallIdentity) -> bool:
        """Cancel a call; see the port."""
        with self._lock:
            in_flight = self._calls.get(identity)
        if in_flight is not None:
            in_flight.withdraw()
        return in_flight is not None

    def _run(self, asked: SourceRequest, source: Source, tool: str, in_flight: _InFlightCall) -> ToolResult:
        began = self._clock.monotonic()
        server = self._server(source, asked)
        try:
            running = server.ready()
            in_flight.check()
            offered = running.conversation.latest.hashes()
            pinned = source.pinned.get(tool)
            if pinned is None or offered.get(tool) != pinned:
                raise ToolWithheld(asked.tool.name, describe_change(offered.get(tool, "")))
            progress = ProgressLines(self._clock.monotonic)
            left = max(_MIN_TIMEOUT_S, asked.timeout_s - (self._clock.monotonic() - began))
            asked.sent()  # may wait for the database, which doesn't count against the server's time
            in_flight.check()
            future = server.call(running, tool, asked.arguments, left, progress.report)
            future.add_done_callback(lambda _: progress.over())
            in_flight.hold(future)
            try:
                for line in progress.lines():
                    asked.on_output(line)
                answer = future.result()
            finally:
                future.cancel()
        finally:
            server.call_finished()
        result = to_tool_result(answer, asked.tool, asked.profile, asked.attach)
        return result.model_copy(update={"stdout": progress.counted})

    def _unmet_requirement(self, asked: SourceRequest, source: Source) -> ToolResult | None:
        """The refusal of a call that lacks a secret, or whose policy limits a running server can't meet."""
        name = asked.tool.name
        for secret in asked.tool.secrets:
            if problem := self._secret_problem(asked.tenant, secret):
                text = f"{name} was not run: its server needs the secret `{secret}`, and {problem}."
                return ToolResult(text=text, is_error=True, code="SECRET_MISSING")
        own = self._starter.profile_of(source)
        if own is None:
            return _unreachable_host(source, asked)
        held = own.tighten(asked.obligations)
        unmet = next((field for field in _FIXED_LIMITS if getattr(held, field) != getattr(own, field)), None)
        if unmet is None:
            return None
        text = (
            f"{name} was not run: policy holds this call to another `{unmet}` than its server runs with, and a server "
            "that runs cannot be given less. An operator can set it under `limits` in the source's manifest."
        )
        return ToolResult(text=text, is_error=True, code="BOUND_NOT_MET")

    # -- servers -----------------------------------------------------------------------------------------------------

    def _server(self, source: Source, asked: SourceRequest) -> Server:
        session = "" if source.manifest.shared else asked.session
        key = ServerKey(source.name, session, str(asked.tenant) if session else "", running_hash(source.manifest))
        with self._lock:
            if self._closed:
                raise SourceUnavailable(source.name, "was not started: the worker is stopping")
            server = self._servers.get(key)
            if server is None:
                self._check_capacity(key)
                serves = SessionId(session) if session else None
                server = self._servers[key] = Server(
                    source,
                    partial(self._starter.begin, source, serves, asked.tenant),
                    loop=self._thread.loop,
                    clock=self._clock,
                    on_listing=partial(self._on_listing, source.name),
                )
            server.call_started()  # under the lock, so that `tend` doesn't drop it
            return server

    def _check_capacity(self, key: ServerKey) -> None:
        of_tenant = sum(other.tenant == key.tenant for other in self._servers) if key.tenant else 0
        if of_tenant >= MAX_PER_TENANT:
            raise SourceUnavailable(
                key.source,
                f"was not started: this tenant's sessions already have {MAX_PER_TENANT} servers on this host",
            )
        if len(self._servers) >= MAX_SERVERS:
            raise SourceUnavailable(key.source, f"was not started: {MAX_SERVERS} servers already run on this host")

    def _on_listing(self, name: str, listing: ToolListing) -> None:
        # Compare with the current pins, which may be newer than the server.
        source = self._registry.of("").sources.get(name)
        if source is None:
            return
        try:
            self._changes.note(source, listing)
        except Fault as fault:
            _log.warning("could not record the changes of the MCP server %s: %s", name, fault)

    def tend(self) -> None:
        """Stop servers that are idle, whose session is closed, or whose manifest was removed or changed."""
        with self._lock:
            servers = dict(self._servers)
        sessions = {key.session for key in servers if key.session}
        with self._database.read() as connection:
            closed = store.closed_sessions(connection, sessions) if sessions else set()
        known = self._registry.of("").sources
        for key, server in servers.items():
            source = known.get(key.source)
            is_old = source is None or running_hash(source.manifest) != key.running
            if key.session in closed:
                is_over = server.close("was stopped: its session is closed", wait=False)
            elif is_old and not server.is_busy:
                is_over = server.close("was stopped: its manifest has changed", wait=False)
            else:
                is_over = server.stop_if_idle()
            if not is_over:
                continue
            with self._lock:
                if not server.is_busy:
                    self._servers.pop(key, None)
        self._publish_status()
        self._starter.remove_orphans()

    def close(self) -> None:
        """Stop all servers."""
        with self._lock:
            self._closed = True
            servers, calls = list(self._servers.values()), list(self._calls.values())
            self._servers.clear()
        for in_flight in calls:
            in_flight.withdraw()
        for server in servers:
            server.close("was stopped with its worker")
        self._publish_status()
        self._thread.close()

    def _publish_status(self) -> None:
        """Publish the servers' status for operators."""
        with self._lock:
            servers = sorted(self._servers.items(), key=lambda each: each[0])
        self._server_reporter.tell(
            [
                ServerStatus(
                    source=key.source,
                    session_id=SessionId(key.session) if key.session else None,
                    tenant_id=TenantId(key.tenant) if key.tenant else None,
                    **_status_fields(server.status()),
                )
                for key, server in servers
            ]
        )


def _status_fields(status: StatusSnapshot) -> dict[str, Any]:
    """The status with its reason bounded and printable: it may contain the server's own text."""
    reason = "".join(letter if letter.isprintable() else " " for letter in status.reason[:MAX_REASON])
    return status._replace(reason=reason)._asdict()


def _unreachable_host(source: Source, asked: SourceRequest) -> ToolResult | None:
    """The refusal of a call whose policy doesn't allow the server's host; None if it does."""
    reachable = asked.obligations.sandbox.egress
    host = hostnames.canonical_host(urlsplit(source.manifest.url or "").hostname or "")
    if reachable is None or any(hostnames.covers(pattern, host) for pattern in reachable):
        return None
    text = f"{asked.tool.name} was not run: policy lets this call reach no host `{host}`, where its server is."
    return ToolResult(text=text, is_error=True, code="BOUND_NOT_MET")


class _InFlightCall:
    """A call in flight, which can be withdrawn at any time, even while its server starts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._withdrawn = False
        self._future: Future[types.CallToolResult] | None = None

    def withdraw(self) -> None:
        """Withdraw the call. Idempotent."""
        with self._lock:
            self._withdrawn = True
            future = self._future
        if future is not None:
            future.cancel()

    def check(self) -> None:
        """Raise CancelledError if the call was withdrawn."""
        if self._withdrawn:
            raise CancelledError

    def hold(self, future: Future[types.CallToolResult]) -> None:
        """Attach the request to the server, so that a withdrawal cancels it."""
        with self._lock:
            self._future = future
            withdrawn = self._withdrawn
        if withdrawn:
            future.cancel()
