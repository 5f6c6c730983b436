"""Folds a log into its transcript (plan, transcript rules). Deltas and repetitions add nothing."""

from __future__ import annotations

from collections.abc import Iterable

from codesdk.domain.content import ToolResultBlock, ToolUseBlock, TranscriptMessage, TranscriptRole
from codesdk.domain.events import Event, EventUnreadable
from codesdk.domain.ids import TaskId
from codesdk.domain.invariants import InvariantChecker
from codesdk.domain.model import FrozenModel
from codesdk.domain.payloads import (
    CallCompleted,
    CallDenied,
    CallRequested,
    ModelOutputCompleted,
    TaskStarted,
    UsageReported,
    read_payload,
)
from codesdk.domain.records import Task, ToolCallRecord
from codesdk.transcript.call_records import CallRecords
from codesdk.transcript.task_records import TaskRecords
from codesdk.transcript.usage import Usage, UsageMeter


class TranscriptEntry(FrozenModel):
    """A message with its place in the log."""

    seq: int
    """`seq` of the event that last set the message."""
    time: str
    task_id: TaskId | None = None
    message: TranscriptMessage


class Transcript(FrozenModel):
    """A session as a conversation. The same events always give the same transcript."""

    session_id: str
    runtime: str
    entries: tuple[TranscriptEntry, ...] = ()
    calls: tuple[ToolCallRecord, ...] = ()
    """Every attempt, in the order of requests."""
    tasks: tuple[Task, ...] = ()
    usage: Usage = Usage()
    last_seq: int = 0

    @property
    def messages(self) -> tuple[TranscriptMessage, ...]:
        """Return only the messages, to compile context from."""
        return tuple(entry.message for entry in self.entries)


def fold(events: Iterable[Event]) -> Transcript:
    """Fold a log, read from its beginning, into a transcript. The log may still grow.

    Raises:
        EventUnreadable: the log is empty, violates an invariant, or has a payload that doesn't match its type.
    """
    builder = _TranscriptBuilder()
    for event in events:
        builder.add(event)
    return builder.done()


class _TranscriptBuilder:
    def __init__(self) -> None:
        self._checker = InvariantChecker()
        self._entries: dict[tuple[str, ...], TranscriptEntry] = {}  # by what a later event may repeat
        self._calls = CallRecords()
        self._tasks = TaskRecords()
        self._usage = UsageMeter()
        self._first: Event | None = None
        self._last_seq = 0

    def add(self, event: Event) -> None:
        violation = self._checker.add(event)
        if violation is not None:
            raise EventUnreadable(violation.message, advice="Run `codesdk events replay` for details.")
        self._first = self._first or event
        self._last_seq = event.seq
        payload = read_payload(event)
        if payload is None:
            return
        self._calls.add(event, payload)
        self._tasks.add(event, payload)
        match payload:
            case TaskStarted():
                for number, message in enumerate(payload.messages):
                    self._put(event, message, "task", str(event.seq), str(number))
            case ModelOutputCompleted() if payload.content:
                message = TranscriptMessage(role=TranscriptRole.ASSISTANT, content=payload.content)
                self._put(event, message, "output", event.trace.task_id or "", payload.message_id or str(event.seq))
            case CallRequested():
                self._add_tool_use(event, payload)
            case CallCompleted() | CallDenied():
                message = TranscriptMessage(role=TranscriptRole.TOOL, content=(_result_block(payload),))
                self._put(event, message, "result", payload.tool_call_id)
            case UsageReported():
                self._usage.add(event.trace.task_id or "", event.seq, payload)
            case _:
                pass

    def _add_tool_use(self, event: Event, payload: CallRequested) -> None:
        ref = payload.input_ref
        given = payload.input if ref is None else ref.model_dump(mode="json", exclude_none=True)
        block = ToolUseBlock(tool_call_id=payload.tool_call_id, name=payload.name, input=given)
        message = TranscriptMessage(role=TranscriptRole.ASSISTANT, content=(block,))
        self._put(event, message, "use", payload.tool_call_id)

    def _put(self, event: Event, message: TranscriptMessage, *key: str) -> None:
        # A repetition (another attempt of a call, a message that the runtime sends twice) keeps the first one's place.
        self._entries[key] = TranscriptEntry(
            seq=event.seq, time=event.time, task_id=event.trace.task_id, message=message
        )

    def done(self) -> Transcript:
        if self._first is None:
            raise EventUnreadable("The log is empty.", advice="A session's log has at least session.created.")
        return Transcript(
            session_id=self._first.trace.session_id,
            runtime=self._first.runtime.name,
            entries=tuple(self._entries.values()),
            calls=self._calls.records(),
            tasks=self._tasks.records(),
            usage=self._usage.total(),
            last_seq=self._last_seq,
        )


def _result_block(payload: CallCompleted | CallDenied) -> ToolResultBlock:
    if isinstance(payload, CallDenied):
        return ToolResultBlock(tool_call_id=payload.tool_call_id, result=payload.reason, is_error=True)
    result = payload.result_preview
    if payload.result_ref is not None:
        result = {
            "artifact_ref": payload.result_ref.model_dump(mode="json", exclude_none=True),
            "preview": payload.result_preview,
        }
    if payload.differs and isinstance(result, dict):  # a text contains the difference already
        result = {**result, "differs_from_preview": list(payload.differs)}
    return ToolResultBlock(tool_call_id=payload.tool_call_id, result=result, is_error=payload.is_error or None)
