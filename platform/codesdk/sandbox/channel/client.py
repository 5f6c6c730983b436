"""The client of a sandbox's runner: connects on demand and reconnects after a loss."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from codesdk.sandbox.channel.connection import (
    ConnectionIdle,
    ConnectionLost,
    Header,
    HelloRejected,
    RequestTimeout,
    RunnerConnection,
    Stream,
)
from codesdk.sandbox.egress.service import EgressService
from codesdk.sandbox.port import SandboxSpec
from codesdk.sandbox.port.faults import EngineUnavailable, RunnerSilent, SandboxGone, SandboxPaused, StaleGeneration

ANSWER_S = 30.0
"""Default request timeout; a sandbox under a fork bomb took 0.7 s at most."""
HELLO_S = 15.0


class RunnerClient:
    """Holds one connection at a time. Thread-safe."""

    def __init__(
        self,
        spec: SandboxSpec,
        connect: Callable[[], Stream],
        ended: Callable[[], str | SandboxGone | None],
        *,
        paused: Callable[[], bool],
        idle_s: float,
        egress: EgressService | None,
    ) -> None:
        """Arguments as for `RunnerSandbox`. `egress`: None if the profile allows none."""
        self._spec = spec
        self._connect = connect
        self._ended = ended
        self._paused = paused
        self._idle_s = idle_s
        self._egress = egress
        self._lock = threading.Lock()
        self._greeting: Stream | None = None
        self.latest: RunnerConnection | None = None
        """The latest connection; it may have ended."""
        self.boot: str | None = None
        """The runner's boot id; None before the first handshake."""
        self.closed = ""
        """Why requests are refused; empty while the client is open."""

    @property
    def owner(self) -> str:
        """Id of the sandbox."""
        return self._spec.owner

    def use(self, stream: Stream) -> None:
        """Shake hands over a stream that was attached before the start."""
        with self._lock:
            self.latest = self._greet(stream)

    def connection(self) -> RunnerConnection:
        """The live connection; connects if there is none.

        Raises:
            SandboxGone, SandboxPaused, StaleGeneration, EngineUnavailable: it can't connect.
        """
        with self._lock:
            if self.closed:
                raise SandboxGone(self.owner, self.closed)
            if self.latest is None or self.latest.lost:
                try:
                    connection = self._greet(self._connect())
                    for header in self.latest.unconfirmed() if self.latest is not None else ():
                        connection.send_nowait(header)
                    self.latest = connection
                except (ConnectionLost, OSError) as error:
                    self.raise_if_paused()
                    raise self.gone(str(error)) from error
            return self.latest

    def _greet(self, stream: Stream) -> RunnerConnection:
        self._greeting = stream
        try:
            if self.closed:  # `abort` has not seen this stream
                stream.close()
                raise SandboxGone(self.owner, self.closed)
            connection = RunnerConnection(
                stream,
                self._spec.generation,
                timeout_s=HELLO_S,
                idle_s=self._idle_s,
                make_egress_handler=partial(self._egress.multiplexer, self.owner) if self._egress is not None else None,
            )
            header, _ = connection.call({"op": "ping"}, timeout_s=HELLO_S)
        except HelloRejected as refused:
            raise StaleGeneration(self.owner, self._spec.generation, refused.newest) from refused
        finally:
            self._greeting = None
        boot = str(header.get("boot"))[:64]  # ours has 16 characters; a tenant's image may send anything
        if self.boot not in (None, boot):
            # A runner that was started again has forgotten what it ran: nothing may be repeated on it.
            connection.close()
            raise SandboxGone(self.owner, "its runner was restarted")
        self.boot = boot
        return connection

    def gone(self, reason: str) -> SandboxGone:
        """The fault for a runner that doesn't answer: how the sandbox ended, else `reason`."""
        ended = self._ended()
        return ended if isinstance(ended, SandboxGone) else SandboxGone(self.owner, ended or reason)

    def raise_if_paused(self) -> None:
        """Called while an answer is outstanding.

        Raises:
            SandboxPaused: the sandbox is frozen.
        """
        try:
            is_paused = self._paused()
        except EngineUnavailable:
            return  # then its connections end too, which is seen there
        if is_paused:
            raise SandboxPaused(self.owner)

    def request(
        self,
        header: Header,
        body: bytes = b"",
        *,
        timeout_s: float = ANSWER_S,
        repeat: bool = False,
        stop: Callable[[], object] | None = None,
    ) -> tuple[Header, bytes]:
        """Send a request and return the answer. `repeat`: safe to send again after a lost connection.

        `stop`: called a few times a second while waiting; what it raises ends the wait.

        Raises:
            SandboxGone, EngineUnavailable: `was_sent` is False if it wasn't sent.
            RunnerSilent: sent, no answer in time, and the runner is alive.
        """
        was_sent = False
        for last in (False, True):
            try:
                connection = self.connection()
            except (SandboxGone, EngineUnavailable) as fault:
                fault.was_sent = was_sent
                raise
            try:
                answer, data = connection.call(
                    header, body, timeout_s=timeout_s, check=self.raise_if_paused, stop=stop, keep_open=True
                )
            except ConnectionIdle:
                continue
            except RequestTimeout as error:
                # Not asked again, also where it might be: what keeps the runner from this keeps it from the next.
                raise RunnerSilent(self.owner, str(header.get("op")), timeout_s) from error
            except ConnectionLost as error:
                was_sent = True
                if repeat and not last:
                    continue
                raise self.gone(f"{error}; whether the request was carried out is unknown") from error
            if answer.get("error") == "STALE_GENERATION":
                raise self.stale(answer)
            return answer, data
        raise self.gone("the connection closed repeatedly")

    def stale(self, answer: Header) -> StaleGeneration:
        """The fault for a STALE_GENERATION answer."""
        newest = answer.get("generation")
        return StaleGeneration(self.owner, self._spec.generation, newest if isinstance(newest, int) else 0)

    def abort(self, reason: str) -> None:
        """Refuse requests from now on, and end pending ones."""
        # Without the lock: a connecting thread holds it for a whole handshake, and a removal must not wait for that. Its
        # stream is closed under it instead, or it sees `closed` before the handshake.
        self.closed = self.closed or reason
        for held in (self._greeting, self.latest):
            if held is not None:
                held.close()

    def close(self) -> None:
        """Close a connection that was made during `abort`."""
        with self._lock:
            connection = self.latest
        if connection is not None:
            connection.close()
