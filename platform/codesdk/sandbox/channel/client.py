"""The connection to a sandbox's runner: made on demand, greeted, and made again where it was lost."""

from __future__ import annotations

import threading
from collections.abc import Callable

from codesdk.sandbox.channel.connection import (
    ConnectionIdle,
    ConnectionLost,
    Header,
    HelloRejected,
    MakeEgressHandler,
    RequestTimeout,
    RunnerConnection,
    Stream,
)
from codesdk.sandbox.egress.service import EgressService
from codesdk.sandbox.port import SandboxSpec
from codesdk.sandbox.port.faults import EngineUnavailable, RunnerSilent, SandboxGone, SandboxPaused, StaleGeneration

ANSWER_S = 30.0
"""How long the runner may take for a request; a sandbox under a fork bomb took 0.7 s at most."""
HELLO_S = 15.0


class RunnerClient:
    """One at a time. Safe to use from any thread."""

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
        """As of `RunnerSandbox`. `egress`: None where its profile allows none."""
        self._spec = spec
        self._connect = connect
        self._ended = ended
        self._paused = paused
        self._idle_s = idle_s
        self._egress = egress
        self._lock = threading.Lock()
        self._greeting: Stream | None = None
        self.link: RunnerConnection | None = None
        """The newest; it may have ended."""
        self.boot: str | None = None
        """As the runner names itself; None before it was greeted."""
        self.closed = ""
        """Why nothing is asked of it any more."""

    @property
    def owner(self) -> str:
        """The id of its sandbox."""
        return self._spec.owner

    def use(self, stream: Stream) -> None:
        """Greet the runner over a stream that is connected already (attached before the start)."""
        with self._lock:
            self.link = self._greet(stream)

    def linked(self) -> RunnerConnection:
        """The one that lives, made where there is none.

        Raises:
            SandboxGone, SandboxPaused, StaleGeneration, EngineUnavailable: there can be none.
        """
        with self._lock:
            if self.closed:
                raise SandboxGone(self.owner, self.closed)
            if self.link is None or self.link.lost:
                try:
                    link = self._greet(self._connect())
                    for header in self.link.unconfirmed() if self.link is not None else ():
                        link.send_nowait(header)
                    self.link = link
                except (ConnectionLost, OSError) as error:
                    self.raise_if_paused()
                    raise self.gone(str(error)) from error
            return self.link

    def _greet(self, stream: Stream) -> RunnerConnection:
        self._greeting = stream
        try:
            if self.closed:  # `abort` has not seen this stream
                stream.close()
                raise SandboxGone(self.owner, self.closed)
            link = RunnerConnection(
                stream, self._spec.generation, timeout_s=HELLO_S, idle_s=self._idle_s, carry=self._make_egress_handler()
            )
            header, _ = link.call({"op": "ping"}, timeout_s=HELLO_S)
        except HelloRejected as refused:
            raise StaleGeneration(self.owner, self._spec.generation, refused.newest) from refused
        finally:
            self._greeting = None
        boot = str(header.get("boot"))[:64]  # ours has 16; in an image of a tenant's it may say anything
        if self.boot not in (None, boot):
            # A runner that was started again has forgotten what it ran: nothing may be repeated on it.
            link.close()
            raise SandboxGone(self.owner, "its runner was started again")
        self.boot = boot
        return link

    def _make_egress_handler(self) -> MakeEgressHandler | None:
        egress = self._egress
        if egress is None:
            return None
        return lambda send, broken: egress.carrier(self.owner, send, broken)

    def gone(self, reason: str) -> SandboxGone:
        """What to raise where it does not answer: how it ended, if it did, else that reason."""
        ended = self._ended()
        return ended if isinstance(ended, SandboxGone) else SandboxGone(self.owner, ended or reason)

    def raise_if_paused(self) -> None:
        """Asked while an answer does not come.

        Raises:
            SandboxPaused: none can.
        """
        try:
            is_paused = self._paused()
        except EngineUnavailable:
            return  # then its connections end too, which is seen there
        if is_paused:
            raise SandboxPaused(self.owner)

    def ask(
        self,
        header: Header,
        body: bytes = b"",
        *,
        timeout_s: float = ANSWER_S,
        repeat: bool = False,
        stop: Callable[[], object] | None = None,
    ) -> tuple[Header, bytes]:
        """One request. Repeat: it may be asked again when the answer was lost, because it changes nothing.

        Stop: called a few times a second while the answer does not come; what it raises ends the wait.

        Raises:
            SandboxGone, EngineUnavailable: `was_sent` is False where it was not sent.
            RunnerSilent: it was sent and not answered in time, and the runner answers others.
        """
        was_sent = False
        for last in (False, True):
            try:
                link = self.linked()
            except (SandboxGone, EngineUnavailable) as fault:
                fault.was_sent = was_sent
                raise
            try:
                answer, data = link.call(
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
        raise self.gone("the connection closed again and again")

    def stale(self, answer: Header) -> StaleGeneration:
        """What to raise of an answer that says so."""
        newest = answer.get("generation")
        return StaleGeneration(self.owner, self._spec.generation, newest if isinstance(newest, int) else 0)

    def abort(self, reason: str) -> None:
        """Refuse everything from now on, and end what waits for an answer."""
        # Not under the lock: whoever connects holds it, for as long as a runner may take to greet, and a removal must
        # not wait for that. Its stream is closed under it instead, or it sees `closed` before it greets.
        self.closed = self.closed or reason
        for held in (self._greeting, self.link):
            if held is not None:
                held.close()

    def close(self) -> None:
        """Let go of one that was made while it was cut."""
        with self._lock:
            link = self.link
        if link is not None:
            link.close()
