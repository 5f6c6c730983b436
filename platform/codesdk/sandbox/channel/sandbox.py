"""A `Sandbox` that talks to a runner over any byte stream: Docker attach, or the local driver's socket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from queue import Empty
from typing import Any

from codesdk.sandbox.channel.client import ANSWER_S, RunnerClient
from codesdk.sandbox.channel.connection import ConnectionIdle, ConnectionLost, Header, Inbox, RunnerConnection, Stream
from codesdk.sandbox.channel.execs import (
    CancelledCalls,
    EngineOutage,
    ExecLock,
    ExecLocks,
    OutputTracker,
    ProbeFailed,
    reject_malformed,
    run_probe,
)
from codesdk.sandbox.channel.files import RunnerFiles
from codesdk.sandbox.channel.processes import RunnerProcesses
from codesdk.sandbox.channel.snapshots import restore_snapshot, take_snapshot
from codesdk.sandbox.egress.service import BackgroundAllowances, EgressService
from codesdk.sandbox.isolation.spec import exec_limits
from codesdk.sandbox.port import (
    Attestation,
    Chunk,
    ExecRequest,
    ExecResult,
    ExitKind,
    Files,
    OnOutput,
    SandboxSpec,
)
from codesdk.sandbox.port import (
    Stream as StreamName,
)
from codesdk.sandbox.port.faults import (
    AlreadyAcknowledged,
    ArchiveRefused,
    EngineUnavailable,
    IsolationDrift,
    RunnerRefused,
    SandboxGone,
)
from codesdk.sandbox.runner.protocol import wire

_STREAMS: tuple[StreamName, StreamName] = ("stdout", "stderr")
CANCEL_GRACE_S = 1.0
"""Longest grace between TERM and KILL on a cancel, in seconds: a cancel has to finish within two."""
SLACK_S = 30.0
"""Seconds after wall time and grace until an exec without an end counts as lost."""
FROZEN_RETRY_S = 0.05
"""Seconds between start attempts while tools are frozen for a snapshot."""
MAX_REJOINS = 20
"""Most reconnects of one exec."""


class RunnerSandbox:
    """A live sandbox. Rejoins execs after a lost connection and detects when the sandbox itself is gone."""

    def __init__(
        self,
        spec: SandboxSpec,
        connect: Callable[[], Stream],
        ended: Callable[[], str | SandboxGone | None],
        *,
        paused: Callable[[], bool] = lambda: False,
        idle_s: float = RunnerConnection.IDLE_S,
        egress: EgressService | None = None,
        resolve: Callable[[str], str] = lambda path: path,
        foreign_threads: Callable[[], int] = lambda: 0,
    ) -> None:
        """Connect to the runner on demand.

        Args:
            spec: what it was created from.
            connect: opens a stream to the runner.
            ended: why the sandbox ended, or None; called when it doesn't answer.
            paused: whether it is frozen; called when it doesn't answer.
            idle_s: after this idle time the connection is closed.
            egress: None for a worker without egress.
            resolve: maps a path that a caller names to the runner's.
            foreign_threads: number of threads besides the tools' that the kernel counts towards their limit.
        """
        self._spec = spec
        self._ended = ended
        self._egress = egress if spec.profile.egress else None
        self._client = RunnerClient(spec, connect, ended, paused=paused, idle_s=idle_s, egress=self._egress)
        self._exec_locks = ExecLocks()
        self._cancelled_calls = CancelledCalls()
        self._attestation: Attestation | None = None
        self._resolve = resolve
        self._foreign_threads = foreign_threads
        self._files = RunnerFiles(self._client.request, resolve)
        self._processes = RunnerProcesses(self._client.request, self._background_request, self._refused)
        self._leases = BackgroundAllowances(spec.owner, self._egress)

    @property
    def owner(self) -> str:
        """The id it was opened for."""
        return self._spec.owner

    @property
    def runner(self) -> str:
        """The runner's boot id; empty before the first handshake."""
        return self._client.boot or ""

    @property
    def files(self) -> RunnerFiles:
        """The workspace."""
        return self._files

    def files_of(self, call: str, attempt: int) -> Files:
        """The workspace on behalf of one call; see the port."""
        return RunnerFiles(self._cancelled_calls.cancellable((call, attempt), self._client.request), self._resolve)

    @property
    def processes(self) -> RunnerProcesses:
        """Background execs."""
        return self._processes

    @property
    def attestation(self) -> Attestation:
        """Isolation as read back at the start."""
        if self._attestation is None:
            raise SandboxGone(self.owner, "it was never attested")
        return self._attestation

    def attest(self, compare: Callable[[dict[str, Any]], tuple[Attestation, tuple[str, ...]]]) -> None:
        """Check the isolation and store the attestation.

        `compare`: makes the attestation and the list of differences from what a process with the tool's rights sees.

        Raises:
            IsolationDrift: there are differences. SandboxGone, RunnerRefused: as `observe`.
        """
        observed = self.observe()
        try:
            attestation, wrong = compare(observed)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OSError) as error:
            attestation, wrong = None, (f"the observed isolation can't be parsed: {error!r}",)
        if wrong:
            self.end("its isolation differs from its spec")
            raise IsolationDrift(wrong)
        self._attestation = attestation

    def matches(self, spec: SandboxSpec) -> bool:
        """Whether this is a usable connection to a living sandbox of exactly that spec and generation."""
        return self._spec == spec and not self._client.closed and self._ended() is None

    def use(self, stream: Stream) -> None:
        """Greet the runner over a stream that is connected already (attached before the start)."""
        self._client.use(stream)

    # -- execs ----------------------------------------------------------------------------------------------------------

    def exec(self, request: ExecRequest, on_output: OnOutput) -> ExecResult:
        """Run to the end; see the port."""
        with self._exec_locks.acquire((request.call, request.attempt)) as exec_lock:
            if self._egress is None or not request.egress:
                return self._exec(request, on_output, exec_lock)
            within = self._spec.profile.egress
            lease = self._egress.grant(self.owner, (request.call, request.attempt), within, request.egress)
            try:
                return self._exec(request, on_output, exec_lock)
            finally:
                self._egress.end(lease)

    def _start_request(self, request: ExecRequest, **more: Any) -> tuple[Header, bytes]:
        """Header and spec of a start request."""
        wanted: dict[str, Any] = {"argv": request.argv, "cwd": self._resolve(request.cwd), "env": request.env, **more}
        if self._egress is not None and request.egress:
            wanted["egress"] = True
        if request.bound:
            wanted["bound"] = [
                [self._resolve(mark.path), self._resolve(mark.cwd), mark.kind.value, mark.real, mark.sha256, mark.size]
                for mark in request.bound
            ]
        if limits := exec_limits(request.limits, self._spec.profile.runtime):
            if "nproc" in limits:
                limits["nproc"] += self._foreign_threads()
            wanted["limits"] = limits
        if request.stdin_open or request.pty is not None:
            wanted["stdin_open"] = True
        if request.flow:
            wanted["flow"] = True
        if request.pty is not None:
            wanted["pty"] = {"rows": request.pty.rows, "cols": request.pty.cols}
        spec = json.dumps(wanted).encode()
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

    def _background_request(self, request: ExecRequest) -> tuple[Header, bytes]:
        key = (request.call, request.attempt)
        if self._egress is not None and request.egress:
            self._leases.grant(key, self._spec.profile.egress, request.egress)
        return self._start_request(request, background=True)

    def _exec(self, request: ExecRequest, on_output: OnOutput, exec_lock: ExecLock) -> ExecResult:
        key = (request.call, request.attempt)
        header, spec = self._start_request(request)
        received = OutputTracker(self._spec.profile.keep_output_bytes)
        rejoins = 0
        deadline = time.monotonic() + request.timeout_s + self._spec.profile.grace_s + SLACK_S
        outage = EngineOutage(deadline, exec_lock)
        was_sent = False
        if request.taken_up:
            exec_lock.mark_started()
        while True:
            try:
                connection = self._client.connection()
                events = connection.listen(key)
            except ConnectionIdle:
                continue
            except SandboxGone as gone:
                gone.was_sent = was_sent
                raise
            except EngineUnavailable as fault:
                fault.was_sent = was_sent
                outage.wait(fault)
                continue
            outage.over()
            try:
                exec_lock.mark_started()
                order, was_sent = {**header, "from": received.next}, True
                answer, _ = connection.call(
                    order, spec + request.stdin, timeout_s=ANSWER_S, check=self._client.raise_if_paused
                )
                if answer.get("held") is True and time.monotonic() < deadline:
                    was_sent = False  # it is not begun
                    exec_lock.mark_not_started()
                    exec_lock.pause(FROZEN_RETRY_S)  # a snapshot is short, and whose call this is knows nothing of it
                    continue
                return self._refused(answer, request) or self._follow(connection, events, received, on_output, deadline)
            except Empty as error:
                self._client.raise_if_paused()
                raise self._client.gone("the runner has not reported the end of an exec in time") from error
            except ConnectionLost:
                # The exec runs on, and the runner keeps its output: ask for the rest over a new connection.
                rejoins += 1
                if rejoins > MAX_REJOINS or time.monotonic() > deadline:
                    raise self._client.gone("the connection was lost repeatedly") from None
            finally:
                connection.unlisten(key)

    def _follow(
        self, connection: RunnerConnection, events: Inbox, received: OutputTracker, on_output: OnOutput, deadline: float
    ) -> ExecResult:
        while True:
            message = connection.next(events, max(0.0, deadline - time.monotonic()))
            if message.header.get("event") == "exit":
                return self._result(message.header, received)
            self._deliver_output(message, received, on_output)

    def _refused(self, answer: Header, request: ExecRequest) -> ExecResult | None:
        match answer.get("error"):
            case None:
                return None
            case "STALE_GENERATION":
                raise self._client.stale(answer)
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

    def _deliver_output(self, message: wire.Message, received: OutputTracker, on_output: OnOutput) -> None:
        index, offset = received.take(message.header, len(message.body))
        on_output(Chunk(stream=_STREAMS[index], offset=offset, data=message.body))

    def _result(self, header: Header, received: OutputTracker) -> ExecResult:
        with reject_malformed("report of an end"):
            result = ExecResult.model_validate(header.get("result"))
        received.check(result)
        return result

    def cancel(self, call: str, attempt: int) -> bool:
        """End that exec's tree; see the port."""
        self._cancelled_calls.add((call, attempt))
        if self._exec_locks.cancel_before_start((call, attempt)):
            return True
        grace_s = min(self._spec.profile.grace_s, CANCEL_GRACE_S)
        order: Header = {"op": "cancel", "call": call, "attempt": attempt, "grace_s": grace_s}
        answer, _ = self._client.request(order, timeout_s=grace_s + SLACK_S, repeat=True)
        return bool(answer.get("ended"))

    def acknowledge(self, call: str, attempt: int) -> None:
        """The result is committed. Doesn't wait for the answer; resent if the connection is lost."""
        self._leases.end((call, attempt))
        self._cancelled_calls.forget((call, attempt))
        header = {"op": "ack", "call": call, "attempt": attempt}
        try:
            self._client.connection().send_nowait(header)
        except ConnectionLost:
            self._client.request(header, repeat=True)

    def snapshot(self) -> Iterator[bytes]:
        """The workspace as a tar; see the port."""
        return take_snapshot(self._client.request)

    def restore(self, pieces: Iterable[bytes], *, replace: bool = False) -> int:
        """Fill the workspace; see the port."""
        return restore_snapshot(self._client.request, pieces, replace=replace)

    def import_tar(self, archive: bytes) -> int:
        """Unpack into the workspace; see the port."""
        if len(archive) > wire.MAX_MESSAGE - wire.MAX_HEADER:
            raise ArchiveRefused(
                f"it has {len(archive)} bytes; {wire.MAX_MESSAGE - wire.MAX_HEADER} can be sent at once"
            )
        answer, _ = self._client.request({"op": "import"}, archive, timeout_s=10 * ANSWER_S)
        if "refused" in answer:
            raise ArchiveRefused(f"{answer.get('message')}")
        with reject_malformed("answer about an archive"):
            return int(answer["files"])

    def observe(self) -> dict[str, Any]:
        """What a process with the tool's rights sees, for the attestation.

        Raises:
            SandboxGone: no complete answer in time. RunnerRefused: malformed.
        """
        key = ("probe", time.monotonic_ns())
        try:
            found = run_probe(self._client.connection(), key, self._spec.generation, ANSWER_S)
        except (ConnectionLost, ProbeFailed) as error:
            raise self._client.gone(str(error)) from error
        self.acknowledge(*key)
        return found

    def close(self) -> None:
        """Close the connection; the sandbox keeps running."""
        self.end("it was closed here")

    def end(self, reason: str) -> None:
        """Refuse requests from now on; pending ones raise SandboxGone."""
        self._client.abort(reason)
        self._leases.end_all()
        self._client.close()
