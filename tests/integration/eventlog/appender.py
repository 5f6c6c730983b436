"""Appends events to a session for ever and says each number once it is acknowledged: `appender.py DIR SESSION NAME`."""

from __future__ import annotations

import sys
from pathlib import Path

from codesdk.domain.clock import SystemClock
from codesdk.domain.events import EventType, RuntimeInfo, Trace
from codesdk.domain.ids import SessionId
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import Draft, Log
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer


def main(directory: Path, session: SessionId, name: str) -> None:
    database = Database(f"sqlite:///{directory / 'codesdk.db'}")
    writer = Writer(database, directory / "write.lock")
    log = Log(database, SystemClock(), LocalHints())
    number = 0
    while True:
        draft = Draft(
            type=EventType.OUTPUT_DELTA,
            trace=Trace(session_id=session),
            runtime=RuntimeInfo(name="t"),
            payload={"n": f"{name}-{number}"},
        )
        writer.run(lambda unit, draft=draft: log.append(unit, draft))
        sys.stdout.write(f"{name}-{number}\n")
        sys.stdout.flush()
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), SessionId(sys.argv[2]), sys.argv[3])
