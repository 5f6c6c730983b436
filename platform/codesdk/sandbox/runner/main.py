"""The runner's loop: who may speak to it, and what each request does."""

from __future__ import annotations

import os
import select
import time

from codesdk.sandbox.runner import codec, files, kernel, tree, wire
from codesdk.sandbox.runner.beneath import Refused, Root, refusal
from codesdk.sandbox.runner.execs import Exec, Execs, Key
from codesdk.sandbox.runner.loop import Hand, Loop
from codesdk.sandbox.runner.spool import Cursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections import deque
    from typing import Any, Callable

    from codesdk.sandbox.runner.relay import Relay
    from codesdk.sandbox.runner.shepherd import Nursery

    Header = dict[str, Any]
    FileOperation = Callable[[Header, bytes], tuple[Header, bytes]]
else:
    import _signal as signal
    from _collections import deque

PROTOCOL = 1
_CHUNK = 60 * 1024
"""Output bytes in one message: with its header it fits one fragment."""
_HIGH_WATER = 256 * 1024
"""Bytes waiting for stdout beyond which no more output is taken from the spools: control frames stay quick."""
_EGRESS_BLOCK = 32 * 1024
"""Bytes of egress in one message: the share of the connection that it gets beside each exec's output."""
_HOLD_S = 0.003
"""How long the answer to a start waits for output or the end, to travel with it: each write wakes four threads outside."""


class Runner:
    """Serves one worker at a time: the one with the highest generation."""

    def __init__(self, settings: dict[str, Any], nursery: Nursery, read_fd: int, write_fd: int) -> None:
        self._settings = settings
        self._in, self._out = read_fd, write_fd
        self._uid, self._gid = int(settings["uid"]), int(settings["gid"])
        self._is_apart = self._uid != os.getuid()  # not so where there is no root: local sandboxes of a user
        self._mode = str(settings.get("workspace_mode", "rw"))
        self._nursery = nursery
        self._environment = tool_environment(settings)
        self._loop = Loop()
        self._root: Root | None = None
        self._files = Hand("files", self._loop, self._become_tool)
        self._killer = Hand("killer", self._loop, lambda: None)
        self._execs = Execs(self._loop, self._nursery, self._signal_tree, int(settings["spool_bytes"]), self._uid)
        self._relay = self._make_relay(int(settings.get("egress", 0)))
        self._decoder = wire.Decoder()
        self._nonce = b""
        self._boot = os.urandom(8).hex()
        self._generation = 0
        self._connection = 0
        self._outgoing: deque[bytes] = deque()
        self._waiting = 0
        self._hold: float | None = None
        self._listeners: dict[Key, Cursor] = {}
        self._operations: dict[str, FileOperation] = {
            "read": self._read, "write": self._write, "list": self._list, "stat": self._stat, "import": self._import,
        }  # fmt: skip

    def _make_relay(self, port: int) -> Relay | None:
        if not port:
            return None
        # Only here: an idle sandbox without egress does not pay for it.
        from codesdk.sandbox.runner.relay import Relay  # noqa: PLC0415

        return Relay(port, self._loop, Hand("peers", self._loop, self._take_tool_ids), self._execs.passes)

    def _take_tool_ids(self) -> None:
        """On one thread, for good: the tool's effective ids, and so no capability."""
        if not self._is_apart:
            return  # the runner is the tool's user, and has no capability to lose
        kernel.clear_thread_groups()
        kernel.set_thread_gids(-1, self._gid, -1)
        kernel.set_thread_uids(-1, self._uid, -1)

    def _become_tool(self) -> None:
        """On the file thread, for good."""
        self._take_tool_ids()
        self._root = Root(self._settings["workspace"], bool(self._settings.get("openat2", True)))
        home = self._environment["HOME"]
        try:
            os.mkdir(home, 0o700)
        except OSError:
            pass  # it is there, or its parent is read-only: tools then see a HOME that they cannot write

    def run(self) -> None:
        """Serve for ever."""
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
            self._loop.once(_earlier(self._execs.next_deadline(), self._hold))
            self._execs.tick()
            self._pump()
            if self._hold is None or time.monotonic() >= self._hold:
                self._hold = None
                self._flush()

    def _reap(self, fd: int, _: int) -> None:
        """Orphans of a shepherd that died come to us; the nursery itself must not go missing."""
        os.read(fd, 4096)
        while True:
            try:
                pid, _status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                return
            if pid == self._nursery.pid:
                break
        raise SystemExit("the nursery died: no exec can be started any more")

    # -- the connection ---------------------------------------------------------------------------------------------

    def _on_input(self, fd: int, _: int) -> None:
        data = os.read(fd, 1 << 16)
        if not data:
            raise SystemExit("stdin was closed: nobody can speak to this runner any more")
        while True:
            try:
                for item in self._decoder.feed(data):
                    self._take(item)
            except wire.Malformed as error:
                os.write(2, f"codesdk runner: a message was dropped: {error}\n".encode())
                data = b""  # what came with it is in the decoder still
            else:
                return

    def _take(self, item: wire.Item) -> None:
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
            self._outgoing.clear()  # half a frame may be lost with it: the new worker discards up to its ACK
            self._waiting = 0
            self._listeners.clear()
            if self._relay is not None:
                self._relay.restart()
        self._write_out(wire.Ack(hello.nonce, self._generation, accepted).encode())

    def _serve(self, message: wire.Message) -> None:
        operation = str(message.header.get("op"))
        handler = {
            "start": self._start, "cancel": self._cancel, "ack": self._acknowledge, "execs": self._list_execs, "ping": self._ping,
            "egress": self._egress,
        }.get(operation)  # fmt: skip
        if operation in self._operations:
            self._on_files(message, self._operations[operation])
        elif handler is None:
            self._reply(message.number, {"error": "UNKNOWN_OPERATION", "message": operation})
        else:
            try:
                handler(message)
            except (KeyError, TypeError, ValueError) as error:
                self._reply(message.number, {"error": "BAD_REQUEST", "message": repr(error)})
            except OSError as error:
                self._reply(message.number, {"error": "BUSY", "message": f"cannot start an exec now: {error}"})

    def _reply(self, number: int, header: Header, body: bytes = b"") -> None:
        for frame in wire.encode(self._nonce, number, {"re": number, **header}, body):
            self._write_out(frame)

    def _later(self, number: int) -> Callable[[Header, bytes], None]:
        """A reply for when it is ready; dropped when another connection has taken over meanwhile."""
        connection = self._connection

        def answer(header: Header, body: bytes = b"") -> None:
            if connection == self._connection:
                self._reply(number, header, body)

        return answer

    def _write_out(self, frame: bytes) -> None:
        self._hold = None
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
        """Move output from the spools to the connection, one chunk of each exec in turn."""
        progress = True
        while progress and self._waiting < _HIGH_WATER:
            progress = False
            for key, cursor in list(self._listeners.items()):
                found = self._execs.get(key)
                if found is None:
                    del self._listeners[key]
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
            del self._listeners[found.key]
        else:
            return False
        for frame in wire.encode(self._nonce, 0, header, body):
            self._write_out(frame)
        return True

    # -- execs ------------------------------------------------------------------------------------------------------

    def _signal_tree(self, shepherd: int, number: int, done: Callable[[], None]) -> None:
        root, without = (shepherd, 0) if shepherd else (os.getpid(), self._nursery.pid)
        bystander = int(self._settings.get("bystander", tree.BYSTANDER_UID))

        def work() -> Callable[[], None]:
            try:
                tree.signal_tree(root, self._uid, number, without, bystander)
            except OSError as error:
                # Nothing was signalled; the exec's phase asks again.
                os.write(2, (f"codesdk runner, killer: {error!r}\n").encode())
            return done

        self._killer.submit(work)

    def _start(self, message: wire.Message) -> None:
        header = message.header
        key = (str(header["call"]), int(header["attempt"]))
        if int(header["generation"]) != self._generation:
            self._reply(message.number, {"error": "STALE_GENERATION", "generation": self._generation})
            return
        if self._execs.was_acknowledged(key):
            self._reply(message.number, {"error": "ALREADY_ACKNOWLEDGED", "message": "its result was committed"})
            return
        found, state = self._execs.get(key), "known"
        if found is None:
            if header.get("join"):
                self._reply(message.number, {"error": "NO_SUCH_EXEC", "message": "it was never started here"})
                return
            if self._execs.full():
                self._reply(message.number, {"error": "BUSY", "message": "too many execs run in this sandbox"})
                return
            size = int(header["spec_bytes"])
            request = codec.load(message.body[:size])
            request["env"] = {**self._environment, **request.get("env", {})}
            if request.pop("egress", False) and self._relay is not None:
                request["credential"] = os.urandom(16).hex()
                request["env"].update(self._relay.environment(request["credential"]))
            request["timeout_s"], request["grace_s"] = float(header["timeout_s"]), float(header["grace_s"])
            found, state = self._execs.start(key, request, message.body[size:], int(header["keep_bytes"])), "started"
        sent = header.get("from", [0, 0])
        self._listeners[key] = Cursor(int(sent[0]), int(sent[1]))
        is_quiet = not self._outgoing
        self._reply(message.number, {"state": state})
        if is_quiet:
            self._hold = time.monotonic() + _HOLD_S

    def _cancel(self, message: wire.Message) -> None:
        found = self._execs.get((str(message.header["call"]), int(message.header["attempt"])))
        if found is None or found.result is not None:
            self._reply(message.number, {"ended": found is not None})
            return
        answer = self._later(message.number)
        found.waiting.append(lambda ended: answer({"ended": ended}, b""))
        found.end("cancelled")

    def _acknowledge(self, message: wire.Message) -> None:
        key = (str(message.header["call"]), int(message.header["attempt"]))
        self._reply(message.number, {"forgotten": self._execs.acknowledge(key)})

    def _list_execs(self, message: wire.Message) -> None:
        self._reply(message.number, {}, codec.dump(self._execs.states()))

    def _ping(self, message: wire.Message) -> None:
        self._reply(message.number, {"protocol": PROTOCOL, "generation": self._generation, "boot": self._boot})

    # -- files ------------------------------------------------------------------------------------------------------

    def _on_files(self, message: wire.Message, operation: FileOperation) -> None:
        answer = self._later(message.number)

        def work() -> Callable[[], None]:
            self._workspace.mend()
            header, body = _guarded(operation, message)
            return lambda: answer(header, body)

        self._files.submit(work)

    @property
    def _workspace(self) -> Root:
        if self._root is None:
            raise RuntimeError("the file thread has not begun")
        return self._root

    def _read(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        limit = int(self._settings["max_read_bytes"])
        length = header.get("length")
        wanted = limit if length is None else min(int(length), limit)
        info, data = files.read(self._workspace, header["path"], int(header["offset"]), wanted)
        return {"content": info}, data

    def _stat(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        return {"info": files.status(self._workspace, header["path"])}, b""

    def _list(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        entries, cut = files.listing(self._workspace, header["path"], int(header["depth"]), int(header["limit"]))
        return {"truncated": cut}, codec.dump(entries)

    def _write(self, header: Header, body: bytes) -> tuple[Header, bytes]:
        size = int(header["spec_bytes"])
        place = size
        writes: list[files.Write] = []
        for item in codec.load(body[:size]):
            content = None
            if item["bytes"] is not None:
                content = body[place : place + item["bytes"]]
                place += item["bytes"]
            writes.append(files.Write(item["path"], content, item["expect"], item["mode"]))
        infos = files.write(self._workspace, writes, int(self._settings["limits"].get("fsize", 0)))
        return {}, codec.dump(infos)

    def _import(self, _: Header, body: bytes) -> tuple[Header, bytes]:
        from codesdk.sandbox.runner import archive  # noqa: PLC0415 - tarfile costs every idle sandbox half a megabyte

        if self._mode == "rw":
            return {"files": archive.unpack(self._workspace, body)}, b""
        if self._mode == "none":
            raise Refused("PERMISSION_DENIED", "this sandbox has no workspace")
        # No tool can write there, so nothing can be swapped beneath root's hands.
        kernel.set_thread_uids(-1, 0, -1)
        try:
            return {"files": archive.unpack(self._workspace, body, readable=True)}, b""
        finally:
            kernel.set_thread_uids(-1, self._uid, -1)


def _guarded(operation: FileOperation, message: wire.Message) -> tuple[Header, bytes]:
    """Run a file operation; whatever goes wrong is an answer, and the thread lives on."""
    try:
        return operation(message.header, message.body)
    except Refused as refused:
        path = getattr(refused, "path", message.header.get("path", ""))
        return {"refused": refused.error, "path": path, "message": refused.message}, b""
    except OSError as error:
        why = refusal(error)
        return {"refused": why.error, "path": message.header.get("path", ""), "message": why.message}, b""
    except (KeyError, TypeError, ValueError, RecursionError, MemoryError) as error:
        return {"error": "BAD_REQUEST", "message": repr(error)}, b""


def _earlier(one: float | None, other: float | None) -> float | None:
    return min(one, other) if one is not None and other is not None else one if other is None else other


def tool_environment(settings: dict[str, Any]) -> dict[str, str]:
    """What every exec finds set; its own variables go on top. The image's own ENV is kept."""
    found = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "PYTHON", "CODESDK_"))}
    found.update(settings["env"])
    found.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return found
