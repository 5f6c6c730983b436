"""Appends events to a session forever and prints each one once it is acknowledged.

`appender.py URL LOCK SESSION NAME [THREADS]` appends from as many threads until it is killed; LOCK is `-` for none.
`appender.py URL LOCK SESSION NAME crash POINTS` appends in children, one for each point: the child kills itself with
SIGKILL at that point, counted over the begin, each statement's start and end, and the commit's start and end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from sqlalchemy import event

from codesdk.domain.clock import SystemClock
from codesdk.domain.events import EventType, RuntimeInfo, Trace
from codesdk.domain.ids import SessionId
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import EventDraft, EventLog
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer

APPENDS = 3
"""Appends that a child tries; the points are counted from its second on."""


def draft(session, name):
    return EventDraft(
        type=EventType.USAGE_REPORTED,
        trace=Trace(session_id=session),
        runtime=RuntimeInfo(name="t"),
        payload={"n": name},
    )


class Appender:
    def __init__(self, url, lock, session):
        self.database = Database(url)
        self.writer = Writer(self.database, None if lock == "-" else Path(lock))
        self.log = EventLog(self.database, SystemClock(), LocalHints())
        self.session = SessionId(session)

    def append(self, name):
        self.writer.run(lambda unit: self.log.append(unit, draft(self.session, name)))
        os.write(1, f"{name}\n".encode())

    def forever(self, name):
        number = 0
        while True:
            self.append(f"{name}-{number}")
            number += 1

    def crash_at(self, point):
        """Arm it: SIGKILL when so many points have been passed."""
        passed = 0

        def pass_on(*_args, **_more):
            nonlocal passed
            passed += 1
            if passed == point:
                os.kill(os.getpid(), signal.SIGKILL)

        engine = self.database.writer
        for name in ("begin", "before_cursor_execute", "after_cursor_execute"):
            event.listen(engine, name, pass_on)
        commit = engine.dialect.do_commit

        def do_commit(connection):
            pass_on()
            commit(connection)
            pass_on()

        engine.dialect.do_commit = do_commit


def crash(place, name, points):
    for point in range(1, points + 1):
        child = os.fork()  # before any thread or connection: the interpreter starts once for all of them
        if child == 0:
            appender = Appender(*place)
            appender.append(f"{name}-{point}-0")
            appender.crash_at(point)
            for number in range(1, APPENDS):
                appender.append(f"{name}-{point}-{number}")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        ended = "killed" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else f"status {status}"
        os.write(2, f"{point} {ended}\n".encode())


def main(url, lock, session, name, *more):
    if more[:1] == ("crash",):
        crash((url, lock, session), name, int(more[1]))
        return
    appender = Appender(url, lock, session)
    for number in range(int(more[0]) if more else 1):
        threading.Thread(target=appender.forever, args=(f"{name}.{number}",)).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
