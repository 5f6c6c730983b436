"""Egress inside the sandbox: a loopback listener that forwards each connection as a stream to the worker's proxy.

The runner doesn't parse the traffic. It only checks that every process holding the other end belongs to an exec that
may use egress. Loaded only in sandboxes whose profile allows hosts.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
from collections import deque
from typing import Callable

from codesdk.sandbox.runner.egress import peers
from codesdk.sandbox.runner.event_loop import EventLoop, SerialExecutor
from codesdk.sandbox.runner.protocol import mux as channels

HOST = "127.0.0.1"
_READ_BYTES = 64 * 1024
_MAX_CHECKS = 64
"""Connections whose peer may be under identification at once; more are refused."""
_END_AT_ONCE = struct.pack("ii", 1, 0)
_REFUSAL = b"HTTP/1.1 403 Forbidden\r\nX-CodeSDK-Egress: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

EgressExec = tuple[int, str, int, str]
"""Subreaper pid, call, attempt and credential of an exec with egress."""


class _Connection:
    def __init__(self, sock: socket.socket, stream: int) -> None:
        self.sock = sock
        self.stream = stream
        self.pending: deque[bytes] = deque()
        self.watched = 0
        self.tool_ended = False
        self.worker_ended = False


class Relay:
    """Forwards all egress of the sandbox. Methods run on the loop's thread."""

    def __init__(
        self, port: int, loop: EventLoop, executor: SerialExecutor, egress_execs: Callable[[], list[EgressExec]]
    ) -> None:
        """Bind the listener.

        `executor` runs on a thread with the tool's ids; `egress_execs` returns the running execs with egress.

        Raises:
            OSError: the port is taken.
        """
        self._port = port
        self.refused = 0
        self._loop = loop
        self._executor = executor
        self._egress_execs = egress_execs
        self._channel: channels.Multiplexer | None = None
        self._connections: dict[int, _Connection] = {}
        self._checks = 0
        # Bound before any tool runs: a tool that took the port could read the others' traffic.
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind((HOST, port))
        self._listener.listen(channels.MAX_STREAMS)
        self._listener.setblocking(False)
        loop.watch(self._listener.fileno(), select.POLLIN, self._on_accept)

    def environment(self, credential: str) -> dict[str, str]:
        """Return the environment variables of an exec with egress."""
        url = f"http://exec:{credential}@{HOST}:{self._port}"
        found = {}
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            found[name] = found[name.lower()] = url
        found["NO_PROXY"] = found["no_proxy"] = "localhost,127.0.0.1,::1"
        found["NODE_USE_ENV_PROXY"] = "1"  # Node 24 and later ignore the variables above without it
        return found

    # -- the tools' side ----------------------------------------------------------------------------------------------

    def _on_accept(self, _fd: int, _events: int) -> None:
        try:
            sock, peer = self._listener.accept()
        except OSError:
            return  # the peer disconnected, or no descriptor is free
        sock.setblocking(False)
        if self._checks >= _MAX_CHECKS:
            self._refuse(sock, b"too_many")
            return
        self._checks += 1

        def work() -> Callable[[], None]:
            try:
                found = peers.lineages(peer, (HOST, self._port))
            except (OSError, ValueError) as error:
                os.write(2, (f"codesdk runner, egress: {error!r}\n").encode())
                found = []
            return lambda: self._admit(sock, found)

        self._executor.submit(work)

    def _admit(self, sock: socket.socket, lineages: list[set[int]]) -> None:
        """Open a stream if all holders of the socket belong to one exec with egress."""
        self._checks -= 1
        found_exec = self._find_exec(lineages)
        if found_exec is None:
            self.refused += 1
            self._refuse(sock, b"not_the_exec")
            return
        label = json.dumps(found_exec[1:]).encode()
        stream = self._channel.open(label) if self._channel is not None and len(label) <= channels.MAX_LABEL else None
        if stream is None:
            self._refuse(sock, b"too_many_at_once")
            return
        connection = self._connections[stream] = _Connection(sock, stream)
        self._watch(connection)

    def _find_exec(self, lineages: list[set[int]]) -> EgressExec | None:
        """Return the exec that all holders of the socket belong to."""
        for found in self._egress_execs():
            if lineages and all(found[0] in lineage for lineage in lineages):
                return found
        return None

    @staticmethod
    def _refuse(sock: socket.socket, why: bytes) -> None:
        try:
            sock.send(_REFUSAL % why)
        except OSError:
            pass  # the peer disconnected
        sock.close()

    def _watch(self, connection: _Connection) -> None:
        wanted = select.POLLOUT if connection.pending else 0
        if not connection.tool_ended and self._channel is not None and self._channel.room(connection.stream) > 0:
            wanted |= select.POLLIN
        if wanted == connection.watched:
            return
        connection.watched = wanted
        if wanted:
            self._loop.watch(connection.sock.fileno(), wanted, lambda _, events: self._on_socket(connection, events))
        else:
            # Unregister fully: with no events requested, poll would still report a hang-up again and again.
            self._loop.forget(connection.sock.fileno())

    def _on_socket(self, connection: _Connection, events: int) -> None:
        try:
            if connection.watched & select.POLLIN and events & ~select.POLLOUT:
                self._read(connection)
            if connection.pending and events & (select.POLLOUT | select.POLLERR | select.POLLHUP):
                self._write(connection)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection, say=True)
            return
        self._close_if_done(connection)

    def _read(self, connection: _Connection) -> None:
        if self._channel is None:
            return
        data = connection.sock.recv(min(_READ_BYTES, self._channel.room(connection.stream)))
        if data:
            self._channel.send(connection.stream, data)
        else:
            connection.tool_ended = True
            self._channel.finish(connection.stream)

    def _write(self, connection: _Connection) -> None:
        while connection.pending:
            count = connection.sock.send(connection.pending[0])
            rest = connection.pending.popleft()[count:]
            if self._channel is not None:
                self._channel.consumed(connection.stream, count)
            if rest:
                connection.pending.appendleft(rest)
                return

    def _close_if_done(self, connection: _Connection) -> None:
        if connection.worker_ended and not connection.pending:
            if connection.tool_ended:
                self._drop(connection, say=False)
                return
            try:
                connection.sock.shutdown(socket.SHUT_WR)
            except OSError:
                self._drop(connection, say=True)
                return
        self._watch(connection)

    def _drop(self, connection: _Connection, say: bool) -> None:
        """Close the socket. `say`: also reset the stream."""
        if self._connections.pop(connection.stream, None) is None:
            return
        self._loop.forget(connection.sock.fileno())
        if say:
            if self._channel is not None:
                self._channel.reset(connection.stream)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _END_AT_ONCE)
        connection.sock.close()

    # -- the worker's side --------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Start over for a new worker connection: close all connections, whose streams are lost."""
        self._channel = None
        for connection in list(self._connections.values()):
            self._drop(connection, say=True)
        self._channel = channels.Multiplexer(opener=True)

    def feed(self, data: bytes) -> None:
        """Handle frames from the worker."""
        if self._channel is None:
            return
        try:
            for event in self._channel.feed(data):
                self._on_event(event)
        except channels.MuxError as error:
            os.write(2, (f"codesdk runner, egress: {error}\n").encode())
            self.restart()
            self._channel = None  # until the next HELLO

    def _on_event(self, event: channels.Event) -> None:
        connection = self._connections.get(event.stream)
        if connection is None:
            return
        if isinstance(event, channels.DataReceived):
            connection.pending.append(event.data)
            try:
                self._write(connection)
            except BlockingIOError:
                pass
            except OSError:
                self._drop(connection, say=True)
                return
        elif isinstance(event, channels.StreamEnded):
            connection.worker_ended = True
        else:
            self._drop(connection, say=True)
            return
        self._close_if_done(connection)

    def take(self, limit: int) -> bytes:
        """Return frames for the worker, at most `limit` bytes."""
        if self._channel is None or not self._channel.pending:
            return b""
        block = self._channel.take(limit)
        for connection in self._connections.values():
            self._watch(connection)
        return block
