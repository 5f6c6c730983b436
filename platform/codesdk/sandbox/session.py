"""A `Sandbox` over a runner, whatever carries the bytes: the Docker engine, or a pipe to a child process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from queue import Empty
from typing import Any

from codesdk.sandbox.connection import ANSWER_S, Connection
from codesdk.sandbox.egress.leases import Leases
from codesdk.sandbox.egress.service import Egress
from codesdk.sandbox.faults import (
    AlreadyAcknowledged,
    ArchiveRefused,
    EngineUnavailable,
    RunnerRefused,
    SandboxGone,
)
from codesdk.sandbox.link import Header, Link, LinkIdle, LinkLost, Stream
from codesdk.sandbox.port import (
    Attestation,
    Chunk,
    ExecRequest,
    ExecResult,
    ExitKind,
    Files,
    OnOutput,
    ProcessLimits,
    SandboxSpec,
)
from codesdk.sandbox.port import (
    Stream as StreamName,
)
from codesdk.sandbox.probing import Unobserved, observe
from codesdk.sandbox.processes import RunnerProcesses, encode
from codesdk.sandbox.reading import Inbox
from codesdk.sandbox.received import Received, understood
from codesdk.sandbox.runner import wire
from codesdk.sandbox.spec import exec_limits
from codesdk.sandbox.stills import RunnerStills
from codesdk.sandbox.turns import Away, Turn, Turns
from codesdk.sandbox.withdrawals import Withdrawals
from codesdk.sandbox.workspace import RunnerFiles, mark_words

_STREAMS: tuple[StreamName, StreamName] = ("stdout", "stderr")
CANCEL_GRACE_S = 1.0
"""Seconds between TERM and KILL at most, where somebody waits for the end: a cancel is to be over in two."""
SLACK_S = 30.0
"""Added to wall time and grace before a silent exec counts as lost."""
HELD_S = 0.05
"""Between two starts of an exec while the tools stand still for a snapshot."""
MAX_JOINS = 20
"""How often one exec is joined again after a lost connection."""


class RunnerSandbox:
    """Joins its execs again after a lost connection, and says when the sandbox itself is gone."""

    def __init__(
        self,
        spec: SandboxSpec,
        connect: Callable[[], Stream],
        ended: Callable[[], str | SandboxGone | None],
        *,
        paused: Callable[[], bool] = lambda: False,
        idle_s: float = Link.IDLE_S,
        egress: Egress | None = None,
    ) -> None:
        """Ended: why the sandbox is no more, or None while it lives. Egress: None for a worker that has none.

        Paused: whether it is frozen and cannot answer. Both are asked when it does not.
        """
        self._spec = spec
        self._ended = ended
        self._egress = egress if spec.profile.egress else None
        self._connection = Connection(spec, connect, ended, paused=paused, idle_s=idle_s, egress=self._egress)
        self._turns = Turns()
        self._withdrawals = Withdrawals()
        self._attestation: Attestation | None = None
        self._files = RunnerFiles(self._connection.ask, spec.profile)
        self._stills = RunnerStills(self._connection.ask)
        self._processes = RunnerProcesses(self._connection.ask, self._order_background, self._refused)
        self._leases = Leases(spec.owner, self._egress)

    @property
    def owner(self) -> str:
        """The id it was opened for."""
        return self._spec.owner

    @property
    def runner(self) -> str:
        """As the runner itself names it when it is greeted; empty before that."""
        return self._connection.boot or ""

    @property
    def files(self) -> RunnerFiles:
        """Its workspace."""
        return self._files

    def files_of(self, call: str, attempt: int) -> Files:
        """The same for one call; see the port."""
        return RunnerFiles(self._withdrawals.asking((call, attempt), self._connection.ask), self._spec.profile)

    @property
    def processes(self) -> RunnerProcesses:
        """Its execs beyond one blocking call."""
        return self._processes

    @property
    def attestation(self) -> Attestation:
        """What was read back when it started."""
        if self._attestation is None:
            raise SandboxGone(self.owner, "it was never attested")
        return self._attestation

    def attested(self, attestation: Attestation) -> None:
        """Keep what was read back."""
        self._attestation = attestation

    def serves(self, spec: SandboxSpec) -> bool:
        """Whether this is a usable connection to a living sandbox of exactly that spec and generation."""
        return self._spec == spec and not self._connection.closed and self._ended() is None

    def use(self, stream: Stream) -> None:
        """Greet the runner over a stream that is connected already (attached before the start)."""
        self._connection.use(stream)

    # -- execs ----------------------------------------------------------------------------------------------------------

    def exec(self, request: ExecRequest, on_output: OnOutput) -> ExecResult:
        """Run to the end; see the port."""
        with self._turns.of((request.call, request.attempt)) as turn:
            if self._egress is None or not request.egress:
                return self._exec(request, on_output, turn)
            within = self._spec.profile.egress
            lease = self._egress.grant(self.owner, (request.call, request.attempt), within, request.egress)
            try:
                return self._exec(request, on_output, turn)
            finally:
                self._egress.end(lease)

    def _order(self, request: ExecRequest, **more: Any) -> tuple[Header, bytes]:
        """What a start is asked with: its header, and what goes before the stdin in its body."""
        if self._egress is not None and request.egress:
            more["egress"] = True
        if request.bound:
            more["bound"] = [[mark.path, mark.cwd, *mark_words(mark)] for mark in request.bound]
        if limits := self._limits(request.limits):
            more["limits"] = limits
        spec = encode(request, **more)
        header: Header = {
            "op": "start",
            "call": request.call,
            "attempt": request.attempt,
            "generation": self._spec.generation,
            "spec_bytes": len(spec),
            "timeout_s": request.timeout_s,
            "grace_s": self._spec.profile.grace_s,
            "keep_bytes": min(request.keep_bytes, self._spec.profile.keep_output_bytes),
            **({"bound": True} if request.bound else {}),
        }
        return header, spec

    def _limits(self, limits: ProcessLimits) -> dict[str, int]:
        return exec_limits(limits, self._spec.profile.runtime)

    def _order_background(self, request: ExecRequest) -> tuple[Header, bytes]:
        key = (request.call, request.attempt)
        if self._egress is not None and request.egress:
            self._leases.grant(key, self._spec.profile.egress, request.egress)
        return self._order(request, background=True)

    def _exec(self, request: ExecRequest, on_output: OnOutput, turn: Turn) -> ExecResult:
        key = (request.call, request.attempt)
        header, spec = self._order(request)
        received = Received(self._spec.profile.keep_output_bytes)
        joins = 0
        deadline = time.monotonic() + request.timeout_s + self._spec.profile.grace_s + SLACK_S
        away = Away(deadline, turn)
        was_asked = False
        if request.taken_up:
            turn.go()
        while True:
            try:
                link = self._connection.linked()
                events = link.listen(key)
            except LinkIdle:
                continue
            except SandboxGone as gone:
                gone.was_asked = was_asked
                raise
            except EngineUnavailable as fault:
                fault.was_asked = was_asked
                away.wait(fault)
                continue
            away.over()
            try:
                turn.go()
                order, was_asked = {**header, "from": received.next}, True
                answer, _ = link.call(
                    order, spec + request.stdin, timeout_s=ANSWER_S, check=self._connection.unless_paused
                )
                if answer.get("held") is True and time.monotonic() < deadline:
                    was_asked = False  # it is not begun
                    turn.stay()
                    turn.pause(HELD_S)  # a snapshot is short, and whose call this is knows nothing of it
                    continue
                return self._refused(answer, request) or self._follow(link, events, received, on_output, deadline)
            except Empty as error:
                self._connection.unless_paused()
                raise self._connection.gone("the runner has not reported the end of an exec in time") from error
            except LinkLost:
                # The exec runs on, and the runner keeps its output: ask for the rest over a new connection.
                joins += 1
                if joins > MAX_JOINS or time.monotonic() > deadline:
                    raise self._connection.gone("the connection was lost again and again") from None
            finally:
                link.unlisten(key)

    def _follow(
        self, link: Link, events: Inbox, received: Received, on_output: OnOutput, deadline: float
    ) -> ExecResult:
        while True:
            message = link.next(events, max(0.0, deadline - time.monotonic()))
            if message.header.get("event") == "exit":
                return self._result(message.header, received)
            self._pass_on(message, received, on_output)

    def _refused(self, answer: Header, request: ExecRequest) -> ExecResult | None:
        match answer.get("error"):
            case None:
                return None
            case "STALE_GENERATION":
                raise self._connection.stale(answer)
            case "ALREADY_ACKNOWLEDGED":
                raise AlreadyAcknowledged(request.call, request.attempt)
            case "FILES_CHANGED":
                return ExecResult(kind=ExitKind.FILES_CHANGED, error=str(answer.get("message")))
            case "NO_SPACE":
                return ExecResult(kind=ExitKind.DISK_FULL, error=str(answer.get("message")))
            case "BUSY" | "TOO_LARGE":
                return ExecResult(kind=ExitKind.SPAWN_FAILED, error=str(answer.get("message")))
            case _:
                raise RunnerRefused(f"The runner refused an exec: {answer}")

    def _pass_on(self, message: wire.Message, received: Received, on_output: OnOutput) -> None:
        index, offset = received.take(message.header, len(message.body))
        on_output(Chunk(stream=_STREAMS[index], offset=offset, data=message.body))

    def _result(self, header: Header, received: Received) -> ExecResult:
        with understood("report of an end"):
            result = ExecResult.model_validate(header.get("result"))
        received.check(result)
        return result

    def cancel(self, call: str, attempt: int) -> bool:
        """End that exec's tree; see the port."""
        self._withdrawals.add((call, attempt))
        if self._turns.withdraw((call, attempt)):
            return True
        grace_s = min(self._spec.profile.grace_s, CANCEL_GRACE_S)
        order: Header = {"op": "cancel", "call": call, "attempt": attempt, "grace_s": grace_s}
        answer, _ = self._connection.ask(order, timeout_s=grace_s + SLACK_S, repeat=True)
        return bool(answer.get("ended"))

    def acknowledge(self, call: str, attempt: int) -> None:
        """The result is committed. Not waited for: a lost one is said again over the next connection."""
        self._leases.end((call, attempt))
        self._withdrawals.forget((call, attempt))
        header = {"op": "ack", "call": call, "attempt": attempt}
        try:
            self._connection.linked().tell(header)
        except LinkLost:
            self._connection.ask(header, repeat=True)

    def snapshot(self) -> Iterator[bytes]:
        """The workspace as a tar; see the port."""
        return self._stills.snapshot()

    def restore(self, pieces: Iterable[bytes], *, replace: bool = False) -> int:
        """Fill the workspace; see the port."""
        return self._stills.restore(pieces, replace=replace)

    def import_tar(self, archive: bytes) -> int:
        """Unpack into the workspace; see the port."""
        if len(archive) > wire.MAX_MESSAGE - wire.MAX_HEADER:
            raise ArchiveRefused(
                f"it has {len(archive)} bytes; {wire.MAX_MESSAGE - wire.MAX_HEADER} can be sent at once"
            )
        answer, _ = self._connection.ask({"op": "import"}, archive, timeout_s=10 * ANSWER_S)
        if "refused" in answer:
            raise ArchiveRefused(f"{answer.get('message')}")
        with understood("answer about an archive"):
            return int(answer["files"])

    def observe(self) -> dict[str, Any]:
        """What a process with the tool's rights sees; for the attestation.

        Raises:
            SandboxGone: it did not say so whole and in time. RunnerRefused: it made no sense.
        """
        key = ("probe", time.monotonic_ns())
        try:
            found = observe(self._connection.linked(), key, self._spec.generation, ANSWER_S)
        except (LinkLost, Unobserved) as error:
            raise self._connection.gone(str(error)) from error
        self.acknowledge(*key)
        return found

    def close(self) -> None:
        """Let go of the connection; the sandbox lives on."""
        self.end("it was closed here")

    def end(self, reason: str) -> None:
        """Refuse everything from now on; whoever waits is told that the sandbox is gone."""
        self._connection.cut(reason)
        self._leases.end_all()
        self._connection.close()
