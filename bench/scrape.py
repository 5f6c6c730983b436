"""Measures a scrape of `/metrics` on a full installation: 100,000 queued calls, 200,000 ended ones, a million events.

Twenty hosts, 5,000 tenants with one open session and nine closed ones each, 2,000 pending approvals among 20,000, and
5,000 due messages among 50,000. The rows are inserted directly into fresh databases: SQLite and, if its programs are
installed, PostgreSQL. The page is built as the API does, without HTTP.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from sqlalchemy import text

from codesdk.domain.ids import PrincipalId, TenantId
from codesdk.errors import Fault
from codesdk.metrics import MetricsExporter
from codesdk.storage.database import Database
from codesdk.storage.migration import upgrade
from codesdk.tenancy.principal import Principal, PrincipalKind, Reach, Role
from codesdk.toolcalls.statistics.denial_counts import DenialCounts
from database import postgresql

LOOKS = 20
PLAIN = ("scrape_ms", "postgresql_scrape_ms")
HOSTS, TENANTS, SESSIONS, EVENTS = 20, 5_000, 50_000, 1_000_000
CALLS, QUEUED, RUNNING = 300_000, 100_000, 200
APPROVALS, ASKED, ENDPOINTS, DELIVERIES, DUE = 20_000, 2_000, 500, 50_000, 5_000
Say = Callable[[str], None]
_TENANT, _HOST, _SESSION = f"'t'||(i % {TENANTS})", f"'h'||(i % {HOSTS})", f"'s'||(i % {TENANTS})"
_LONG = f"'{'x' * 400}'"
_CALL = f"CASE WHEN i < {QUEUED} THEN 'queued' WHEN i < {QUEUED + RUNNING} THEN 'running_tool' ELSE 'completed' END"
_FILL: dict[str, tuple[int, dict[str, str]]] = {
    "hosts": (
        HOSTS,
        {"id": "'h'||i", "name": "'host-'||i", "generation": "1", "heartbeat": "1", "images": "'{}'",
         "registered_at": "0", "heard_at": "0"},
    ),
    "tenants": (TENANTS, {"id": "'t'||i", "name": "'tenant '||i", "created_at": "0"}),
    "principals": (
        TENANTS, {"id": "'p'||i", "tenant_id": "'t'||i", "name": "'dev'", "roles": "'[]'", "created_at": "0"},
    ),
    "sessions": (
        SESSIONS,
        {"id": "'s'||i", "tenant_id": _TENANT, "principal_id": f"'p'||(i % {TENANTS})", "host_id": _HOST,
         "state": f"CASE WHEN i < {TENANTS} THEN 'open' ELSE 'closed' END", "runtime": "'bench'",
         "permission_mode": "'auto'", "profile": "'{}'", "image": "'i'", "labels": "'{}'", "log_epoch": "'e'",
         "created_at": "0"},
    ),
    "sandboxes": (
        SESSIONS,
        {"id": "'b'||i", "session_id": "'s'||i", "host_id": _HOST, "tool_uid": "i", "image": "'i'", "profile": "'{}'",
         "state": f"CASE WHEN i < {TENANTS} THEN 'ready' ELSE 'gone' END"},
    ),
    "tool_calls": (
        CALLS,
        {"id": "'c'||i", "attempt": "1", "session_id": _SESSION, "tenant_id": _TENANT, "host_id": _HOST,
         "name": "'workspace.read'", "input": "'{}'", "input_hash": "'x'", "schema_hash": "'x'", "serial": "false",
         "held": "i % 7 = 0", "state": _CALL, "sources": "'[]'",
         "result": f"CASE WHEN i < {QUEUED} THEN NULL ELSE {_LONG} END", "requested_at": "i", "queued_at": "i"},
    ),
    "approvals": (
        APPROVALS,
        {"id": "'a'||i", "tool_call_id": "'c'||i", "attempt": "1", "session_id": _SESSION, "tenant_id": _TENANT,
         "state": f"CASE WHEN i < {ASKED} THEN 'pending' ELSE 'consumed' END", "digest": "'x'", "shown": "'{}'",
         "expires_at": "9e9", "created_at": "0"},
    ),
    "webhook_endpoints": (
        ENDPOINTS,
        {"id": "'w'||i", "tenant_id": "'t'||i", "kind": "'webhook'", "target": "'x'", "shown_target": "'x'",
         "types": "'[]'", "description": "''", "secrets": "'[]'", "created_at": "0"},
    ),
    "webhook_deliveries": (
        DELIVERIES,
        {"id": "'d'||i", "endpoint_id": f"'w'||(i % {ENDPOINTS})", "tenant_id": f"'t'||(i % {ENDPOINTS})",
         "type": "'x'", "message": _LONG, "state": f"CASE WHEN i < {DUE} THEN 'pending' ELSE 'delivered' END",
         "created_at": "0", "due_at": "0", "until": "9e9", "tries": "0", "attempts": "'[]'"},
    ),
    "events": (EVENTS, {"session_id": _SESSION, "seq": "i", "time": "'x'", "type": "'x'", "body": _LONG}),
}  # fmt: skip
_NUMBERS = "WITH RECURSIVE numbers(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers WHERE i < {most})"


def measure(say: Say = lambda _line: None) -> dict[str, float]:
    """Return the milliseconds (p50) of a page."""
    with tempfile.TemporaryDirectory() as place:
        found = {PLAIN[0]: _measure_on(f"sqlite:///{Path(place) / 'full.db'}")}
    with postgresql(say) as server:
        if isinstance(server, Fault):
            return found
        return found | {PLAIN[1]: _measure_on(server.url)}


def _measure_on(url: str) -> float:
    watcher = Principal(
        id=PrincipalId("p1"), tenant_id=TenantId("t1"), name="watcher", roles=(Role.AUDITOR,),
        kind=PrincipalKind.PROGRAM, reach=Reach.INSTANCE,
    )  # fmt: skip
    with closing(Database(url)) as database:
        upgrade(database)
        with database.writer.begin() as connection:
            for table, (rows, values) in _FILL.items():
                numbers = _NUMBERS.format(most=rows - 1)
                many = f"{numbers} SELECT {', '.join(values.values())} FROM numbers"
                connection.execute(text(f"INSERT INTO {table} ({', '.join(values)}) {many}"))
        if not database.is_sqlite:
            with database.read() as connection:
                connection.execute(text("ANALYZE"))  # as its autovacuum does within a minute
        figures = MetricsExporter(database, DenialCounts(database))
        times = []
        for _ in range(LOOKS):
            began = time.perf_counter()
            page = figures.page(watcher)
            times.append((time.perf_counter() - began) * 1000)
        assert b'codesdk_calls{host="host-1",state="queued"}' in page
        return round(statistics.median(times), 1)


if __name__ == "__main__":
    for name, value in measure(print).items():
        print(f"{name:28}{value:10.3f}")
