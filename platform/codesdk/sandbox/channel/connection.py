"""One connection to a runner: requests with answers, and events with listeners.

In a tenant's image everything the runner sends is hostile input. It is parsed with bounds, and malformed input ends the
connection, never the worker.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from codesdk.sandbox.egress.multiplexer import EgressMultiplexer
from codesdk.sandbox.runner.protocol import wire

Header = dict[str, Any]
Key = tuple[str, int]


class Stream(Protocol):
    """Bytes to the runner's stdin and from its stdout."""

    def send(self, data: bytes) -> None:
        """Send everything; OSError if the peer is gone."""
        ...

    def receive(self, timeout_s: float) -> bytes | None:
        """Some bytes of stdout, b"" at the end, None on timeout."""
        ...

    def close(self) -> None:
        """Close it, also under a thread that waits in `receive`."""
        ...

    def stderr_tail(self) -> str:
        """The tail of the runner's stderr, for error messages."""
        ...


class SendRequest(Protocol):
    """Sends one request to the runner. `repeat`: sending it twice does no harm."""

    def __call__(
        self, header: Header, body: bytes = b"", *, timeout_s: float = 30.0, repeat: bool = False
    ) -> tuple[Header, bytes]:
        """The answer's header and body."""
        ...


MakeEgressHandler = Callable[[Callable[[bytes], None], Callable[[str], None]], EgressMultiplexer]
"""(send, broken): creates the egress of a connection. `send` blocks; `broken` ends the connection."""


class ConnectionLost(Exception):
    """The connection ended. Internal: `RunnerClient` finds out whether the sandbox did."""


class ConnectionIdle(ConnectionLost):
    """This side closed the connection before the request was sent; connect again."""


class RequestTimeout(Exception):
    """No answer to this request in time, though the runner is alive. Internal, see `faults.RunnerSilent`."""


class HelloRejected(Exception):
    """The runner has seen a higher generation. Internal, see `faults.StaleGeneration`."""

    def __init__(self, newest: int) -> None:
        super().__init__(newest)
        self.newest = newest


Inbox = SimpleQueue[object]
_WAKE_UP = object()


class SharedReader:
    """Lets waiting threads take turns at reading a stream.

    A dedicated reader thread costs two thread switches per answer, a tenth of an exec's time. Here a waiting thread reads
    for itself, delivers other threads' messages, and passes the turn on when it has its own.
    """

    def __init__(self, read: Callable[[float], None]) -> None:
        """`read(seconds)`: wait for input and deliver it to its inboxes. Must not raise."""
        self._read = read
        self._reader_lock = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: list[Inbox] = []

    def wait(self, inbox: Inbox, timeout_s: float) -> object:
        """The next item of the inbox.

        Raises:
            Empty: timeout.
        """
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._waiting.append(inbox)
        try:
            while True:
                left = max(0.0, deadline - time.monotonic())
                if self._reader_lock.acquire(blocking=False):
                    try:
                        if inbox.empty():
                            self._read(left)
                    finally:
                        self._reader_lock.release()
                    if inbox.empty() and time.monotonic() < deadline:
                        continue
                    left = 0.0
                item = inbox.get(timeout=left)
                if item is not _WAKE_UP:
                    return item
        finally:
            self._leave(inbox)

    def poll(self) -> None:
        """Deliver input that has arrived, unless another thread is reading."""
        if self._reader_lock.acquire(blocking=False):
            try:
                self._read(0.0)
            finally:
                self._reader_lock.release()
            self._wake_next()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the turn: the calling thread reads for everyone."""
        with self._reader_lock:
            yield
        self._wake_next()

    def _leave(self, inbox: Inbox) -> None:
        with self._lock:
            self._waiting.remove(inbox)
        self._wake_next()

    def _wake_next(self) -> None:
        # A waiter registers before it tries to get the turn: it either got it or is seen here.
        with self._lock:
            if self._waiting and not self._reader_lock.locked():
                self._waiting[0].put(_WAKE_UP)


class RunnerConnection:
    """An accepted connection. The thread that waits for an answer reads it; with egress a dedicated thread does."""

    IDLE_S = 5.0
    """Closed after this without requests or listeners: an idle sandbox holds no connection."""

    STALE_AFTER_S = 0.05
    """A connection unused for this long is polled before use: its end may be unread."""

    EGRESS_YIELDS_S = 0.05
    """How long egress yields to requests: a long upload must not starve egress, nor egress a cancel."""

    MAX_UNCONFIRMED = 1024
    """Unconfirmed messages kept, the latest; an honest runner answers in order, and soon."""

    def __init__(
        self,
        stream: Stream,
        generation: int,
        *,
        timeout_s: float,
        idle_s: float = IDLE_S,
        make_egress_handler: MakeEgressHandler | None = None,
    ) -> None:
        self._stream = stream
        self._idle_s = idle_s
        self._nonce = os.urandom(16)
        self._decoder = wire.Decoder(self._nonce)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._senders_done = threading.Condition(self._lock)
        self._sending = 0
        self._answers: dict[int, Inbox] = {}
        self._listeners: dict[Key, Inbox] = {}
        self._unconfirmed: dict[int, Header] = {}
        self._reading = SharedReader(self._read)
        self._ended = threading.Event()
        self._last_used = time.monotonic()
        self.lost = False
        self.reason = ""
        backlog = self._greet(generation, timeout_s)
        self._egress = make_egress_handler(self._send_egress, self._end) if make_egress_handler is not None else None
        for item in backlog:
            self._deliver(item)
        watch = self._read_loop if self._egress is not None else self._watch_idle
        self._thread = threading.Thread(target=watch, name="sandbox-connection", daemon=True)
        self._thread.start()

    def _greet(self, generation: int, timeout_s: float) -> list[wire.Item]:
        deadline = time.monotonic() + timeout_s
        try:
            self._stream.send(wire.Hello(self._nonce, generation).encode())
            while (left := deadline - time.monotonic()) > 0:
                data = self._stream.receive(left)
                if data == b"":
                    break
                items = self._decoder.feed(data or b"")
                for item in items:
                    if isinstance(item, wire.Ack) and item.nonce == self._nonce:
                        if not item.accepted:
                            self._stream.close()
                            raise HelloRejected(item.generation)
                        self._decoder.accept(self._nonce)
                        return list(items)
        except (OSError, wire.Malformed) as error:
            self._stream.close()
            raise ConnectionLost(f"{error}") from error
        stderr = self._stream.stderr_tail()
        self._stream.close()
        raise ConnectionLost(stderr or "the runner did not answer")

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self, timeout_s: float) -> None:
        try:
            data = self._stream.receive(timeout_s)
            if data == b"":
                self._end(self._stream.stderr_tail() or "the connection to the runner ended")
            for item in self._decoder.feed(data or b""):
                self._deliver(item)
        except (OSError, wire.Malformed, KeyError, TypeError, ValueError) as error:
            self._end(f"the runner's answer is malformed or the connection broke: {error!r}")

    def _read_loop(self) -> None:
        """Thread of a connection with egress, whose frames arrive at any time."""
        with self._reading.exclusive():
            while not self._is_idle():
                self._read(1.0)
        self._end("idle")

    def _watch_idle(self) -> None:
        """Thread of a connection without egress."""
        while not self._is_idle():
            self._ended.wait(self._idle_s / 2)
        self._end("idle")

    def _is_idle(self) -> bool:
        """Whether it ended; marks an idle one as lost."""
        with self._lock:
            busy = self._answers or self._listeners
            if not busy and time.monotonic() - self._last_used > self._idle_s:
                self.lost, self.reason = True, self.reason or "idle"
            return self.lost

    def _deliver(self, item: wire.Item) -> None:
        if not isinstance(item, wire.Message):
            return  # an answer to somebody else's HELLO
        header = item.header
        if "egress" in header:
            self._deliver_egress(int(header["egress"]), item.body)
            return
        if "re" in header:
            target = self._answers.get(int(header["re"]))
            self._unconfirmed.pop(int(header["re"]), None)
        else:
            target = self._listeners.get((str(header["call"]), int(header["attempt"])))
        if target is not None:
            target.put(item)

    def _deliver_egress(self, refused: int, frames: bytes) -> None:
        if self._egress is None:
            return
        if refused:
            self._egress.refused(refused)
        if frames:
            self._egress.feed(frames)

    def _end(self, reason: str) -> None:
        with self._lock:
            self.lost = True
            self.reason = self.reason or reason
            queues = [*self._answers.values(), *self._listeners.values()]
            self._senders_done.notify_all()
        self._ended.set()
        self._stream.close()
        for queue in queues:
            queue.put(None)
        if self._egress is not None:
            self._egress.lost()

    def close(self) -> None:
        """End the connection; waiting threads get ConnectionLost."""
        self._end("closed")

    # -- asking -------------------------------------------------------------------------------------------------------

    CHECK_INTERVAL_S = 2.0
    """Interval at which `check` is called while an answer is outstanding."""
    STOP_CHECK_S = 0.25
    """Interval at which `stop` is called: a cancel has to finish within two seconds."""

    PING_S = 10.0
    """How long a runner may take to answer a liveness ping; under a fork bomb it took 0.7 s at most."""

    def call(
        self,
        header: Header,
        body: bytes = b"",
        *,
        timeout_s: float,
        check: Callable[[], object] = lambda: None,
        stop: Callable[[], object] | None = None,
        keep_open: bool = False,
    ) -> tuple[Header, bytes]:
        """Send a request and wait for the answer. `check` and `stop` are called meanwhile; what they raise ends the wait.

        `keep_open`: on timeout keep the connection for other requests if the runner is alive.

        Raises:
            ConnectionIdle: not sent. ConnectionLost: possibly sent, no answer. RequestTimeout: sent, no answer yet.
        """
        number = next(self._numbers)
        answer: Inbox = SimpleQueue()
        self._poll_if_stale()
        with self._lock:
            if self.lost:
                raise ConnectionIdle(self.reason)
            self._answers[number] = answer
            self._last_used = time.monotonic()
        try:
            self._send(number, header, body)
            message = self._await(answer, timeout_s, check, stop)
        except Empty as error:
            if keep_open and self._is_alive():
                raise RequestTimeout from error
            # A runner that does not answer may hang forever: the connection is given up, not just this request.
            self._end("the runner did not answer in time")
            raise ConnectionLost("the runner did not answer in time") from error
        finally:
            with self._lock:
                del self._answers[number]
                self._last_used = time.monotonic()
        return message.header, message.body

    def _is_alive(self) -> bool:
        try:
            self.call({"op": "ping"}, timeout_s=self.PING_S)
        except ConnectionLost:
            return False
        return True

    def _poll_if_stale(self) -> None:
        if time.monotonic() - self._last_used > self.STALE_AFTER_S:
            self._reading.poll()

    def send_nowait(self, header: Header) -> None:
        """Send without waiting; messages unanswered when the connection ends are `unconfirmed`.

        Raises:
            ConnectionIdle: not sent. ConnectionLost: possibly sent.
        """
        number = next(self._numbers)
        self._poll_if_stale()
        with self._lock:
            if self.lost:
                raise ConnectionIdle(self.reason)
            # A runner that never answers: dropping an ack only keeps its exec in the runner for longer.
            while len(self._unconfirmed) >= self.MAX_UNCONFIRMED:
                del self._unconfirmed[next(iter(self._unconfirmed))]
            self._unconfirmed[number] = header
            self._last_used = time.monotonic()
        self._send(number, header, b"")

    def unconfirmed(self) -> list[Header]:
        """Messages of `send_nowait` without an answer."""
        with self._lock:
            return list(self._unconfirmed.values())

    def _await(
        self, answer: Inbox, timeout_s: float, check: Callable[[], object], stop: Callable[[], object] | None
    ) -> wire.Message:
        now = time.monotonic()
        deadline, due = now + timeout_s, now + self.CHECK_INTERVAL_S
        pause = self.CHECK_INTERVAL_S if stop is None else self.STOP_CHECK_S
        while True:
            left = deadline - time.monotonic()
            try:
                return self.next(answer, max(0.0, min(left, pause)))
            except Empty:
                if left <= pause:
                    raise
            if stop is not None:
                stop()
            if time.monotonic() >= due:
                check()
                due = time.monotonic() + self.CHECK_INTERVAL_S

    def _send(self, number: int, header: Header, body: bytes) -> None:
        with self._lock:
            self._sending += 1
        try:
            self._send_frames(number, header, body)
        finally:
            with self._lock:
                self._sending -= 1
                self._senders_done.notify_all()

    def _send_egress(self, frames: bytes) -> None:
        """Send egress frames after pending requests. Raises ConnectionLost if the connection ended."""
        with self._lock:
            self._senders_done.wait_for(lambda: self.lost or not self._sending, self.EGRESS_YIELDS_S)
            if self.lost:
                raise ConnectionLost(self.reason)
        self._send_frames(0, {"op": "egress"}, frames)

    def _send_frames(self, number: int, header: Header, body: bytes) -> None:
        batch = bytearray()
        try:
            for frame in wire.encode(self._nonce, number, header, body):
                batch += frame
                if len(batch) >= wire.FRAGMENT:
                    # The lock is given up between frames: a cancel goes out before the rest of a long upload.
                    with self._send_lock:
                        self._stream.send(bytes(batch))
                    batch.clear()
            if batch:
                with self._send_lock:
                    self._stream.send(bytes(batch))
        except OSError as error:
            self._end(f"sending failed: {error}")
            raise ConnectionLost(self.reason) from error

    def listen(self, key: Key) -> Inbox:
        """Subscribe to the events of one exec; read them with `next`."""
        inbox: Inbox = SimpleQueue()
        self._poll_if_stale()
        with self._lock:
            if self.lost:
                raise ConnectionIdle(self.reason)
            self._listeners[key] = inbox
        return inbox

    def next(self, inbox: Inbox, timeout_s: float) -> wire.Message:
        """The next message of an inbox.

        Raises:
            Empty: timeout. ConnectionLost: the connection ended.
        """
        message = self._reading.wait(inbox, timeout_s)
        if not isinstance(message, wire.Message):
            raise ConnectionLost(self.reason)
        return message

    def unlisten(self, key: Key) -> None:
        """Unsubscribe."""
        with self._lock:
            self._listeners.pop(key, None)
            self._last_used = time.monotonic()
