"""A whole API process within this one: the real application on a loopback port, a database, and a fake worker."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.types import ASGIApp

from codesdk.api.app import create_app
from codesdk.api.http_timeouts import TimeoutH11Protocol
from codesdk.api.server import _listen, _Server, _url
from codesdk.bootstrap import Services
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import HostId
from codesdk.domain.tool_results import ToolResult
from codesdk.eventlog.hints import LocalHints
from codesdk.jobs import LocalWakeups
from codesdk.sandbox.fake.files import FakeFiles
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sessions import NewSession
from codesdk.settings import Settings
from codesdk.storage.schema import hosts
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.claim import CallClaimer
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import ClaimedCall
from codesdk.worker.deferred_approvals.file_fingerprints import FileFingerprints
from databases import PostgresDatabases
from sandboxes import docker_sandboxes
from whole_stage import Installation

LIMIT_S = 90.0
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody. A client that is given none reads the machine's certificates: 20 ms each time, for plain HTTP."""
HOST = HostId("hst_00000000000000000000000001")
POLICY = """
version: 1
name: test
enable: [workspace.exec]
default: deny
rules:
  - {id: read, effect: allow, classification: read-only, reason: Reading is allowed.}
  - {id: exec, effect: ask, tool: workspace.exec, reason: Commands are asked about.}
  - {id: write, effect: allow, tool: workspace.write, reason: Writing is allowed.}
  - {id: no-secrets, effect: deny, tool: workspace.read, args: {/path: {glob: "*.pem"}}, reason: Keys are not read.}
"""
READ = {
    "path": "a.txt",
    "content": "hello\n",
    "start_line": 1,
    "end_line": 1,
    "total_lines": 1,
    "truncated": False,
    "sha256": None,
}


class Worker:
    """Stands in for the worker process: claims calls and ends them with what the test says."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._claims = CallClaimer(
            registry=services.registry,
            bundles=services.bundles,
            approval_service=services.approvals,
            log=services.log,
            writer=services.writer,
            host=HOST,
            generation=1,
            quotas=services.quotas,
        )
        self.answer: Callable[[ClaimedCall], ToolResult] = lambda _: ToolResult(text="hello\n", structured=READ)
        self.gate = threading.Event()
        """Cleared: what was claimed keeps running."""
        self.gate.set()
        self.paused = False
        self.ran: list[str] = []
        self.cancelled: list[str] = []
        self._wake = threading.Event()
        self._closing = False
        self.files = FakeFiles(Profile())
        """The workspace that every session's calls name their files in."""
        self.sees = threading.Event()
        """Cleared: the worker has not come to look at files yet."""
        self.sees.set()
        self._fingerprints = FileFingerprints(
            host=SimpleNamespace(id=HOST),
            sandbox_registry=self,
            deferred_approvals=services.deferred_approvals,
            database=services.database,
        )
        services.wakeups.bind(HOST, lambda _: self._wake.set())
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def ready(self, _session: Any) -> Any:
        """The sandbox of a session, for whoever looks at files."""
        self.sees.wait(20)
        return SimpleNamespace(files=self.files)

    def say(self, claimed: ClaimedCall, text: str) -> None:
        """Record output of a running call."""
        stored = claimed.stored
        event = call_events.output_delta(stored.call, stored.subject, "stdout", 0, text)
        self._services.writer.run(lambda unit: self._services.log.append(unit, event))

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._closing = True
        self.gate.set()
        self._wake.set()
        self._thread.join(5.0)

    def _work(self) -> None:
        while not self._closing:
            self._wake.wait(1.0)
            self._wake.clear()
            self._fingerprints.look()
            while not self.paused and not self._closing and (claimed := self._claims.take()) is not None:
                if isinstance(claimed, ClaimedCall):
                    self._run(claimed)

    def _run(self, claimed: ClaimedCall) -> None:
        self.ran.append(claimed.stored.call.name)
        result = self.answer(claimed)
        while not self.gate.wait(0.02):
            identity = claimed.stored.identity
            with self._services.database.read() as connection:
                if store.find(connection, identity.tool_call_id).cancel_requested:
                    self.cancelled.append(identity.tool_call_id)
                    result = ToolResult(text="It was stopped.", is_error=True, code="CANCELLED")
                    break
        self._services.writer.run(
            lambda unit: complete(
                unit, self._services.log, claimed, result, result_ref=None, last_output=(), duration_ms=1.0
            )
        )


class Stack:
    """What tests drive."""

    def __init__(self, services: Services, settings: Settings, url: str) -> None:
        self.services = services
        self.settings = settings
        self.url = url
        self.mcp_url = f"{url}/mcp"
        self.mcp: Any = None
        self.stop: Callable[[], None] = lambda: None
        self.worker = Worker(services)

    def principal(self, *roles: Role, tenant: str = "default") -> Any:
        """A principal with a key."""
        return self.services.writer.run(
            lambda unit: self.services.directory.enroll(unit, tenant, "somebody", roles or (Role.OPERATOR,))
        )

    def key(self, *roles: Role, tenant: str = "default") -> str:
        return self.principal(*roles, tenant=tenant)[1]

    def http(self, key: str | None = None, **more: Any) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=LIMIT_S, verify=NO_TLS, **more)

    def open_session(self, tenant: str = "default", mode: PermissionMode = PermissionMode.AUTO) -> tuple[Any, str]:
        principal, _ = self.principal(tenant=tenant)
        return self.open_for(principal, mode)

    def open_for(self, principal: Any, mode: PermissionMode = PermissionMode.AUTO) -> tuple[Any, str]:
        """A session of that principal, and its token."""
        return self.services.sessions.open(principal, NewSession(permission_mode=mode))

    @asynccontextmanager
    async def client(self, token: str, mode: str, **headers: str):
        """The official MCP client, with a session's token; `headers`: more of them."""
        headers = {"Authorization": f"Bearer {token}", **headers}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=LIMIT_S, verify=NO_TLS) as http,
            Client(streamable_http_client(self.mcp_url, http_client=http), mode=mode) as client,
        ):
            yield client

    def types(self, session: Any) -> list[str]:
        """The types of the session's events."""
        return [event.type.value for event in self.services.log.read(session.id)]

    def ask(self, command: str, tenant: str = "default") -> Any:
        """A command's approval, in a session of its own, once a worker has looked at its files and people are asked."""
        session, token = self.open_session(tenant=tenant)
        subject = self.services.directory.subject(token)
        self.services.pipeline.submit("workspace_exec", {"command": command}, subject)
        return self.pending(session)

    def pending(self, session: Any, seconds: float = 60.0) -> Any:
        """The session's approval, once it is asked for."""
        return eventually(
            lambda: next(
                (
                    a
                    for a in self.services.approvals.listing(session.tenant_id, None, session.id)
                    if a.state == "pending"
                ),
                None,
            ),
            seconds,
        )


def eventually(look: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.02)
    pytest.fail("it did not happen in time")


def within(coroutine: Coroutine[Any, Any, Any], seconds: float = LIMIT_S) -> Any:
    """Run to the end, which must come in time."""

    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            return await coroutine

    return asyncio.run(bounded())


@pytest.fixture
def wait_s() -> float:
    """Seconds that an MCP call waits for a person."""
    return 10.0


@contextmanager
def running(
    root: Path,
    wait_s: float,
    around: Callable[[FastAPI], ASGIApp] = lambda app: app,
    *,
    policy: str = POLICY,
    **more: Any,
) -> Iterator[Stack]:
    """A stack in that directory. `around`: what is served in the application's place."""
    policies = root / "policies"
    policies.mkdir()
    (policies / "policy.yaml").write_text(policy)
    # The stand-in worker does not beat, and its host must not be lost for that.
    settings = Settings(
        data_dir=root / "data", policies_dir=policies, wait_s=wait_s, poll_s=0.2, **{"host_lease_s": 0.0, **more}
    )
    services = Services(settings, hints=LocalHints(), wakeups=LocalWakeups())
    with services.database.writer.begin() as connection:
        row = {"id": HOST, "name": "host", "generation": 1, "heartbeat": 1, "registered_at": 1.0}
        connection.execute(hosts.insert(), {**row, "images": json.dumps({"base": "sha256:image"})})
    listener = _listen("127.0.0.1", 0)
    app = create_app(services, settings, _url("127.0.0.1", listener))
    config = uvicorn.Config(
        around(app), http=TimeoutH11Protocol, ws="none", lifespan="on", log_config=None, timeout_graceful_shutdown=3
    )
    built = Stack(services, settings, _url("127.0.0.1", listener))
    built.mcp = app.state.mcp
    server = _Server(config, app, settings.data_dir, built.url)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    eventually(lambda: server.started)

    def stop() -> None:
        server.should_exit = True
        thread.join(10.0)
        assert not thread.is_alive()

    built.stop = stop
    try:
        yield built
    finally:
        built.worker.close()
        stop()
        services.close()


@pytest.fixture
def stack(tmp_path, wait_s, databases, database_kind) -> Iterator[Stack]:
    """A stack of the test's own: on SQLite in its data directory, or on a server."""
    more = {} if database_kind == "sqlite" else {"database_url": databases.migrated()}
    with running(tmp_path, wait_s, **more) as built:
        yield built


@pytest.fixture(scope="module")
def standing(tmp_path_factory) -> Iterator[Stack]:
    """A stack that a module's tests share: each opens sessions, and tenants where it lists, of its own."""
    with running(tmp_path_factory.mktemp("standing"), 10.0) as built:
        yield built


@pytest.fixture(scope="module")
def standing_on_a_server(tmp_path_factory, postgres_server) -> Iterator[Stack]:
    """Likewise, on PostgreSQL."""
    with closing(PostgresDatabases(postgres_server)) as made:
        url = made.migrated()
        with running(tmp_path_factory.mktemp("standing"), 10.0, database_url=url) as built:
            yield built


@pytest.fixture(scope="module")
def installation(engine, sandbox_image, redis_url, tmp_path_factory) -> Iterator[Installation]:
    """A whole one, with real sandboxes and a real Redis."""
    made = Installation(tmp_path_factory.mktemp("whole"), redis_url)
    with docker_sandboxes(engine.host, made.settings.instance_id()) as sandboxes:
        made.on(sandboxes, sandbox_image)
        try:
            made.start_api()
            made.start_worker()
            yield made
        finally:
            made.close()


@pytest.fixture(scope="session")
def helpers():
    """Functions that tests share: modules of tests cannot import each other."""

    class Helpers:
        eventually = staticmethod(eventually)
        within = staticmethod(within)
        running = staticmethod(running)

    return Helpers
