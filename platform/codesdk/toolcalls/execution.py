"""Runs a claimed call in its sandbox and records how it ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from codesdk.artifacts import ArtifactService, ArtifactsUnavailable, ArtifactTooLarge, ArtifactUnknown, StoredArtifact
from codesdk.domain.byte_rate import ByteBuckets
from codesdk.domain.calls import CallState, IllegalTransition, ToolCall
from codesdk.domain.clock import Clock
from codesdk.domain.decisions import Decision, Effect, Redaction
from codesdk.domain.ids import ToolCallId
from codesdk.domain.quotas import QuotaExceeded
from codesdk.domain.subjects import Subject
from codesdk.domain.tool_results import ToolResult
from codesdk.errors import Fault, InternalFault
from codesdk.eventlog.log import EventDraft, EventLog
from codesdk.registry import Builtin, RegistryProvider, SourceCall, Tool
from codesdk.sandbox.port import FileError, FileRefused, Sandbox
from codesdk.sandbox.port.faults import CallCancelled, SandboxGone
from codesdk.storage.database import StorageUnavailable
from codesdk.storage.faults import ValueRefused
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.approval.bound_files import find_changed_file
from codesdk.toolcalls.ending import complete, fits_in_event
from codesdk.toolcalls.previews.previewed_run import run_previewed
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import CallRecord, ClaimedCall
from codesdk.toolcalls.retries.lost_calls import Loss, LostAttempts
from codesdk.toolcalls.run import error_mapping
from codesdk.toolcalls.run.acquire import SandboxAcquisition
from codesdk.toolcalls.run.effective_limits import (
    EffectiveLimits,
    SecretProblem,
    missing_secret,
    no_secrets,
    with_granted_secrets,
)
from codesdk.toolcalls.run.output_log import FlushTimer, OutputLog
from codesdk.toolcalls.run.sources import NoSources, SourceRequest, Sources
from codesdk.tools import (
    DEFAULT_PROCESS_LIFETIME_S,
    Attachment,
    StoredOutput,
    ToolContext,
    Transfers,
    acts_only_in_last_request,
    files_changed_result,
    process_limits,
    run_tool,
    runs_one_exec,
)
from codesdk.tools.processes import call_id_of_process

_log = logging.getLogger(__name__)
T = TypeVar("T")

_TEXT_OUTPUT = (".txt", "text/plain; charset=utf-8")
_BINARY_OUTPUT = (".bin", "application/octet-stream")
_OUTPUT_POINTER = "/text"
"""Where the result of process.read has the output."""

RETRY_S = 1.0
"""Seconds between tries to record an end that the database or the disk refused."""
REPAIR_TIMEOUT_S = 600.0
"""How long a fault that doesn't pass by itself (a wrong login, a read-only database) may take to be fixed."""


Decide = Callable[[ToolCall, Tool, Subject], Decision]


class Execution:
    """Runs calls; one object per worker, safe to use from its threads."""

    def __init__(
        self,
        *,
        registry: RegistryProvider,
        log: EventLog,
        artifacts: ArtifactService,
        writer: Writer,
        clock: Clock,
        lost_attempts: LostAttempts,
        secret_problem: SecretProblem = no_secrets,
        sources: Sources | None = None,
        confirm: Callable[[], None] = lambda: None,
        flush_timer: FlushTimer | None = None,
        output_rate: ByteBuckets | None = None,
        decide: Decide | None = None,
    ) -> None:
        """`decide`: what policy says of other calls that a tool has in mind; None: there is no policy.

        `secret_problem`: why a tenant's secret can't be used, never its value; `sources`: MCP servers.

        `confirm`: called just before a call goes to an MCP server; raises if another worker owns the host.
        `flush_timer`, `output_rate`: as for `OutputLog`.
        """
        self._output_rate = output_rate
        self._decide = decide
        self._flush_timer = flush_timer or FlushTimer(clock)
        self._lost_attempts = lost_attempts
        self._confirm = confirm
        self._sources = sources or NoSources()
        self._secret_problem = secret_problem
        self._registry = registry
        self._log = log
        self._artifacts = artifacts
        self._writer = writer
        self._clock = clock
        self._abandoned = threading.Event()

    def run(
        self,
        claimed: ClaimedCall,
        open_sandbox: Callable[[], Sandbox],
        lost: Callable[[Sandbox], bool] = lambda _: True,
    ) -> ToolResult:
        """Run a call and record its end. A sandbox that fails gives a recorded result, too: every claim ends.

        `lost`: called with a sandbox that failed under the call, before another attempt can start; returns False if the
        session gets no other.

        Raises:
            Fault: after `abandon`: the sandbox failed or the end could not be recorded; nothing was recorded.
            Released: the call has not started, and is left to the next worker.
            IllegalTransition: a newer worker took the call over.
        """
        output = OutputLog(
            claimed, self._log, self._writer, self._clock, timer=self._flush_timer, rate=self._output_rate
        )
        try:
            return self._run_and_record(claimed, output, open_sandbox, lost)
        finally:
            output.close()

    def _run_and_record(
        self,
        claimed: ClaimedCall,
        output: OutputLog,
        open_sandbox: Callable[[], Sandbox],
        lost: Callable[[Sandbox], bool],
    ) -> ToolResult:
        began = self._clock.monotonic()
        acquisition = SandboxAcquisition(
            open_sandbox,
            lost,
            clock=self._clock,
            abandoned=self._abandoned,
            blocked_by=partial(self._blocked_by, claimed),
        )
        ran = _capture_fault(claimed, "run", lambda: self._run(claimed, output, acquisition))
        if isinstance(ran, error_mapping.CallReleased) or (isinstance(ran, Fault) and self._abandoned.is_set()):
            raise ran
        took_ms = (self._clock.monotonic() - began) * 1000
        sandbox = acquisition.sandbox
        if isinstance(ran, error_mapping.LOST_FAULTS) and acquisition.was_asked:
            can_return = lost(sandbox) if sandbox is not None else True
            return self.lose(claimed, error_mapping.loss_from_fault(ran, can_return=can_return), output, took_ms)
        claimed = _with_outcome(claimed, ran, acquisition)
        result = error_mapping.fault_result(ran) if isinstance(ran, Fault) else ran
        result = self._recorded(claimed, result, output, took_ms)
        if sandbox is not None:
            self._acknowledge(claimed, sandbox)
        return result

    def _run(self, claimed: ClaimedCall, output: OutputLog, acquisition: SandboxAcquisition) -> ToolResult:
        """Run the tool where it runs: in the session's sandbox, or on an MCP server."""
        if self._abandoned.is_set():
            call = claimed.stored.identity.tool_call_id
            raise error_mapping.CallReleased(f"The worker that claimed call {call} is leaving.")
        tool = self._registry.of(claimed.stored.tenant_id).resolve(claimed.stored.call.name)
        if claimed.behaviour_hash not in (None, tool.behaviour_hash):
            text = f"{tool.name} was not run: its manifest has changed since this call was decided."
            return ToolResult(text=text, is_error=True, code="TOOL_CHANGED")
        assert claimed.limits is not None  # noqa: S101 (only a call that is not run has none)
        limits = claimed.limits.with_redactions(self._inherited_redactions(tool, claimed.stored.call.input))
        if isinstance(tool.runs, SourceCall):
            # No runner guards a server, so nothing else keeps a worker that was frozen from calling it.
            confirm = partial(acquisition.confirm_before_send, self._confirm)
            return self._run_on_source(claimed, tool, limits, output, confirm)
        # A call that an earlier worker had may have been asked for; and a previewed one reads its workspace afterwards.
        is_effect_free = (
            claimed.behaviour_hash is not None
            and claimed.stored.preview is None
            and acts_only_in_last_request(tool, claimed.stored.call.input)
        )
        return acquisition.run(
            partial(self._run_in_sandbox, claimed, tool, limits, output), is_effect_free=is_effect_free
        )

    def _recorded(self, claimed: ClaimedCall, result: ToolResult, output: OutputLog, took_ms: float) -> ToolResult:
        """Record the end, without artifacts where they can't be kept. Returns the recorded result."""
        refused = self._try_to_record(claimed, partial(self._finish, claimed, result, output, took_ms))
        if refused is not None:
            # A running call holds its workspace, so it must end even if this result can't be recorded.
            result = error_mapping.without_artifacts(result, refused)
            self.retry_until_recorded(claimed, partial(self._end, claimed, result, (), took_ms))
        return result

    def record(self, claimed: ClaimedCall, result: ToolResult) -> None:
        """End a call with that result.

        Raises:
            Fault: as `retry_until_recorded`.
        """
        self.retry_until_recorded(claimed, partial(self._end, claimed, result, (), 0.0))

    def lose(
        self, claimed: ClaimedCall, loss: Loss, output: OutputLog | None = None, duration_ms: float = 0.0
    ) -> ToolResult:
        """End an attempt whose outcome is lost; if the tool only reads, another attempt may follow.

        Raises:
            Fault: as `retry_until_recorded`.
        """
        last_output = output.rest() if output is not None else ()
        ended: ToolResult | None = None

        def end(unit: Unit) -> None:
            nonlocal ended
            ended = self._lost_attempts.end(unit, claimed, loss, last_output=last_output, duration_ms=duration_ms)

        if self._try_to_record(claimed, lambda: self._writer.run(end)) is not None:
            last_output, loss = (), loss._replace(can_return=False)
            self.retry_until_recorded(claimed, lambda: self._writer.run(end))
        assert ended is not None  # noqa: S101 (the unit ran, or the above raised)
        return ended

    def _try_to_record(self, claimed: ClaimedCall, end: Callable[[], None]) -> Fault | None:
        """As `retry_until_recorded`, but returns the fault of an end that can't be recorded as it is."""
        refused = _capture_fault(claimed, "record", partial(self.retry_until_recorded, claimed, end))
        is_away = isinstance(refused, StorageUnavailable) and not isinstance(refused, ValueRefused)
        if refused is not None and (is_away or isinstance(refused, (IllegalTransition, ArtifactsUnavailable))):
            raise refused  # a newer worker has the call, or this one has given it up
        return refused

    def retry_until_recorded(self, claimed: ClaimedCall, end: Callable[[], None]) -> None:
        """Call `end` until the database and the disk accept it.

        No poll finds a running call: if its end were dropped, it would keep its workspace as long as this worker lives.

        Raises:
            Fault: what `end` last raised: after `abandon`; at once for a value that the database refuses; after
                `REPAIR_TIMEOUT_S` for a fault that doesn't pass by itself. The runner keeps the output, so the next worker
                records it.
        """
        began: float | None = None
        while True:
            try:
                end()
            except ValueRefused:
                raise
            except IllegalTransition:
                # The commit whose answer was lost succeeded: this is the second try.
                if began is None or not self._has_ended(claimed):
                    raise
                return
            except (StorageUnavailable, ArtifactsUnavailable) as fault:
                if began is None:
                    began = self._clock.monotonic()
                    _log.warning("the end of call %s waits: %s", claimed.stored.identity.tool_call_id, fault)
                is_hopeless = not fault.retryable and self._clock.monotonic() - began >= REPAIR_TIMEOUT_S
                if self._abandoned.wait(RETRY_S) or is_hopeless:
                    raise
            else:
                return

    def _has_ended(self, claimed: ClaimedCall) -> bool:
        """Whether this worker has recorded the attempt's end."""
        with self._log.database.read() as connection:
            found = store.find(connection, claimed.stored.identity.tool_call_id)
        if found is None:
            return False
        if found.identity.attempt > claimed.stored.identity.attempt:
            return True  # another one follows it
        return found.identity == claimed.stored.identity and (
            (found.state, found.generation) == (CallState.COMPLETED, claimed.generation)
        )

    def abandon(self) -> None:
        """Record no failures of sandboxes from now on: this worker is leaving, and their calls are the next one's."""
        self._abandoned.set()

    def _acknowledge(self, claimed: ClaimedCall, sandbox: Sandbox) -> None:
        identity = claimed.stored.identity
        try:
            sandbox.acknowledge(identity.tool_call_id, identity.attempt)
        except Fault as fault:
            # The end is recorded; the runner's copy of it goes with the sandbox.
            _log.info("the end of call %s was not acknowledged: %s", identity.tool_call_id, fault)

    def _run_in_sandbox(
        self, claimed: ClaimedCall, tool: Tool, limits: EffectiveLimits, output: OutputLog, sandbox: Sandbox
    ) -> ToolResult:
        stored, profile, obliged = claimed.stored, limits.profile, limits.obligations
        if (refused := missing_secret(profile.egress, tool, stored.tenant_id, self._secret_problem)) is not None:
            return refused
        claims = self._registry.of(stored.tenant_id).secrets
        context = ToolContext(
            sandbox=sandbox,
            profile=profile.model_copy(update={"egress": with_granted_secrets(profile.egress, tool, claims)}),
            limits=process_limits(obliged.sandbox),
            taken_up=claimed.behaviour_hash is None,
            bound=stored.bound,
            identity=stored.identity,
            timeout_s=claimed.timeout_s,
            process_lifetime_s=min(
                obliged.timeout_s or DEFAULT_PROCESS_LIFETIME_S, profile.lifetime_s or DEFAULT_PROCESS_LIFETIME_S
            ),
            on_output=_discard if limits.withholds_output else output.add,
            attach=_discard if limits.withholds_output else output.attached.append,
            keep_stream=partial(self._keep_stream, stored, output),
            transfers=self.transfers_of(stored, tool),
            redactor=limits.redactor,
            find_output=partial(self._find_output, stored),
            allows=partial(self._allows, stored, tool),
            denies_read=partial(self._denies_read, stored),
        )
        if stored.identity.attempt > 1 and runs_one_exec(tool):
            self._cancel_previous_attempt(stored, sandbox)
        if stored.bound and not runs_one_exec(tool) and (differs := find_changed_file(context.files, stored.bound)):
            return files_changed_result(differs)
        if stored.preview is None or stored.preview.failed:
            return limits.clean(tool, run_tool(tool, stored.call.input, context))
        return limits.clean(tool, run_previewed(tool, stored, stored.preview, context))

    def _inherited_redactions(self, tool: Tool, given: dict[str, Any]) -> tuple[Redaction, ...]:
        """The redactions of the process that this call reads; none for other calls."""
        if not isinstance(tool.runs, Builtin) or tool.runs.builtin != "process.read":
            return ()
        with self._log.database.read() as connection:
            started = store.find(connection, ToolCallId(call_id_of_process(str(given["process"]))))
        redactions = started.obligations.redactions if started is not None else ()
        # A pointer refers to the start's own result: what it hides may be anywhere in the output.
        return tuple(item if item.pointer is None else Redaction(pointer=_OUTPUT_POINTER) for item in redactions)

    def _blocked_by(self, claimed: ClaimedCall) -> str:
        """What blocks a call since its claim; empty if nothing does, or the database is away."""
        with suppress(StorageUnavailable), self._log.database.read() as connection:
            stored = store.find(connection, claimed.stored.identity.tool_call_id)
            if stored is not None:
                return stored.blocked_by(self._registry.of(stored.tenant_id).resolve(stored.call.name))
        return ""

    @staticmethod
    def _cancel_previous_attempt(stored: CallRecord, sandbox: Sandbox) -> None:
        """The previous attempt may still run, if only its connection was lost."""
        try:
            sandbox.cancel(stored.identity.tool_call_id, stored.identity.attempt - 1)
        except SandboxGone:
            raise
        except Fault as fault:
            _log.info("an earlier attempt of call %s was not ended: %s", stored.identity.tool_call_id, fault)

    def _allows(self, stored: CallRecord, tool: Tool, given: dict[str, Any]) -> bool:
        decided = self._decide_both(stored, tool, given)
        return decided is not None and decided[1].effect is Effect.ALLOW

    def _covers(self, stored: CallRecord, tool: Tool, given: dict[str, Any]) -> bool:
        decided = self._decide_both(stored, tool, given)
        if decided is None:
            return False
        own, derived = decided
        # A person who was asked by these rules has answered for all that they ask about.
        is_answered = own.effect is derived.effect is Effect.ASK and derived.rule_hashes == own.rule_hashes
        return derived.effect is Effect.ALLOW or is_answered

    def _decide_both(self, stored: CallRecord, tool: Tool, given: dict[str, Any]) -> tuple[Decision, Decision] | None:
        """Policy's decisions on the call, and on the same call with another input; None if they can't stand for each other."""
        if self._decide is None:
            return None
        call = stored.call.model_copy(update={"input": given})
        own, derived = (self._decide(each, tool, stored.subject) for each in (stored.call, call))
        # What policy demands of the other input only, such as a redaction, would not be done.
        return (own, derived) if derived.obligations == own.obligations else None

    def _denies_read(self, stored: CallRecord, path: str) -> bool:
        reader = self._registry.of(stored.tenant_id).find("workspace.read")
        if self._decide is None or reader is None:
            return False
        call = stored.call.model_copy(update={"name": reader.name, "input": {"path": path}})
        return self._decide(call, reader, stored.subject).effect is Effect.DENY

    def _find_output(self, stored: CallRecord, artifact_id: str) -> StoredOutput | None:
        try:
            artifact = self._artifacts.find(stored.tenant_id, artifact_id)
        except ArtifactUnknown:
            return None
        return self._as_output(artifact) if artifact.session_id == stored.subject.session_id else None

    def _as_output(self, artifact: StoredArtifact) -> StoredOutput:
        def read(offset: int, length: int) -> bytes:
            start = min(offset, artifact.size)
            return b"".join(self._artifacts.stream(artifact, start, min(length, artifact.size - start)))

        return StoredOutput(artifact.name, artifact.content_type, artifact.size, read)

    def transfers_of(self, stored: CallRecord, tool: Tool) -> Transfers:
        """What a call is given that moves bytes or trees."""
        return Transfers(partial(self._find_upload, stored), partial(self._covers, stored, tool))

    def _find_upload(self, stored: CallRecord, content_hash: str) -> StoredOutput | None:
        found = self._artifacts.find_content(stored.subject.session_id, content_hash)
        return None if found is None else self._as_output(found)

    def _keep_stream(
        self,
        stored: CallRecord,
        output: OutputLog,
        about: Attachment,
        fill: Callable[[Callable[[bytes], object]], FileRefused | None],
    ) -> FileRefused | None:
        """Store what `fill` writes as an artifact, which the call's end records."""
        subject = stored.subject
        with self._artifacts.spool() as spool:
            try:
                refused = fill(spool.write)
            except ArtifactTooLarge as fault:
                return FileRefused(error=FileError.TOO_LARGE, path=about.name, message=str(fault))
            if refused is None:
                name = f"{stored.identity.tool_call_id}-{about.name}"
                kept = self._artifacts.keep_spool(
                    spool, subject.tenant_id, subject.session_id, content_type=about.content_type, name=name
                )
                output.stored.append(kept)
            return refused

    def _run_on_source(
        self, claimed: ClaimedCall, tool: Tool, limits: EffectiveLimits, output: OutputLog, sent: Callable[[], None]
    ) -> ToolResult:
        """Run it on an MCP server, with the same promises but outside of the session's sandbox."""
        stored = claimed.stored
        asked = SourceRequest(
            tool=tool,
            arguments=stored.call.input,
            identity=stored.identity,
            tenant=stored.tenant_id,
            session=stored.subject.session_id,
            profile=limits.profile,
            obligations=limits.obligations,
            timeout_s=claimed.timeout_s,
            on_output=_discard if limits.withholds_output else output.add,
            attach=_discard if limits.withholds_output else output.attached.append,
            sent=sent,
        )
        return limits.clean(tool, self._sources.call(asked))

    def _finish(self, claimed: ClaimedCall, result: ToolResult, output: OutputLog, duration_ms: float) -> None:
        last_output = output.rest()
        try:
            artifacts = (*self._keep_output(claimed.stored, output, result), *output.stored)
            result_ref = None
            if not fits_in_event(result):
                content = result.model_dump_json().encode()
                result_ref = self._keep(claimed.stored, content, "result.json", "application/json")
                artifacts = (*artifacts, result_ref)
            kept = result.model_copy(update={"artifacts": tuple(artifact.id for artifact in artifacts)})
            self._end(claimed, kept, last_output, duration_ms, artifacts=artifacts, result_ref=result_ref)
        except (QuotaExceeded, ArtifactTooLarge) as refused:
            # The call ran, so it must end; the result says what was left out.
            self._end(claimed, error_mapping.without_artifacts(result, refused), last_output, duration_ms)

    def _end(
        self,
        claimed: ClaimedCall,
        result: ToolResult,
        last_output: tuple[EventDraft, ...],
        duration_ms: float,
        *,
        artifacts: tuple[StoredArtifact, ...] = (),
        result_ref: StoredArtifact | None = None,
    ) -> None:
        def end(unit: Unit) -> None:
            for artifact in artifacts:
                self._artifacts.record(unit, artifact)
            complete(
                unit,
                self._log,
                claimed,
                result,
                result_ref=result_ref,
                last_output=last_output,
                duration_ms=duration_ms,
            )

        self._writer.run(end)

    def _keep_output(self, stored: CallRecord, output: OutputLog, result: ToolResult) -> tuple[StoredArtifact, ...]:
        streams = []
        for name, count in (("stdout", result.stdout), ("stderr", result.stderr)):
            if count is not None and count.bytes:
                whole = output.whole(name, count.bytes)
                if count.bytes > count.shown or not _is_text(whole):
                    ending, content_type = _TEXT_OUTPUT if _is_text(whole) else _BINARY_OUTPUT
                    streams.append(Attachment(name + ending, content_type, whole))
        return tuple(
            self._keep(stored, item.content, item.name, item.content_type) for item in (*streams, *output.attached)
        )

    def _keep(self, stored: CallRecord, content: bytes, name: str, content_type: str) -> StoredArtifact:
        subject = stored.subject
        return self._artifacts.put(
            content,
            subject.tenant_id,
            subject.session_id,
            content_type=content_type,
            name=f"{stored.identity.tool_call_id}-{name}",
        )


def _capture_fault(claimed: ClaimedCall, what: str, work: Callable[[], T]) -> T | Fault:
    """What `work` returns, or the fault that it raised; any other exception is logged and becomes an `InternalFault`.

    Nothing gets through: a claim that never ends would hold its workspace until the worker restarts.
    """
    try:
        return work()
    except Fault as fault:
        return fault
    except Exception:  # noqa: BLE001 (see above)
        _log.exception("a defect: call %s did not %s", claimed.stored.identity.tool_call_id, what)
        return InternalFault(f"CodeSDK failed to {what} this call; whether it took effect is unknown.")


def _with_outcome(claimed: ClaimedCall, ran: ToolResult | Fault, acquisition: SandboxAcquisition) -> ClaimedCall:
    """The claim with what its run showed: whether the call ran at all, and whether its outcome is indeterminate."""
    is_indeterminate = isinstance(ran, Fault) and error_mapping.is_indeterminate(
        ran, opened=acquisition.sandbox is not None, sent=acquisition.was_sent_to_server
    )
    # A call that an earlier worker had (it has no hash here) may have been sent by that one.
    never_asked = not acquisition.was_asked and claimed.behaviour_hash is not None
    ran_at_all = claimed.ran and not never_asked and not isinstance(ran, CallCancelled)
    indeterminate = claimed.is_indeterminate_outcome or is_indeterminate
    return claimed.model_copy(update={"ran": ran_at_all, "is_indeterminate_outcome": indeterminate})


def _is_text(output: bytes) -> bool:
    """Whether a result shows these bytes as they are. It replaces those that are not UTF-8."""
    try:
        output.decode()
    except UnicodeDecodeError:
        return False
    return True


def _discard(_what: object) -> None:
    """Drops output that might show a value which policy redacts."""
