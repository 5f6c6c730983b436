"""A whole installation in one process: the API on a loopback port, a worker over fake or real sandboxes, and the views
of the agent's client, a person and a reader.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from sqlalchemy import text

from codesdk.api.app import create_app
from codesdk.api.http_timeouts import TimeoutH11Protocol
from codesdk.api.server import _listen, _Server, _url
from codesdk.bootstrap import Services
from codesdk.domain.ids import SessionId, TenantId
from codesdk.domain.invariants import first_violation
from codesdk.sandbox.fake.sandboxes import FakeSandboxes, Script
from codesdk.sandbox.port import Sandboxes
from codesdk.sessions import NewSession
from codesdk.settings import Settings
from codesdk.tenancy.principal import Role
from codesdk.worker.calls.listener import Listener
from codesdk.worker.lifecycle.worker import Worker
from stage import wait_for

DEADLINE_S = 60.0
POLICY = """\
version: 1
name: whole
default: deny
enable: [workspace.exec]
rules:
  - {id: reads, effect: allow, classification: read-only}
  - {id: commands, effect: allow, tool: workspace.exec}
  - {id: patches, effect: allow, tool: [patch.apply, workspace.edit]}
  - {id: risky, effect: ask, tool: workspace.exec, args: {/command: {glob: "risky*"}}, approval: {timeout: 10m}}
"""


class Installation:
    """What tests drive."""

    def __init__(self, root: Path, redis_url: str, database_url: str = "", **more: Any) -> None:
        """Its sandboxes are fakes, whose commands say their own line, and hold where that says so; see `on`."""
        policies = root / "policies"
        policies.mkdir(exist_ok=True)
        (policies / "policy.yaml").write_text(POLICY)
        given = {"wait_s": DEADLINE_S, "poll_s": 0.1, "worker_threads": 8, "warm_pool": 0, **more}
        self.settings = Settings(
            data_dir=root / "data",
            policies_dir=policies,
            redis_url=redis_url,
            database_url=database_url,
            **given,
        )
        self.settings.prepare_data_dir()
        self.fakes = FakeSandboxes(self._play)
        self.sandboxes: Sandboxes = self.fakes
        self._images = {"base": "sha256:" + "0" * 64}
        self._held: dict[str, threading.Event] = {}
        self._opened = ExitStack()
        self.api: Services
        self.worker: Worker
        self.url = ""

    def _play(self, request: Any) -> Script:
        line = request.argv[-1]
        hold = self._held.setdefault(line, threading.Event()) if "hold" in line else None
        return Script(stdout=line.encode(), hold=hold)

    def on(self, sandboxes: Sandboxes, image: str) -> None:
        """Have real sandboxes, of this installation's instance, from that image."""
        self.sandboxes, self._images = sandboxes, {"base": image}

    def release(self, line: str) -> None:
        """Let the command end."""
        self._held[line].set()

    def ran(self, line: str) -> bool:
        return line in self._held

    # -- processes -------------------------------------------------------------------------------------------------

    def start_api(self) -> None:
        """As `codesdk.api.server.serve` does.

        Raises:
            Fault: what keeps it from starting; nothing is left.
        """
        self.api = Services(self.settings)
        self._opened.callback(self.api.close)
        listener = _listen("127.0.0.1", 0)
        self._opened.callback(listener.close)
        self.url = _url("127.0.0.1", listener)
        app = create_app(self.api, self.settings, self.url)
        config = uvicorn.Config(
            app, http=TimeoutH11Protocol, ws="none", lifespan="on", log_config=None, timeout_graceful_shutdown=3
        )
        server = _Server(config, app, self.settings.data_dir, self.url)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)

        def stop() -> None:
            server.should_exit = True
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

        self._opened.callback(stop)
        thread.start()
        wait_for(lambda: server.started, "the API", DEADLINE_S)

    def start_worker(self) -> None:
        """As `codesdk.worker.__main__.serve` does.

        Raises:
            Fault: what keeps it from starting; nothing is left.
        """
        with ExitStack() as opened:
            services = Services(self.settings)
            opened.callback(services.close)
            worker = self.worker = Worker(services, self.sandboxes, self._images)
            opened.callback(worker.stop)
            worker.start()
            listener = Listener(self.settings.resolved_redis_url(), worker.host.id, worker.dispatcher.wake)
            opened.callback(listener.close)
            self._opened.callback(opened.pop_all().close)

    def close(self) -> None:
        for hold in self._held.values():
            hold.set()
        self._opened.close()

    # -- who uses it -----------------------------------------------------------------------------------------------

    def open_session(self, **wish: Any) -> Agent:
        """A session, and who uses it."""
        principal, key = self.api.writer.run(
            lambda unit: self.api.directory.enroll(
                unit, "default", f"dev{time.monotonic_ns()}", (Role.DEVELOPER, Role.APPROVER)
            )
        )
        session, token = self.api.sessions.open(principal, NewSession(**wish))
        return Agent(self, session.id, token, key)

    def http(self, key: str) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, headers={"Authorization": f"Bearer {key}"}, timeout=DEADLINE_S)

    def owner_of(self, session: SessionId) -> str:
        """The id of its sandbox."""
        query = text("SELECT id FROM sandboxes WHERE session_id = :session")
        with self.api.database.read() as connection:
            return str(connection.execute(query, {"session": session}).scalar_one())

    def runs_of(self, session: SessionId) -> int:
        """How many commands its fake sandbox has started."""
        owner = self.owner_of(session)
        return sum(run[0] == owner for run in self.fakes.runs)


class Answer:
    """What the agent read: a result, or an error of the protocol. Anything else that its client raised comes out."""

    def __init__(self, result: Any = None, error: MCPError | None = None) -> None:
        data = error.data if error is not None else (result.meta or {}).get("codesdk/call")
        self.details: dict[str, Any] = dict(data or {})
        self.text = str(error) if error is not None else result.content[0].text
        self.code = self.details.get("code")
        self.output = (result.structured_content or {}).get("stdout") if error is None else None

    def __repr__(self) -> str:
        return f"<{self.code} {self.text!r}>"


class Agent:
    """One session's agent, with the official client; and the person who watches it."""

    def __init__(self, installation: Installation, session: SessionId, token: str, key: str) -> None:
        self.installation = installation
        self.session = session
        self.token = token
        self.key = key

    def call(self, command: str, *, patience_s: float = DEADLINE_S, mode: str = "auto") -> Answer:
        """One call on a connection of its own.

        Raises:
            TimeoutError: no answer in `patience_s` seconds.
        """
        return self.use("workspace_exec", {"command": command}, patience_s=patience_s, mode=mode)

    def in_the_end(self, answer: Answer) -> Answer:
        """The answer, or what it says is to be collected."""
        while (collect := answer.details.get("collect")) is not None:
            answer = self.use(collect["tool"], collect["arguments"])
        return answer

    @asynccontextmanager
    async def client(self, mode: str) -> AsyncIterator[Client]:
        """The official client, with the session's token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=DEADLINE_S) as http,
            Client(streamable_http_client(f"{self.installation.url}/mcp", http_client=http), mode=mode) as client,
        ):
            yield client

    def use(
        self, tool: str, arguments: dict[str, Any], *, patience_s: float = DEADLINE_S, mode: str = "auto"
    ) -> Answer:
        async def go() -> Any:
            async with asyncio.timeout(patience_s), self.client(mode) as client:
                return await client.call_tool(tool, arguments)

        try:
            return Answer(asyncio.run(go()))
        except MCPError as error:
            return Answer(error=error)
        except ExceptionGroup as group:  # what a client that cannot even begin makes of it
            told = group.subgroup(MCPError)
            if told is None:
                raise
            while isinstance(told, ExceptionGroup):
                told = told.exceptions[0]
            return Answer(error=told)

    def events(self) -> list[Any]:
        found: list[Any] = []
        while page := self.installation.api.log.read(self.session, found[-1].seq if found else 0):
            found += page
        return found

    def requested(self) -> int:
        """How many calls are on record."""
        return sum(event.type == "tool.call.requested" for event in self.events())

    @property
    def tenant(self) -> TenantId:
        return self.installation.api.directory.subject(self.token).tenant_id

    def approve(self, approval: Any) -> Any:
        """As a person does, over HTTP; the answer."""
        with self.installation.http(self.key) as http:
            body = {"verdict": "approve", "digest": approval.digest}
            return http.post(f"/v1/approvals/{approval.id}/decision", json=body)

    def is_lawful(self) -> None:
        assert first_violation(self.events()) is None

    def approval(self) -> Any:
        """The question that waits."""
        listing = self.installation.api.approvals.listing
        found = lambda: [  # noqa: E731
            each for each in listing(self.tenant, None, self.session) if each.state == "pending"
        ]
        return wait_for(found, "the question", DEADLINE_S)[0]

    @contextmanager
    def read_along(self) -> Iterator[list[int]]:
        """The numbers of the session's events, as a client of the SSE stream gets them that comes back when sent away."""
        seen: list[int] = []
        stop = threading.Event()

        def follow() -> None:
            last = ""
            while not stop.is_set():
                try:
                    with self.installation.http(self.key) as http:
                        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
                        path = f"/v1/sessions/{self.session}/events"
                        with http.stream("GET", path, headers=headers, timeout=1.0) as answer:
                            for line in answer.iter_lines():
                                if stop.is_set():
                                    return
                                if line.startswith("id: "):
                                    last = line.removeprefix("id: ")
                                elif line.startswith("data: {") and "seq" in (said := json.loads(line[6:])):
                                    seen.append(said["seq"])
                except httpx2.HTTPError:
                    stop.wait(0.1)

        reader = threading.Thread(target=follow, daemon=True)
        reader.start()
        try:
            yield seen
        finally:
            stop.set()
            reader.join(DEADLINE_S)
            assert not reader.is_alive()
