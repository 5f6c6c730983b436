"""`codesdk events replay`: folds a log and compares it with the stored calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.text import Text

from codesdk.cli.console.terminal import Printer, sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.logs.history import History, fold
from codesdk.cli.logs.history_table import calls_table
from codesdk.cli.logs.stored_log import StoredLog, read_stored_log
from codesdk.domain.calls import CallState
from codesdk.domain.invariants import first_violation
from codesdk.domain.model import FrozenModel
from codesdk.domain.records import ToolCallRecord
from codesdk.errors import ExitCode
from codesdk.toolcalls.records.call_record import CallRecord
from codesdk.transcript import fold as fold_transcript


class ReplayResult(FrozenModel):
    """The folded log and its differences from the stored calls."""

    history: History
    violation: str | None = None
    """The first event that breaks a log invariant."""
    differences: tuple[str, ...] = ()
    """Differences between the log and the stored calls; not checked if the log breaks an invariant."""
    imported: bool = False
    """Whether the log was imported: an import has no stored calls to compare with."""


def replay(session: str, *, data_dir: Path | None, as_json: bool) -> int:
    """Fold, check and compare; the exit code is 1 if anything differs."""
    printer = Printer(as_json=as_json)
    replayed = compare(read_stored_log(load_settings(data_dir), session))
    if as_json:
        printer.emit(replayed)
    else:
        _print_result(printer, replayed)
    return ExitCode.FAILED if replayed.violation or replayed.differences else ExitCode.OK


def compare(record: StoredLog) -> ReplayResult:
    """Compare the log with the stored calls."""
    violation = first_violation(record.events)
    if violation is not None:
        history = History(last_seq=record.head)
        with contextlib.suppress(ValueError, KeyError):  # a broken log may still fold partly
            history = fold(record.events)
        return ReplayResult(history=history, violation=violation.message, imported=record.imported)
    differences = tuple(_differences(record, fold_transcript(record.events).calls))
    return ReplayResult(history=fold(record.events), differences=differences, imported=record.imported)


def _differences(record: StoredLog, calls: Iterable[ToolCallRecord]) -> Iterator[str]:
    if record.head != len(record.events):
        yield f"the session counts {record.head} events, the log has {len(record.events)}"
    if record.imported:
        return
    last = {call.tool_call_id: call for call in calls}  # a row describes the newest attempt
    stored = {row.identity.tool_call_id: row for row in record.calls}
    for call_id in {**last, **stored}:
        call, row = last.get(call_id), stored.get(call_id)
        if call is None:
            yield f"{call_id} has a row, but no event"
        elif row is None:
            yield f"{call_id} has events, but no row"
        else:
            for what, in_log, in_row in _compared_fields(call, row):
                if in_log != in_row:
                    yield f"{call_id}: its {what} is {in_log!r} in the log, {in_row!r} in its row"


def _compared_fields(call: ToolCallRecord, row: CallRecord) -> Iterator[tuple[str, object, object]]:
    yield "attempt", call.attempt, row.identity.attempt
    yield "input hash", call.input_hash, row.identity.input_hash
    yield "name", call.name, row.call.name
    yield "state", call.state.value, row.state.value
    yield "voices", call.sources, row.sources
    if call.input_ref is None:
        yield "input", call.input, row.call.input
    if row.result is not None:
        yield "error", call.is_error, row.result.is_error
        yield "code", call.code, row.result.code
        if row.state is CallState.DENIED:
            yield "reason", call.reason, row.result.text
        elif call.result_ref is None:
            whole = row.result.structured if row.result.structured is not None else row.result.text
            yield "result", call.result, whole


def _print_result(printer: Printer, replayed: ReplayResult) -> None:
    printer.out.print(calls_table(replayed.history))
    last = replayed.history.last_seq
    if replayed.violation:
        printer.out.print(Text(sanitize(f"The log is broken. {replayed.violation}"), style="red"), soft_wrap=True)
        return
    printer.out.print(f"{last} events, numbered 1 to {last} without a gap; every invariant holds.", style="dim")
    for difference in replayed.differences:
        printer.out.print(Text(sanitize(difference), style="red"), soft_wrap=True)
    if replayed.imported:
        printer.out.print("The session was imported, so there are no stored calls to compare with.", style="dim")
    elif not replayed.differences:
        printer.out.print("The stored calls match the log.", style="dim")
