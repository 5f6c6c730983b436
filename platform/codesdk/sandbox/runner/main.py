"""The runner's main object: holds the connection to the worker and dispatches its requests."""

from __future__ import annotations

import os
import select
import time

from codesdk.sandbox.runner import kernel
from codesdk.sandbox.runner.event_loop import EventLoop, SerialExecutor
from codesdk.sandbox.runner.execution import process_tree
from codesdk.sandbox.runner.execution.exec_lifecycle import Exec
from codesdk.sandbox.runner.execution.exec_requests import ExecRequests
from codesdk.sandbox.runner.execution.execs import Execs
from codesdk.sandbox.runner.execution.spool import Cursor
from codesdk.sandbox.runner.protocol import wire
from codesdk.sandbox.runner.workspace.file_service import FileService
from codesdk.sandbox.runner.workspace.snapshots import SnapshotService

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections import deque
    from typing import Any, Callable

    from codesdk.sandbox.runner.egress.relay import Relay
    from codesdk.sandbox.runner.execution.exec_lifecycle import Key
    from codesdk.sandbox.runner.execution.subreaper import ForkServer
    from codesdk.sandbox.runner.workspace.fingerprints import PreExecCheck
    from codesdk.sandbox.runner.workspace.watches import Watches

    Header = dict[str, Any]
else:
    import _signal as signal
    from _collections import deque

PROTOCOL = 1
_CHUNK = 60 * 1024
"""Output bytes per message; header and body together fit one fragment."""
_MAX_QUEUED_BYTES = 256 * 1024
"""The spools wait while more than this is queued, so that control frames aren't delayed."""
_EGRESS_BLOCK = 32 * 1024
"""Egress bytes per message. Sets egress's share of the connection against the execs' output."""
_COALESCE_S = 0.003
"""How long a reply to a start or an acknowledgement waits for output or an exit to send with it. Each write wakes four
threads in the worker."""


class Runner:
    """Serves one worker at a time: the one with the highest generation."""

    def __init__(self, settings: dict[str, Any], fork_server: ForkServer, read_fd: int, write_fd: int) -> None:
        self._settings = settings
        self._in, self._out = read_fd, write_fd
        self._uid, self._gid = int(settings["uid"]), int(settings["gid"])
        self._has_own_uid = self._uid != os.getuid()  # False in local sandboxes without root
        self._fork_server = fork_server
        self._environment = tool_environment(settings)
        self._loop = EventLoop()
        self._files = FileService(self._loop, settings, self._take_tool_ids)
        self._signaller = SerialExecutor("signaller", self._loop, lambda: None)
        self._execs = Execs(
            self._loop,
            self._fork_server,
            self._signal_tree,
            int(settings["spool_bytes"]),
            self._uid,
            kills_orphans=not settings.get("background_processes", True),
        )
        self._relay = self._make_relay(int(settings.get("egress", 0)))
        self._decoder = wire.Decoder()
        self._nonce = b""
        self._boot = os.urandom(8).hex()
        self._generation = 0
        self._connection = 0
        self._outgoing: deque[bytes] = deque()
        self._waiting = 0
        self._flush_at: float | None = None
        self._freeze_holders: set[str] = set()
        self._killer_uid = int(settings.get("killer_uid", process_tree.KILLER_UID))
        self._exec_requests = ExecRequests(
            self._execs, self._environment, self._relay, self._reply, self._reply_coalesced, self._reply_later
        )
        self._snapshots = SnapshotService(
            self._files.workspace,
            self._files.long_executor,
            lambda stop, done: self._freeze("stills", stop, lambda _: done()),
            self._reply_later,
            str(settings.get("workspace_mode", "rw")),
        )
        self._exec_requests.make_checks = self._make_checks
        self._exec_requests.cancel_pending = self._files.cancel_pending
        self._watches: Watches | None = None
        self._components: list[Any] = [self._execs, self._exec_requests, self._snapshots]
        if "workspace_cap" in settings:
            from codesdk.sandbox.runner.workspace.quota import QuotaMonitor  # noqa: PLC0415 - only where nothing else holds the cap

            quota = QuotaMonitor(
                settings["workspace_cap"], self._execs, self._files.workspace, self._files.long_executor
            )
            self._files.check = quota.check
            self._exec_requests.exec_blocker = quota.exec_blocker
            self._components.append(quota)
        self._handlers: dict[str, Callable[[wire.Message], None]] = {
            **self._exec_requests.handlers, **self._snapshots.handlers, "ping": self._ping, "egress": self._egress,
            **dict.fromkeys(("watch.open", "watch.read", "watch.close"), self._watch),
        }  # fmt: skip

    def _make_relay(self, port: int) -> Relay | None:
        if not port:
            return None
        # Imported only with egress, to save memory in other sandboxes.
        from codesdk.sandbox.runner.egress.relay import Relay  # noqa: PLC0415

        return Relay(
            port, self._loop, SerialExecutor("peers", self._loop, self._take_tool_ids), self._execs.egress_execs
        )

    def _take_tool_ids(self) -> None:
        """Switch the calling thread to the tool's effective ids permanently, which drops its capabilities."""
        if not self._has_own_uid:
            return  # the runner already has the tool's ids and no capabilities
        kernel.clear_thread_groups()
        kernel.set_thread_gids(-1, self._gid, -1)
        kernel.set_thread_uids(-1, self._uid, -1)

    def run(self) -> None:
        """Serve forever."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        wake_out, wake_in = os.pipe()
        os.set_blocking(wake_in, False)
        os.set_blocking(wake_out, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        self._loop.watch(wake_out, select.POLLIN, self._reap)
        os.set_blocking(self._out, False)
        self._loop.watch(self._in, select.POLLIN, self._on_input)
        self._execs.prepare()
        while True:
            components = self._components
            self._loop.run_once(_earliest(self._flush_at, *(component.next_deadline() for component in components)))
            for component in components:
                component.tick()
            self._pump()
            if self._flush_at is None or time.monotonic() >= self._flush_at:
                self._flush_at = None
                self._flush()

    def _reap(self, fd: int, _: int) -> None:
        """Reap orphans of dead subreapers; exit if the fork server died."""
        os.read(fd, 4096)
        ended = []
        try:
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                ended.append(pid)
        except ChildProcessError:
            pass  # no child is left
        if self._fork_server.pid in ended:
            raise SystemExit("the fork server died: no exec can be started any more")

    # -- the connection ---------------------------------------------------------------------------------------------

    def _on_input(self, fd: int, _: int) -> None:
        data = os.read(fd, 1 << 16)
        if not data:
            raise SystemExit("stdin was closed: no worker can connect any more")
        while True:
            try:
                for item in self._decoder.feed(data):
                    self._on_item(item)
            except wire.Malformed as error:
                os.write(2, f"codesdk runner: a message was dropped: {error}\n".encode())
                data = b""  # the decoder still has the rest
            else:
                return

    def _on_item(self, item: wire.Item) -> None:
        if isinstance(item, wire.Hello):
            self._greet(item)
        elif isinstance(item, wire.Message):
            self._serve(item)
        elif isinstance(item, wire.Oversize):
            self._reply(item.number, {"error": "TOO_LARGE", "message": "a message of more than 80 MiB"})

    def _greet(self, hello: wire.Hello) -> None:
        accepted = hello.generation >= self._generation
        if accepted:
            self._generation = hello.generation
            self._nonce = hello.nonce
            self._connection += 1
            self._decoder.accept(hello.nonce)
            self._outgoing.clear()  # may drop half a frame: the new worker discards everything before its ACK
            self._waiting = 0
            self._exec_requests.restart(hello.generation)
            self._snapshots.restart()
            if self._relay is not None:
                self._relay.restart()
            self._loop.post(self._prepare)  # after the ACK is on its way
        self._write_out(wire.Ack(hello.nonce, self._generation, accepted).encode())

    def _prepare(self) -> None:
        try:
            self._execs.prepare()
        except OSError as error:
            os.write(2, f"codesdk runner: no process for the next exec: {error}\n".encode())  # retried at its start

    def _serve(self, message: wire.Message) -> None:
        operation = str(message.header.get("op"))
        handler = self._handlers.get(operation)
        if operation in self._files.operations:
            self._files.serve(message, self._reply_later(message.number))
        elif handler is None:
            self._reply(message.number, {"error": "UNKNOWN_OPERATION", "message": operation})
        else:
            try:
                handler(message)
            except (LookupError, TypeError, ValueError) as error:
                self._reply(message.number, {"error": "BAD_REQUEST", "message": repr(error)})
            except OSError as error:
                self._reply(message.number, {"error": "BUSY", "message": f"cannot start an exec now: {error}"})

    def _reply(self, number: int, header: Header, body: bytes = b"") -> None:
        for frame in wire.encode(self._nonce, number, {"re": number, **header}, body):
            self._write_out(frame)

    def _reply_coalesced(self, number: int, header: Header, body: bytes) -> None:
        flush_at = self._flush_at if self._outgoing else time.monotonic() + _COALESCE_S
        self._reply(number, header, body)
        self._flush_at = flush_at  # keep the earliest, so that no reply waits longer

    def _reply_later(self, number: int) -> Callable[[Header, bytes], None]:
        """Return a function that sends the reply later, or drops it if another connection has taken over."""
        connection = self._connection

        def answer(header: Header, body: bytes = b"") -> None:
            if connection == self._connection:
                self._reply(number, header, body)

        return answer

    def _write_out(self, frame: bytes) -> None:
        self._flush_at = None
        self._outgoing.append(frame)
        self._waiting += len(frame)

    def _flush(self, *_: int) -> None:
        while self._outgoing:
            if len(self._outgoing) > 1 and len(self._outgoing[0]) < _CHUNK:
                head: list[bytes] = []
                size = 0
                while self._outgoing and size < _CHUNK:
                    head.append(self._outgoing.popleft())
                    size += len(head[-1])
                self._outgoing.appendleft(b"".join(head))
            try:
                count = os.write(self._out, self._outgoing[0])
            except BlockingIOError:
                self._loop.watch(self._out, select.POLLOUT, lambda *_: None)
                return
            self._waiting -= count
            rest = self._outgoing.popleft()[count:]
            if rest:
                self._outgoing.appendleft(rest)
            elif not self._outgoing:
                self._pump()
        self._loop.forget(self._out)

    def _pump(self) -> None:
        """Move output from the spools to the connection, round-robin by chunk."""
        progress = True
        while progress and self._waiting < _MAX_QUEUED_BYTES:
            progress = False
            for key, cursor in list(self._exec_requests.listeners.items()):
                found = self._execs.get(key)
                if found is None:
                    del self._exec_requests.listeners[key]
                    continue
                progress |= self._advance(found, cursor)
            progress |= self._advance_egress()

    def _advance_egress(self) -> bool:
        if self._relay is None or not self._nonce:
            return False
        block, refused = self._relay.take(_EGRESS_BLOCK), self._relay.refused
        if not block and not refused:
            return False
        self._relay.refused = 0
        for frame in wire.encode(self._nonce, 0, {"egress": refused}, block):
            self._write_out(frame)
        return True

    def _egress(self, message: wire.Message) -> None:
        if self._relay is not None:
            self._relay.feed(message.body)

    def _advance(self, found: Exec, cursor: Cursor) -> bool:
        header: Header = {"call": found.key[0], "attempt": found.key[1]}
        chunk = found.spool.after(cursor, _CHUNK)
        body = b""
        if chunk is not None:
            stream, offset, body = chunk
            header.update(event="output", stream=stream, offset=offset)
        elif found.result is not None:
            header.update(event="exit", result=found.result)
            del self._exec_requests.listeners[found.key]
        else:
            return False
        for frame in wire.encode(self._nonce, 0, header, body):
            self._write_out(frame)
        return True

    # -- execs ------------------------------------------------------------------------------------------------------

    def _signal_tree(self, subreaper: int, number: int, done: Callable[[], None]) -> None:
        root, excluding = (subreaper, 0) if subreaper else (os.getpid(), self._fork_server.pid)
        self._signal(
            lambda: process_tree.signal_tree(
                root, self._uid, number, excluding, self._killer_uid, bool(self._freeze_holders)
            ),
            lambda _: done(),
        )

    def _signal(self, send: Callable[[], int], done: Callable[[bool], None]) -> None:
        """Call `send` on the signaller's thread, then `done` on the loop with whether it returned anything but 0."""

        def work() -> Callable[[], None]:
            try:
                succeeded = bool(send())
            except OSError as error:
                # Nothing was signalled; an exec retries when its phase's deadline passes.
                os.write(2, (f"codesdk runner, signaller: {error!r}\n").encode())
                succeeded = False
            return lambda: done(succeeded)

        self._signaller.submit(work)

    def _make_checks(self) -> PreExecCheck:
        from codesdk.sandbox.runner.workspace.fingerprints import PreExecCheck  # noqa: PLC0415 - loaded where it is asked for

        def freeze(stop: bool, done: Callable[[bool], None]) -> None:
            self._freeze("checks", stop, done)

        home = str(self._settings["env"]["HOME"])
        made = PreExecCheck(
            self._files.workspace, home, self._files.long_executor, freeze, self._serve, self._reply, self._runs
        )
        self._components.append(made)
        return made

    def _runs(self, key: Key) -> bool:
        found = self._execs.get(key)
        return found is not None and found.result is None

    def _freeze(self, who: str, stop: bool, done: Callable[[bool], None]) -> None:
        """Stop all tools, or resume them when no holder is left. Serialized with other signals.

        `done` is called with whether every tool has stopped.
        """
        if stop:
            self._freeze_holders.add(who)
        else:
            self._freeze_holders.discard(who)
        self._exec_requests.is_frozen = "stills" in self._freeze_holders
        if not stop and self._freeze_holders:
            self._signaller.submit(lambda: lambda: done(True))
            return
        subreapers = self._execs.subreapers
        self._signal(
            lambda: process_tree.freeze(self._uid, self._fork_server.pid, stop, self._killer_uid, subreapers), done
        )

    def _watch(self, message: wire.Message) -> None:
        if self._watches is None:
            from codesdk.sandbox.runner.workspace.watches import Watches  # noqa: PLC0415 - loaded where it is asked for

            use_inotify = bool(self._settings.get("inotify", True))
            self._watches = Watches(
                self._loop, self._files.workspace, self._files.long_executor, self._reply_later, use_inotify
            )
            self._components.append(self._watches)
        self._watches.handlers[str(message.header["op"])](message)

    def _ping(self, message: wire.Message) -> None:
        self._reply(message.number, {"protocol": PROTOCOL, "generation": self._generation, "boot": self._boot})


def _earliest(*times: float | None) -> float | None:
    return min((time for time in times if time is not None), default=None)


def tool_environment(settings: dict[str, Any]) -> dict[str, str]:
    """Return the base environment of every exec: the image's ENV plus ours."""
    found = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "PYTHON", "CODESDK_"))}
    found.update(settings["env"])
    found.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return found
