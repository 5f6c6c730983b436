"""Calls that count their own executions, while everything that they need is killed or restarted at random.

The API and a worker for each of several engines are separate processes. Redis, the database (if it is a server) and one
of the engines belong to the run, and are restarted too. At the end, everything that clients and people could know is
compared with the record: see `verdict`.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from clients import Client, End, Opened
from processes import Process
from remains import Remains
from verdict import Run, runs_in

import engine_worker
import postgres_cluster
from codesdk.bootstrap.maintenance import open_maintenance_services
from codesdk.cli.effective_settings import settings_environment
from codesdk.provision.servers import redis_server
from codesdk.sandbox.records import store
from codesdk.settings import Settings, runfile
from codesdk.tenancy.identity_directory import IdentityDirectory
from codesdk.tenancy.principal import Role
from databases import POSTGRES_DIRECTORY
from own_engine import OwnEngine
from stage import POLICY, REPOSITORY, wait_for

DEFECT_CHARACTERS = 6000
"""Of a log, from where it names a defect: a traceback with its causes."""
POLL_S = 0.1
SETTLE_S = 600.0
LIFE = 25
"""Calls of one session, at most: then its client goes on in another."""
GONE = {"SANDBOX_GONE", "ENGINE_RESTARTED", "SANDBOX_ENDED", "SESSION_CLOSED"}
"""After such an end the session is over, and another is opened, from its last snapshot where it has one."""
NOTE = 'echo "{mark} $(date +%s.%N)" >> runs'
"""What a line writes down when it runs (`verdict.RUN`)."""
COUNTING = "chaos.count"
_COUNTING = f"""\
name: {COUNTING}
version: 1.0.0
title: Count
description: Says that it only reads, and writes down that it ran, so that what is tried again can be counted.
classification: read-only
runs: {{argv: [sh, "-c", '{NOTE.format(mark="$1")}; sleep 0.3; cat runs', sh, {{arg: /mark}}]}}
input_schema: {{type: object, additionalProperties: false, required: [mark], properties: {{mark: {{type: string}}}}}}
"""
KINDS = ("worker killed", "worker told to end", "API killed", "API told to end", "Redis restarted")
ENGINE = ("engine killed", "engine stopped")
DATABASE = ("database crashed", "database restarted")
WEIGHTS = (6, 2, 2, 1, 2, 1, 1, 1, 1)
"""Of the kinds in this order, those of engine and database at the end."""
EVERY = (2, 9)
"""Calls from one fault to the next, at least and at most: by calls and not by time, so that no machine is too slow or too
fast to meet them."""


class Fault(NamedTuple):
    """One thing that happened to the installation."""

    kind: str
    at: float
    """Seconds since the epoch."""
    host: str | None
    """The host that it concerns; None where it concerns all."""


class Chaos:
    """An installation of many processes, and what its clients saw."""

    def __init__(self, root: Path, engines: dict[str, str], own: OwnEngine | None, image: str, *, server: bool) -> None:
        """`engines`: name -> address; `own`: the one called `own`, which may be restarted. `server`: PostgreSQL."""
        self._opened = ExitStack()
        self._root = root
        self._own = own
        self.faults: list[Fault] = []
        self.outcomes: Counter[str] = Counter()
        self.ran: set[Run] = set()
        """Each execution of a line, as it wrote it down itself."""
        self.answers: list[End] = []
        """What clients were told of their calls."""
        self.lost_connections = 0
        self.sessions = self.reopened = 0
        self.made = 0
        """Calls that were begun."""
        self._each_kind = threading.Event()
        self._progress = threading.Condition()
        with ExitStack() as opened:
            self._open(opened, engines, image, server=server)
            self._opened = opened.pop_all()

    def _open(self, opened: ExitStack, engines: dict[str, str], image: str, *, server: bool) -> None:
        self._redis = redis_server.ensure(self._root / "redis", lambda _: None)
        opened.callback(self._stop_redis)
        self._postgres: postgres_cluster.PostgresServer | None = None
        url = f"sqlite:///{self._root / 'codesdk.db'}"
        if server:
            self._postgres = postgres_cluster.ensure(Path(tempfile.mkdtemp(prefix=POSTGRES_DIRECTORY)), lambda _: None)
            opened.callback(self._postgres.stop)
            url = self._postgres.url
        self.settings = self._settings_of(engines, url)
        self.record = opened.enter_context(open_maintenance_services(self.settings["api"]))
        directory = IdentityDirectory(
            self.record.database, self.record.clock, self.record.ids, quotas=self.record.quotas
        )
        _, self._key = self.record.writer.run(
            lambda unit: directory.enroll(unit, "default", "chaos", (Role.DEVELOPER,))
        )
        self._remains = {name: opened.enter_context(closing(self._remains_of(name))) for name in engines}
        self._workers = {name: opened.enter_context(closing(self._worker(name, image))) for name in engines}
        self._api = opened.enter_context(closing(self._serving_api()))
        self._ending = threading.Event()
        tending = threading.Thread(target=self._tend, name="chaos-supervisor", daemon=True)
        tending.start()
        opened.callback(tending.join, 10)
        opened.callback(self._ending.set)

    def _stop_redis(self) -> None:
        self._redis.stop()

    def _settings_of(self, engines: dict[str, str], url: str) -> dict[str, Settings]:
        root = self._root
        for name in ("policies", "artifacts"):
            (root / name).mkdir()
        (root / "policies" / "policy.yaml").write_text(POLICY)
        shutil.copytree(REPOSITORY / "tool-registry", root / "tools")
        (root / "tools" / f"{COUNTING}.yaml").write_text(_COUNTING)
        common: dict[str, Any] = {
            "database_url": url,
            "redis_url": self._redis.url,
            "policies_dir": root / "policies",
            "registry_dir": root / "tools",
            "poll_s": POLL_S,
            "warm_pool": 1,
            "port": 0,
            "snapshot_every_s": 1.0,
            "wait_s": 2.0,
            "host_lease_s": 60.0,  # else a busy machine's workers are taken for dead ones
        }
        return {
            name: Settings(data_dir=self._directory(name), host_name=name, docker_host=engines.get(name, ""), **common)
            for name in ("api", *engines)
        }

    def _directory(self, name: str) -> Path:
        """A data directory of its own; artifacts and the lock of SQLite's writers are everybody's."""
        directory = self._root / name
        directory.mkdir()
        for shared in ("artifacts", "write.lock"):
            (directory / shared).symlink_to(self._root / shared)
        return directory

    def _worker(self, name: str, image: str) -> Process:
        settings = self.settings[name]
        argv = [sys.executable, engine_worker.__file__, settings.model_dump_json(), image]
        return Process("worker", argv, os.environ, settings.data_dir, self._root / f"{name}.log")

    def _serving_api(self) -> Process:
        settings = self.settings["api"]
        argv = [sys.executable, "-m", "codesdk.api"]
        environment = {**os.environ, **settings_environment(settings)}
        made = Process("api", argv, environment, settings.data_dir, self._root / "api.log")
        made.wait_ready()
        self.url = str((runfile.read(settings.data_dir, "api") or {})["url"])
        # When it comes back, its clients must find it where it was.
        pinned = settings.model_copy(update={"port": urlsplit(self.url).port})
        made.environment.update(settings_environment(pinned))
        return made

    def _remains_of(self, name: str) -> Remains:
        own = self._own.places.exec_root if self._own is not None and name == "own" else None
        return Remains(self.settings[name], exec_root=own)

    def _tend(self) -> None:
        while not self._ending.wait(0.05):
            for process in (self._api, *self._workers.values()):
                process.tend()

    @property
    def database(self) -> str:
        """Which kind it is."""
        return "postgresql" if self._postgres else "sqlite"

    # -- faults --------------------------------------------------------------------------------------------------------

    @property
    def kinds(self) -> tuple[str, ...]:
        """What can happen to it."""
        return (*KINDS, *(ENGINE if self._own else ()), *(DATABASE if self._postgres else ()))

    def disturb(self, chance: random.Random, stop: threading.Event) -> None:
        """Each kind once, in an order by chance, then by weight: one after the other, each some calls after the last."""
        first = list(self.kinds)
        chance.shuffle(first)
        weights = [weight for kind, weight in zip((*KINDS, *ENGINE, *DATABASE), WEIGHTS, strict=True) if kind in first]
        due = 0
        try:
            while not stop.is_set():
                due += chance.randint(*EVERY)
                self._await_calls(due, stop)
                if stop.wait(chance.uniform(0.0, 0.5)):
                    return
                self._strike(first.pop() if first else chance.choices(self.kinds, weights)[0], chance, stop)
                if not first:
                    self._each_kind.set()
        finally:
            self._each_kind.set()  # also where it failed: nobody may wait for it then

    def _await_calls(self, due: int, stop: threading.Event) -> None:
        with self._progress:
            while self.made < due and not stop.is_set():
                self._progress.wait(0.1)

    def _strike(self, kind: str, chance: random.Random, stop: threading.Event) -> None:
        away_s = chance.uniform(0.0, 1.0)
        if kind.startswith("worker"):
            name = chance.choice(sorted(self._workers))
            worker = self._workers[name]
            # One of six while it starts.
            if chance.random() > 1 / 6 and not worker.wait_ready(stop):
                return
            self._note(kind, name)
            worker.kill() if "killed" in kind else worker.tell()
        elif kind.startswith("API"):
            if not self._api.wait_ready(stop):
                return
            self._note(kind)
            self._api.kill() if "killed" in kind else self._api.tell()
        elif kind.startswith("Redis"):
            self._note(kind)
            self._redis.stop()
            time.sleep(away_s)
            self._redis = redis_server.ensure(self._root / "redis", lambda _: None)
        elif kind.startswith("engine"):
            self._restart_engine(kind, away_s)
        else:
            assert self._postgres is not None
            self._note(kind)
            self._postgres.restart(crash="crashed" in kind)

    def _restart_engine(self, kind: str, away_s: float) -> None:
        assert self._own is not None
        self._note(kind, "own")
        if "killed" in kind:
            self._own.kill()
            # Its containers live on until it comes back: what ran in sandboxes that are lost is seen here.
            for file in self._own.places.data_root.glob("volumes/*/_data/runs"):
                self._saw(file.read_text(errors="replace"))
        else:
            self._own.stop()
        time.sleep(away_s)
        self._own.start()

    def _note(self, kind: str, host: str | None = None) -> None:
        self.faults.append(Fault(kind, time.time(), host))
        with (self._root / "faults.log").open("a") as log:
            log.write(f"{time.time():.2f} after {self.made} calls: {kind} {host or ''}\n")

    # -- clients -------------------------------------------------------------------------------------------------------

    def make_calls(self, number: int, calls: int) -> None:
        """So many calls of one client, one after the other, and more until each kind of fault has struck."""
        client = Client(self.url, self._key, looks=bool(number % 2))
        try:
            self._live(client, number, calls)
        finally:
            client.close()
            with self._progress:
                self.lost_connections += client.lost_connections

    def _live(self, client: Client, number: int, calls: int) -> None:
        session, lived, place = self._enter(client), 0, 0
        while place < calls or not self._each_kind.is_set():
            if lived == LIFE:
                self._leave(client, session)
                session, lived = self._enter(client), 0
            mark = f"m{number}-{place}"
            end = self._make(client, session, mark, place)
            place += 1
            lived += 1
            if end.code in GONE:
                client.leave(session)
                session, lived = self._enter(client, after=session), 0
        self._leave(client, session)

    def _make(self, client: Client, session: Opened, mark: str, place: int) -> End:
        with self._progress:
            self.made += 1
            self._progress.notify_all()
        if place % 3 == 2:
            end = client.call(session, COUNTING, {"mark": mark})
        else:
            pause = "sleep 1; " if place % 3 else ""  # one that is under way for a while, and a quick one
            end = client.call(session, "workspace.exec", {"command": f"{NOTE.format(mark=mark)}; {pause}cat runs"})
        self._saw(end.output)
        with self._progress:
            self.answers.append(end)
            self.outcomes[end.code] += 1
        return end

    def _saw(self, runs: str) -> None:
        """What a workspace says of what has run by now."""
        seen = runs_in(runs)
        with self._progress:
            self.ran |= seen

    def _enter(self, client: Client, after: Opened | None = None) -> Opened:
        session, from_snapshot = client.open(after.id if after else None)
        with self._progress:
            self.sessions += 1
            self.reopened += from_snapshot
        return session

    def _leave(self, client: Client, session: Opened) -> None:
        """Close it; before that, the last word of its workspace."""
        end = client.call(session, "workspace.read", {"path": "runs"})
        self._saw(end.output)
        with self._progress:
            self.answers.append(end)
        client.leave(session)

    # -- the end -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let the workers finish what is due, sweeps of their own included, stop all of it in order, and sweep."""
        for process in (self._api, *self._workers.values()):
            process.wait_ready()
        self._close_orphans()
        wait_for(lambda: not self._count("sandboxes", "session_id IS NOT NULL AND state <> 'gone'"), "rows", SETTLE_S)
        for name, remains in self._remains.items():
            wait_for(lambda remains=remains, name=name: not remains.ownerless(self._alive(name)), "a sweep", SETTLE_S)
        self._ending.set()
        for process in (*self._workers.values(), self._api):
            process.end()
        self.swept = 0
        for name, remains in self._remains.items():
            swept = remains.sweep(self._alive(name))
            self.swept += len(swept.containers) + len(swept.volumes)

    def _alive(self, name: str) -> list[str]:
        """The owners of what is that host's to keep."""
        with self.record.database.read() as connection:
            host = connection.exec_driver_sql(f"SELECT id FROM hosts WHERE name = '{name}'").scalar_one()
            return list(store.list_live(connection, host))

    def _close_orphans(self) -> None:
        """Sessions whose opening was answered to nobody."""
        client = Client(self.url, self._key, looks=True)
        with self.record.database.read() as connection:
            found = connection.exec_driver_sql("SELECT id FROM sessions WHERE state = 'open'").scalars().all()
        for session in found:
            client.leave(Opened(session, ""))
        client.close()
        self.orphans = len(found)

    def left(self) -> dict[str, int]:
        """Everything of it that is still on the machine."""
        total: Counter[str] = Counter()
        for remains in self._remains.values():
            total.update(remains.left())
        return {
            **total,
            "rows": self._count("sandboxes", "state <> 'gone'"),
            "calls": self._count("tool_calls", "state NOT IN ('completed', 'denied')"),
            "sessions": self._count("sessions", "state = 'open'"),
        }

    def defects(self) -> list[str]:
        """What its processes logged of defects, each with what follows it there."""
        found = []
        for log in sorted(self._root.glob("*.log")):
            _, *after = log.read_text(encoding="utf-8", errors="replace").split("a defect")
            found += [f"{log.name}: {text[:DEFECT_CHARACTERS]}" for text in after]
        return found

    def _count(self, table: str, where: str) -> int:
        with self.record.database.read() as connection:
            return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table} WHERE {where}").scalar_one())

    @property
    def ended_by_themselves(self) -> dict[str, int]:
        """Processes that ended without being told, and were started again."""
        return {name: each.ended_by_itself for name, each in {"api": self._api, **self._workers}.items()}

    def close(self) -> None:
        """Remove all of it."""
        if self._own is not None and not self._own.running.alive:  # a fault was under way
            self._own.start()
        self._opened.close()
