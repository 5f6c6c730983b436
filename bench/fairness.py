"""What one tenant's thousand calls cost another: its governed calls one after the other, alone and beside them.

One installation with API and worker, on SQLite and, where its programs are, on a PostgreSQL of its own. The crowd's calls
wait in `CROWD_SESSIONS` sessions, once in the queue, so that many of them run at once, and once for people, so that the
worker looks at the files that each of them names. The measure is taken while they last.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import text

import load
from codesdk.bootstrap import Services
from codesdk.cli.api_client import OpenedSession
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.stack.stack import Stack
from codesdk.errors import Fault
from codesdk.eventlog.hints import LocalHints
from codesdk.sessions import NewSession
from codesdk.tenancy.principal import Role
from database import postgresql

QUEUED = 1_000
CROWD_SESSIONS = 16
SLEEP_S = 1.0
"""Of each of the crowd's calls: with 16 of them at once, a thread is free every 62 ms where a worker has 16."""
CALLS = 100
WARM_UP = 20
CROWDS = {"": f"echo {{0}}; sleep {SLEEP_S}", "asked_": f"touch {{0}}; sleep {SLEEP_S}"}
"""What the crowd calls, by the prefix of its keys. The demo's policy asks about `touch`."""
PLAIN = tuple(
    f"{database}fair_{crowd}{what}"
    for database in ("", "postgresql_")
    for crowd in CROWDS
    for what in ("p95_alone_ms", "p95_beside_1000_ms", "p95_ratio")
)
"""The report's keys; the second database's are missing where it cannot be had."""
Say = Callable[[str], None]


def measure(policies: Path, say: Say) -> dict[str, float]:
    """Milliseconds (p95) of a call alone and beside the crowd, and their ratio."""
    say(f"another tenant's {QUEUED} queued calls")
    found = _measure_crowds("", policies, say)
    with postgresql(say) as server:
        if isinstance(server, Fault):
            return found
        on_server = _measure_crowds(server.url, policies, say)
    return found | {f"postgresql_{name}": value for name, value in on_server.items()}


def _measure_crowds(url: str, policies: Path, say: Say) -> dict[str, float]:
    found: dict[str, float] = {}
    for crowd, command in CROWDS.items():
        figures = _measure_on(url, policies, command, say)
        found |= {f"fair_{crowd}{name}": value for name, value in figures.items()}
    return found


def _measure_on(url: str, policies: Path, command: str, say: Say) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="codesdk-bench-") as place, ExitStack() as opened:
        settings = load_settings(Path(place) / "data", policies, 0).model_copy(update={"database_url": url})
        stack = opened.enter_context(Stack(settings, say))
        services = Services(stack.settings, hints=LocalHints())
        opened.callback(services.close)
        one, *crowd = _sessions(services, stack)
        asyncio.run(_calls(one, WARM_UP))
        alone = asyncio.run(_calls(one, CALLS))
        _submit(services, crowd, command)
        beside = asyncio.run(_calls(one, CALLS))
        if not _waiting(services):
            raise RuntimeError("The crowd's calls were over before the others: this measures nothing.")
        for session in (one, *crowd):
            services.sessions.close(services.directory.subject(session.token).tenant_id, session.session.id)
    p95 = [statistics.quantiles(times, n=20, method="inclusive")[-1] for times in (alone, beside)]
    names = ("p95_alone_ms", "p95_beside_1000_ms", "p95_ratio")
    return dict(zip(names, (round(p95[0], 2), round(p95[1], 2), round(p95[1] / p95[0], 2)), strict=True))


def _sessions(services: Services, stack: Stack) -> list[OpenedSession]:
    """One of a tenant of its own, then the crowd's."""
    made = []
    for tenant, count in (("one", 1), ("crowd", CROWD_SESSIONS)):
        principal, _ = services.writer.run(
            lambda unit, name=tenant: services.directory.enroll(unit, name, name, (Role.DEVELOPER,))
        )
        for _ in range(count):
            session, token = services.sessions.open(principal, NewSession())
            made.append(OpenedSession(session=session, token=token, mcp_url=f"{stack.daemon.url}/mcp"))
    for opened in made:
        asyncio.run(_calls(opened, 1))  # their sandboxes are there
    return made


def _submit(services: Services, crowd: list[OpenedSession], command: str) -> None:
    subjects = [services.directory.subject(session.token) for session in crowd]
    for number in range(QUEUED):
        services.pipeline.submit(
            "workspace.exec", {"command": command.format(number)}, subjects[number % len(subjects)]
        )


def _waiting(services: Services) -> int:
    """Calls that have not begun. Nobody answers what is asked about."""
    with services.database.read() as connection:
        query = text("SELECT count(*) FROM tool_calls WHERE state IN ('queued', 'waiting_for_tool_decision')")
        return int(connection.execute(query).scalar_one())


async def _calls(session: OpenedSession, count: int) -> list[float]:
    caller = load.Caller(session)
    await caller.open()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await caller.call("workspace_exec", {"argv": ["true"]})
        times.append((time.perf_counter() - began) * 1000)
    await caller.close()
    return times


if __name__ == "__main__":
    from codesdk.settings import Settings

    default: Path = Settings.model_fields["policies_dir"].get_default(call_default_factory=True)
    for name, value in measure(default.parent / "demo", print).items():
        print(f"{name:36}{value:10.3f}")
