"""Measures what one tenant's thousand calls cost another, whose sequential calls are timed alone and under that load.

One installation with API and worker, on SQLite and, if its programs are installed, on the bench's own PostgreSQL. The
crowd's calls are spread over `CROWD_SESSIONS` sessions. Once they are queued, so that many run at once; and once they
wait for approval, so that the worker reads the files that each names. The other tenant's calls are timed while they
last.
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
"""Duration of each of the crowd's calls: a worker with 16 threads then has a free one every 62 ms."""
CALLS = 100
WARM_UP = 20
CROWDS = {"": f"echo {{0}}; sleep {SLEEP_S}", "asked_": f"touch {{0}}; sleep {SLEEP_S}"}
"""The crowd's commands, by the prefix of their keys. The demo's policy asks about `touch`."""
PLAIN = tuple(
    f"{database}fair_{crowd}{what}"
    for database in ("", "postgresql_")
    for crowd in CROWDS
    for what in ("p95_alone_ms", "p95_beside_1000_ms", "p95_ratio")
)
"""The report's keys; those of the second database are missing if it is not installed."""
Say = Callable[[str], None]


def measure(policies: Path, say: Say) -> dict[str, float]:
    """Return the milliseconds (p95) of a call alone and under load, and their ratio."""
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
    """Open one session in its own tenant, then the crowd's."""
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
    """Count the calls that have not begun. Nobody answers approvals."""
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
