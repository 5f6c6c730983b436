"""The connection to a sandbox's runner: made on demand, greeted, and made again where it was lost."""

from __future__ import annotations

import threading
from collections.abc import Callable

from codesdk.sandbox.egress.service import Egress
from codesdk.sandbox.faults import EngineUnavailable, RunnerSilent, SandboxGone, SandboxPaused, StaleGeneration
from codesdk.sandbox.link import Carry, Header, Link, LinkIdle, LinkLost, Refused, Stream, Unanswered
from codesdk.sandbox.port import SandboxSpec

ANSWER_S = 30.0
"""How long the runner may take for a request; a sandbox under a fork bomb took 0.7 s at most."""
HELLO_S = 15.0


class Connection:
    """One at a time. Safe to use from any thread."""

    def __init__(
        self,
        spec: SandboxSpec,
        connect: Callable[[], Stream],
        ended: Callable[[], str | SandboxGone | None],
        *,
        paused: Callable[[], bool],
        idle_s: float,
        egress: Egress | None,
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
        self.link: Link | None = None
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

    def linked(self) -> Link:
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
                    for header in self.link.untold() if self.link is not None else ():
                        link.tell(header)
                    self.link = link
                except (LinkLost, OSError) as error:
                    self.unless_paused()
                    raise self.gone(str(error)) from error
            return self.link

    def _greet(self, stream: Stream) -> Link:
        self._greeting = stream
        try:
            if self.closed:  # `cut` has not seen this stream
                stream.close()
                raise SandboxGone(self.owner, self.closed)
            link = Link(stream, self._spec.generation, timeout_s=HELLO_S, idle_s=self._idle_s, carry=self._carry())
            header, _ = link.call({"op": "ping"}, timeout_s=HELLO_S)
        except Refused as refused:
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

    def _carry(self) -> Carry | None:
        egress = self._egress
        if egress is None:
            return None
        return lambda send, broken: egress.carrier(self.owner, send, broken)

    def gone(self, reason: str) -> SandboxGone:
        """What to raise where it does not answer: how it ended, if it did, else that reason."""
        ended = self._ended()
        return ended if isinstance(ended, SandboxGone) else SandboxGone(self.owner, ended or reason)

    def unless_paused(self) -> None:
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
            SandboxGone, EngineUnavailable: `was_asked` is False where it was not sent.
            RunnerSilent: it was sent and not answered in time, and the runner answers others.
        """
        was_asked = False
        for last in (False, True):
            try:
                link = self.linked()
            except (SandboxGone, EngineUnavailable) as fault:
                fault.was_asked = was_asked
                raise
            try:
                answer, data = link.call(
                    header, body, timeout_s=timeout_s, check=self.unless_paused, stop=stop, alone=True
                )
            except LinkIdle:
                continue
            except Unanswered as error:
                # Not asked again, also where it might be: what keeps the runner from this keeps it from the next.
                raise RunnerSilent(self.owner, str(header.get("op")), timeout_s) from error
            except LinkLost as error:
                was_asked = True
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

    def cut(self, reason: str) -> None:
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
