"""Measures how much product code one warm `workspace.exec` call walks through: `trace_call.py [--list] [--at-most N]`.

API and worker run in this process with the shipped wiring: SQLite, HTTP on a loopback port, real local sandboxes without
bubblewrap. In-process wake-ups and hints replace Redis, so the worker's Redis listener is missing from the trace. The
sandbox's runner is a separate process and isn't counted.

Counts every Python function of the package that runs on any thread, from the moment the client sends `tools/call` until
it has the answer and the worker has finished with the call (`SETTLE_S` later). Doesn't count the client, module bodies,
generated methods (a dataclass's `__init__`), and periodic work, which `PERIODIC` names by the loops that start it.

Comprehensions and lambdas count towards their file only, not as functions. A class counts if one of its methods runs. A
change of file: two successive frames of one thread are in different files; a resumed coroutine is a frame, too.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import httpx2
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import codesdk
from codesdk.api.app import create_app
from codesdk.api.http_timeouts import TimeoutH11Protocol
from codesdk.bootstrap import Services
from codesdk.eventlog.hints import LocalHints
from codesdk.jobs import LocalWakeups
from codesdk.sandbox.local.driver import host_image, open_local
from codesdk.sessions import NewSession
from codesdk.settings import Settings
from codesdk.tenancy.principal import Role
from codesdk.worker.lifecycle.worker import Worker

PACKAGE = f"{Path(codesdk.__file__).parent}/"
PERIODIC = {
    *(
        "_approval_expiry_loop",
        "_lost_host_loop",
        "_approval_expiry_loop.<locals>.expire",
        "LostHosts.tend",
    ),  # the API's
    *("TaskLoop._run", "Heartbeat._run", "Watchdog._run"),  # the worker's
    *("FilePoller._run", "ListChangeNotifier.watch"),  # files of policies and tools
}
"""Functions that start work by the clock: each is the outermost package frame of its thread or task."""
POLL_S = 300.0
"""Seconds between polls: longer than a trace, so that wake-ups and hints alone carry the call."""
WARM_UPS = 5
SETTLE_S = 0.5
DEADLINE_S = 60.0
POLICY = "{version: 1, name: trace, default: deny, enable: [workspace.exec], rules: [{id: all, effect: allow}]}"


class Visit(NamedTuple):
    """One call of a package function."""

    thread: int
    file: str
    function: str
    depth: int
    """Package frames on the stack, this one included."""


class Trace:
    """A profile function that records visits while `on`. Doesn't see threads that started before it was set."""

    def __init__(self) -> None:
        self.on = False
        self.visits: list[Visit] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Record the call of a package function."""
        code = frame.f_code
        if not self.on or event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        depth, outermost, above = 0, code, frame
        while above is not None:
            if above.f_code.co_filename.startswith(PACKAGE):
                depth, outermost = depth + 1, above.f_code
            above = above.f_back
        if outermost.co_qualname not in PERIODIC:
            file = code.co_filename.removeprefix(PACKAGE)
            self.visits.append(Visit(threading.get_ident(), file, code.co_qualname, depth))

    @property
    def files(self) -> list[str]:
        """In the order of the first visit."""
        return list(dict.fromkeys(visit.file for visit in self.visits))

    def report(self, *, listed: bool) -> str:
        """The figures, one a line; `listed`: then each file with the number of its functions that ran."""
        functions = dict.fromkeys((v.file, v.function) for v in self.visits if not v.function.endswith(">"))
        classes = {(file, name.split(".<locals>")[0].rpartition(".")[0]) for file, name in functions}
        packages = Counter(file.split("/")[0] for file in self.files)
        changes, last = 0, {}
        for visit in self.visits:
            changes += last.setdefault(visit.thread, visit.file) != visit.file
            last[visit.thread] = visit.file
        lines = [
            f"files             {len(self.files)}",
            f"functions         {len(functions)}",
            f"classes           {sum(bool(name) for _, name in classes)}",
            f"package frames    {max((visit.depth for visit in self.visits), default=0)} deep",
            f"changes of file   {changes}",
            "files by package  " + ", ".join(f"{name} {count}" for name, count in packages.most_common()),
        ]
        each = Counter(file for file, _ in functions)
        return "\n".join([*lines, *(f"{each[file]:4}  {file}" for file in self.files if listed)]) + "\n"


@contextmanager
def installation(root: Path) -> Iterator[tuple[str, str]]:
    """A running API and worker: the URL of the MCP host, and the token of a new session."""
    (root / "policies").mkdir()
    (root / "policies" / "policy.yaml").write_text(POLICY)
    where = {"data_dir": root / "data", "policies_dir": root / "policies"}
    settings = Settings(**where, local_sandbox="plain", warm_pool=0, poll_s=POLL_S)
    hints, wakeups = LocalHints(), LocalWakeups()
    with ExitStack() as opened:
        api, own = (opened.enter_context(closing(Services(settings, hints=hints, wakeups=wakeups))) for _ in range(2))
        worker = Worker(own, opened.enter_context(closing(open_local(settings))), {"base": host_image()})
        opened.callback(worker.stop)
        worker.start()
        wakeups.bind(worker.host.id, worker.dispatcher.wake)
        app = create_app(api, settings)
        server = uvicorn.Server(uvicorn.Config(app, port=0, http=TimeoutH11Protocol, ws="none", log_config=None))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        opened.callback(thread.join, DEADLINE_S)
        opened.callback(setattr, server, "should_exit", True)
        opened.callback(app.state.stop)
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        person, _ = api.writer.run(lambda unit: api.directory.enroll(unit, "default", "trace", (Role.DEVELOPER,)))
        yield f"http://127.0.0.1:{port}/mcp", api.sessions.open(person, NewSession())[1]


async def call(url: str, token: str, trace: Trace) -> None:
    """Make some calls on one connection, then the one that is traced."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_S) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        for number in range(WARM_UPS + 1):
            if number == WARM_UPS:
                await asyncio.sleep(SETTLE_S)
                trace.on = True
            result = await client.call_tool("workspace_exec", {"command": f"echo {number}"})
            if result.is_error:
                sys.exit(f"error: the call failed: {result}")
        await asyncio.sleep(SETTLE_S)
        trace.on = False


def main() -> int:
    """Trace one call and write the figures to stdout; 1 if it visits more than `--at-most` files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":", maxsplit=1)[0])
    parser.add_argument("--list", action="store_true", help="list the files in the order of the first visit")
    parser.add_argument("--at-most", type=int, metavar="N", help="exit with 1 if more than N files are visited")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    trace = Trace()
    threading.setprofile(trace)  # all threads of the product start after it; this one only wires and runs the client
    with tempfile.TemporaryDirectory(prefix="codesdk-trace-") as root, installation(Path(root)) as (url, token):
        asyncio.run(call(url, token, trace))
    sys.stdout.write(trace.report(listed=options.list))
    return int(options.at_most is not None and len(trace.files) > options.at_most)


if __name__ == "__main__":
    sys.exit(main())
