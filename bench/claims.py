"""Measures a claim while other calls wait: 10 tenants against 5,000, and 100 queued calls against 100,000.

The rows are inserted directly into fresh databases: SQLite and, if its programs are installed, the bench's own
PostgreSQL with durable commits. Each claim is the worker's own, with its commit. The kinds are claimed in turn, one of
each, so that other load on the machine affects all alike.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from sqlalchemy import text

from codesdk.approvals import ApprovalService
from codesdk.domain.calls import CallState
from codesdk.domain.clock import SystemClock
from codesdk.domain.ids import HostId, IdKind, RandomIds
from codesdk.domain.quotas import Resource
from codesdk.errors import Fault
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import EventLog
from codesdk.policy import ActiveBundles
from codesdk.registry import Registry
from codesdk.sandbox.profiles.profile import Profile
from codesdk.storage import schema
from codesdk.storage.database import Database
from codesdk.storage.migration import upgrade
from codesdk.storage.writer import Writer
from codesdk.tenancy.quotas import TenantQuotas
from codesdk.toolcalls.claim import CallClaimer
from codesdk.toolcalls.records.call_record import ClaimedCall
from database import postgresql
from from_tests import postgres_cluster

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"few": (10, 1_000), "many_tenants": (5_000, 10_000), "many_calls": (10, 100_000)}
"""Waiting tenants, and the total of their calls."""
CLAIMS = 200
PLAIN = ("claim_ms", "claim_ms_at_5k_tenants", "claim_ms_at_100k", "claim_5k_tenants_per_10", "claim_100k_per_1k")
"""The report's keys; those of PostgreSQL begin with its name, and are missing if it is not installed."""
ON_SERVER = tuple(f"postgresql_{name}" for name in PLAIN)
Say = Callable[[str], None]


def measure(say: Say = lambda _line: None) -> dict[str, float]:
    """Return the milliseconds (p50) of a claim by kind, and their ratios."""
    with tempfile.TemporaryDirectory() as place:
        found = _measure_on(lambda kind: f"sqlite:///{Path(place) / f'{kind}.db'}", Path(place))
    with postgresql(say) as server:
        if isinstance(server, Fault):
            return found
        return found | dict(zip(ON_SERVER, _measure_on(lambda kind: _made(server, kind), None).values(), strict=True))


def _made(server: postgres_cluster.PostgresServer, name: str) -> str:
    with closing(Database(server.url)) as database, database.read() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    return server.url_of(name)


def _measure_on(url_of: Callable[[str], str], locks: Path | None) -> dict[str, float]:
    """Measure on one kind of database. `locks`: directory of the lock files of SQLite's writers."""
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with ExitStack() as opened:
        stages = {
            kind: _claims(opened, url_of(kind), locks / f"{kind}.lock" if locks else None, *size)
            for kind, size in KINDS.items()
        }
        for _ in range(CLAIMS):
            for kind, claims in stages.items():
                began = time.perf_counter()
                taken = claims.take()
                times[kind].append((time.perf_counter() - began) * 1000)
                assert isinstance(taken, ClaimedCall)
    few, tenants, calls = (statistics.median(times[kind]) for kind in KINDS)
    return dict(zip(PLAIN, (few, tenants, calls, tenants / few, calls / few), strict=True))


def _claims(opened: ExitStack, url: str, lock: Path | None, tenants: int, calls: int) -> CallClaimer:
    clock = SystemClock()
    ids = RandomIds(clock)
    database = Database(url)
    opened.callback(database.close)
    upgrade(database)
    writer = Writer(database, lock)
    opened.callback(writer.close)
    host = HostId(ids.new(IdKind.HOST))
    registry = Registry.load(ROOT / "tool-registry")
    tool = registry.resolve("workspace.read")
    _fill(database, ids, host, tool.schema_hash, tenants=tenants, calls=calls)
    return CallClaimer(
        registry=registry,
        bundles=ActiveBundles(ROOT / "policies" / "default", registry.names(), SystemClock()),
        approval_service=ApprovalService(database, ids),
        log=EventLog(database, clock, LocalHints()),
        writer=writer,
        host=host,
        generation=1,
        quotas=TenantQuotas(dict.fromkeys(Resource, 0)),
    )


def _fill(database: Database, ids: RandomIds, host: HostId, schema_hash: str, *, tenants: int, calls: int) -> None:
    owners = [(ids.new(IdKind.TENANT), ids.new(IdKind.PRINCIPAL), ids.new(IdKind.SESSION)) for _ in range(tenants)]
    profile = json.dumps(Profile().model_dump(mode="json"))
    of_tenant = [{"id": tenant, "name": tenant, "created_at": 0.0} for tenant, _, _ in owners]
    of_principal = [
        {"id": principal, "tenant_id": tenant, "name": "dev", "roles": "[]", "created_at": 0.0}
        for tenant, principal, _ in owners
    ]
    of_session = [
        {
            "id": session, "tenant_id": tenant, "principal_id": principal, "host_id": host, "state": "open",
            "runtime": "bench", "permission_mode": "auto", "profile": profile, "image": "sha256:" + "0" * 64,
            "labels": "{}", "log_epoch": "bench", "created_at": 0.0,
        }
        for tenant, principal, session in owners
    ]  # fmt: skip
    of_turn = [
        {"host_id": host, "tenant_id": tenant, "position": 0.0, "waiting": True, "stamp": 0} for tenant, _, _ in owners
    ]
    of_call = []
    for number in range(calls):
        tenant, _principal, session = owners[number % tenants]
        of_call.append(
            {
                "id": ids.new(IdKind.CALL), "attempt": 1, "session_id": session, "tenant_id": tenant, "host_id": host,
                "name": "workspace.read", "input": '{"path":"a"}', "input_hash": "sha256:" + "0" * 64,
                "schema_hash": schema_hash, "serial": False, "held": False, "state": CallState.QUEUED.value,
                "sources": "[]", "requested_at": float(number), "queued_at": float(number),
            }
        )  # fmt: skip
    machine = {"id": host, "name": "local", "generation": 1, "heartbeat": 0, "images": "{}", "registered_at": 0.0}
    with database.writer.begin() as connection:
        for table, rows in (
            (schema.hosts, [machine]), (schema.tenants, of_tenant), (schema.principals, of_principal),
            (schema.sessions, of_session), (schema.tool_calls, of_call), (schema.turns, of_turn),
        ):  # fmt: skip
            connection.execute(table.insert(), rows)


if __name__ == "__main__":
    for name, value in measure(print).items():
        print(f"{name:28}{value:10.3f}")
