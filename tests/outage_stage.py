"""A whole installation in one process whose Redis and database can be taken away: the API on a loopback port, a worker
over fake sandboxes, and what their client, a person and a reader see of it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx2
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from sqlalchemy import text

from codesdk.api.app import create_app
from codesdk.api.server import _listen, _Server, _url
from codesdk.api.slow_senders import Impatient
from codesdk.bootstrap import Services, open_services
from codesdk.domain.ids import SessionId
from codesdk.domain.invariants import check
from codesdk.provision import postgres, redis_server
from codesdk.sandbox.fake import FakeSandboxes, Script
from codesdk.sessions import NewSession
from codesdk.settings import Settings
from codesdk.storage.database import Database
from codesdk.tenancy.principal import Role
from codesdk.worker.listener import Listener
from codesdk.worker.process import Worker
from databases import POSTGRES_DIRECTORY
from stage import wait_for

IMAGES = {"base": "sha256:" + "0" * 64}
DEADLINE_S = 60.0
POLICY = """\
version: 1
name: outages
default: deny
enable: [workspace.exec]
rules:
  - {id: commands, effect: allow, tool: workspace.exec}
  - {id: risky, effect: ask, tool: workspace.exec, args: {/command: {glob: "risky*"}}, approval: {timeout: 10m}}
"""


class Outage(Protocol):
    """Something that can be taken away, and given back."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


class OwnRedis:
    """A Redis that this test may kill and freeze."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="codesdk-tests-"))
        self._opened = ExitStack()
        self._opened.callback(shutil.rmtree, self.place, ignore_errors=True)
        self.server = self._start()

    def _start(self) -> redis_server.RedisServer:
        server = redis_server.ensure(self.place, lambda _: None)
        self._opened.callback(server.stop)
        return server

    @property
    def url(self) -> str:
        return self.server.url

    def signal(self, number: int) -> None:
        assert self.server.process is not None
        os.kill(self.server.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.server.process is not None
        assert self.server.process.wait(DEADLINE_S)

    def start(self) -> None:
        self.server = self._start()

    def close(self) -> None:
        if self.server.process is not None and self.server.process.alive:
            self.signal(signal.SIGCONT)
        self._opened.close()


class OwnPostgres:
    """A PostgreSQL that this test may stop and freeze."""

    def __init__(self) -> None:
        place = Path(tempfile.mkdtemp(prefix=POSTGRES_DIRECTORY))  # not below tmp_path, which is root's alone
        self.server = postgres.ensure(place, lambda _: None)
        self._numbers = 0

    def database(self) -> str:
        """The URL of a new database."""
        self._numbers += 1
        name = f"outage_{self._numbers}"
        self.administer(f"CREATE DATABASE {name}")
        return self.server.url_of(name)

    def administer(self, statement: str) -> None:
        database = Database(self.server.url)
        try:
            with database.read() as connection:
                connection.execute(text(statement))
        finally:
            database.close()

    def cut(self) -> None:
        """End each connection of clients, one by one."""
        self.administer(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )

    def signal(self, number: int) -> None:
        """To the server and then to its children."""
        os.kill(self.server.process.pid, number)
        for child in _children(self.server.process.pid):
            os.kill(child, number)

    def close(self) -> None:
        if self.server.process.alive:
            self.signal(signal.SIGCONT)
        self.server.stop()


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == parent:
            found.append(int(stat.parent.name))
    return found


class LockedSqlite:
    """Another program that holds SQLite's write lock, as a shell with an open transaction does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: sqlite3.Connection | None = None

    def begin(self) -> None:
        self._held = sqlite3.connect(self._path, isolation_level=None, timeout=DEADLINE_S, check_same_thread=False)
        self._held.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        if self._held is not None:
            self._held.execute("ROLLBACK")
            self._held.close()
            self._held = None


class Turn:
    """An outage of two functions."""

    def __init__(self, begin: Callable[[], None], end: Callable[[], None] = lambda: None) -> None:
        self.begin, self.end = begin, end


class Installation:
    """What tests drive."""

    def __init__(self, root: Path, redis_url: str, database_url: str = "", **more: Any) -> None:
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
        self.sandboxes = FakeSandboxes(self._play)
        self._held: dict[str, threading.Event] = {}
        self._opened = ExitStack()
        self.api: Services
        self.url = ""

    def _play(self, request: Any) -> Script:
        line = request.argv[-1]
        hold = self._held.setdefault(line, threading.Event()) if "hold" in line else None
        return Script(stdout=line.encode(), hold=hold)

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
        self.api = open_services(self.settings)
        self._opened.callback(self.api.close)
        listener = _listen("127.0.0.1", 0)
        self._opened.callback(listener.close)
        self.url = _url("127.0.0.1", listener)
        app = create_app(self.api, self.settings, self.url)
        config = uvicorn.Config(
            app, http=Impatient, ws="none", lifespan="on", log_config=None, timeout_graceful_shutdown=3
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
        """As `codesdk.worker.process.serve` does.

        Raises:
            Fault: what keeps it from starting; nothing is left.
        """
        with ExitStack() as opened:
            services = open_services(self.settings)
            opened.callback(services.close)
            worker = Worker(services, self.sandboxes, IMAGES)
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

    def runs_of(self, session: SessionId) -> int:
        """How many commands its sandbox has started."""
        with self.api.database.read() as connection:
            owner = connection.execute(
                text("SELECT id FROM sandboxes WHERE session_id = :session"), {"session": session}
            ).scalar_one()
        return sum(run[0] == owner for run in self.sandboxes.runs)


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

    def use(
        self, tool: str, arguments: dict[str, Any], *, patience_s: float = DEADLINE_S, mode: str = "auto"
    ) -> Answer:
        async def go() -> Any:
            async with (
                asyncio.timeout(patience_s),
                httpx2.AsyncClient(headers={"Authorization": f"Bearer {self.token}"}, timeout=DEADLINE_S) as http,
                Client(streamable_http_client(f"{self.installation.url}/mcp", http_client=http), mode=mode) as client,
            ):
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
        return self.installation.api.log.read(self.session)

    def is_lawful(self) -> None:
        assert check(self.events()) is None

    def approval(self) -> Any:
        """The question that waits."""
        listing = self.installation.api.desk.listing
        found = lambda: [  # noqa: E731
            each
            for each in listing(self.installation.api.directory.subject(self.token).tenant_id, None, self.session)
            if each.state == "pending"
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
