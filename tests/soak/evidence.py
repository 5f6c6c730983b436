"""Collects everything about a call that did not end, for readers of the log of a failed soak."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from sqlalchemy import text

from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.isolation.spec import LABEL_OWNER
from codesdk.storage.database import Database

LOG_LINES = 120
EVENTS = 60


def of_call(database: Database, call: str, worker_log: Path, engine: Engine) -> str:
    """Its row, its session's other calls, sandbox and events, the container as the engine sees it, the worker's log."""
    with database.read() as connection:

        def rows(query: str, **values: Any) -> list[dict[str, Any]]:
            return [dict(row) for row in connection.execute(text(query), values).mappings()]

        own = rows("SELECT * FROM tool_calls WHERE id = :call", call=call)
        session = own[0]["session_id"] if own else ""
        parts = {
            "now": time.time(),
            "its row (attempt, generation, times)": own,
            "other calls of its session": rows(
                "SELECT id, attempt, state, generation, requested_at, started_at, finished_at FROM tool_calls"
                " WHERE session_id = :session AND id <> :call",
                session=session,
                call=call,
            ),
            "its session": rows("SELECT * FROM sessions WHERE id = :session", session=session),
            "its sandbox": (boxes := rows("SELECT * FROM sandboxes WHERE session_id = :session", session=session)),
            "hosts": rows("SELECT id, generation, heartbeat FROM hosts"),
            "turns": rows("SELECT * FROM turns"),
            "calls by state": rows("SELECT state, held, count(*) AS n FROM tool_calls GROUP BY state, held"),
            "sandboxes by state": rows("SELECT state, count(*) AS n FROM sandboxes GROUP BY state"),
            "events of its session": rows(
                "SELECT seq, time, type, body FROM events WHERE session_id = :session ORDER BY seq DESC LIMIT :most",
                session=session,
                most=EVENTS,
            )[::-1],
        }
    parts["its container"] = [_container(engine, box["id"]) for box in boxes]
    said = [f"-- {name}:\n{json.dumps(value, indent=1, default=str)}" for name, value in parts.items()]
    return "\n".join([*said, f"-- the worker's log, its last {LOG_LINES} lines:", tail(worker_log)])


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])


def _container(engine: Engine, sandbox: str) -> Any:
    found = engine.api.containers(all=True, filters={"label": f"{LABEL_OWNER}={sandbox}"})
    return [{"id": each["Id"][:12], "state": each["State"], "status": each["Status"]} for each in found] or "none"
