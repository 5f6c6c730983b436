"""process.start, process.list, process.read, process.signal: commands that run on while other calls come and go."""

from __future__ import annotations

import codecs
import signal
from typing import Any

from codesdk.domain.media import is_binary, kind_of
from codesdk.domain.tool_results import ToolResult
from codesdk.sandbox.port import ExecRequest, ExitKind, Process, Stream
from codesdk.tools.command import command_argv, signal_text
from codesdk.tools.context import ToolContext, files_changed_result
from codesdk.tools.pages import next_page, room_beside, size_in_page
from codesdk.tools.redacted_output import read_retained_output

PREFIX = "prc_"
"""Before the id of the call that started it, without that id's own prefix."""
_CALL_PREFIX = "call_"
MAX_RUNNING = 8
"""Background processes at once: the runner runs 24 execs, and the other calls must find room."""
MAX_ENDED = 16
"""Ended ones whose output is kept; of more the oldest are forgotten when another is started."""
STARTUP_WAIT_S = 0.25
"""Seconds that a start waits for a sign of life, so that what fails at once is told at once."""
DEFAULT_BYTES = 16 * 1024
_ENVIRONMENT = {"PYTHONUNBUFFERED": "1"}
"""Otherwise a server in Python whose output is a pipe says that it listens when it ends."""
SIGNALS = {name: int(signal.Signals[f"SIG{name}"]) for name in ("INT", "TERM", "KILL", "HUP", "QUIT", "USR1", "USR2")}
"""Not STOP and CONT: stopping and letting go on is how the runner itself holds tools."""


def process_id_of_call(call: str) -> str:
    """The process that a call started."""
    return PREFIX + call.removeprefix(_CALL_PREFIX)


def call_id_of_process(process: str) -> str:
    """The call that started a process."""
    return _CALL_PREFIX + process.removeprefix(PREFIX)


def start(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Start it and come back; the same call again, by another worker, finds what it has started."""
    name = process_id_of_call(context.identity.tool_call_id)
    known = _background_processes(context)
    running = [item for item in known if item.result is None and item.call != name]
    # One that an earlier worker started for this call is answered for: the refusal says that nothing was started.
    if len(running) >= MAX_RUNNING and all(item.call != name for item in known):
        text = f"{len(running)} processes run in the background, and no more can: end one with process_signal."
        return ToolResult(text=text, is_error=True, code="TOO_MANY_PROCESSES")
    _evict_ended(known, context)
    request = ExecRequest(
        call=name,
        attempt=context.identity.attempt,
        argv=command_argv(given),
        cwd=given.get("cwd", "."),
        stdin=given.get("stdin", "").encode(),
        env=_ENVIRONMENT,
        timeout_s=min(given.get("timeout_s") or context.process_lifetime_s, context.process_lifetime_s),
        keep_bytes=context.profile.keep_output_bytes,
        egress=context.profile.egress,
        limits=context.limits,
        bound=context.bound,
    )
    processes = context.sandbox.processes
    process = processes.start(request)
    if process.result is None:
        processes.output(name, request.attempt, "stdout", 0, length=1, wait_s=STARTUP_WAIT_S)
        process = _find_process(name, context) or process
    result = process.result
    if result is not None and result.kind is ExitKind.FILES_CHANGED:
        return files_changed_result(result.error)
    structured = _process_fields(process)
    if result is not None and result.kind in (ExitKind.SPAWN_FAILED, ExitKind.DISK_FULL):
        text = f"Nothing was started: {result.error or result.kind.value}."
        return ToolResult(text=text, structured=structured, is_error=True, code=result.kind.upper())
    return ToolResult(text=_process_line(process), structured=structured)


def list_processes(_given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Those in the background, oldest first."""
    found = _background_processes(context)
    text = "\n".join(map(_process_line, found)) or "No process was started in the background."
    return ToolResult(text=text, structured={"processes": [_process_fields(item) for item in found]})


def read(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Output from an offset on; where policy redacts, once the process has ended."""
    process = _find_process(given["process"], context)
    if process is None:
        return _no_such_process(given["process"])
    stream: Stream = given.get("stream", "stdout")
    offset, limit = given.get("offset", 0), given.get("limit", DEFAULT_BYTES)
    found = context.sandbox.processes.output(
        process.call, process.attempt, stream, offset, length=limit, wait_s=given.get("wait_s", 0.0)
    )
    process = _find_process(given["process"], context)
    if found is None or process is None:
        return _no_such_process(given["process"])
    at, data, seen, note = found.offset, found.data, found.seen, ""
    if context.redactor is not None:
        at, data, seen, note = offset, b"", 0, "[policy redacts this output: it can be read once the process has ended]"
        if process.result is not None:
            kept, is_cut = read_retained_output(context.sandbox.processes, process, stream)
            whole = context.redactor.clean(kept, is_cut=is_cut)
            at, seen = min(offset, len(whole)), len(whole)
            data, note = whole[at : at + limit], ""
    is_last = found.over and process.result is not None and at + len(data) >= seen
    if is_binary(data):
        note = f"[{len(data)} bytes of binary output ({kind_of(data).name}) are not shown]"
        text, size = "", len(data)
    else:
        text, size = _decode(data, is_last=is_last)
    if "limit" not in given:
        while size_in_page(text) > room_beside() and len(data) > 1:
            data, is_last = data[: len(data) * room_beside() // size_in_page(text)], False
            text, size = _decode(data, is_last=False)
    structured = {
        **_process_fields(process),
        "stream": stream,
        "offset": at,
        "next_offset": at + size,
        "seen_bytes": seen,
        "skipped_bytes": max(0, at - offset),
        "text": text,
        "over": is_last,
    }
    skipped = (
        f"[{at - offset} bytes were dropped here: the profile's keep_output_bytes keeps no more]" if at > offset else ""
    )
    following = {**given, "offset": at + size}
    more = f"[{seen - at - size} bytes more; {next_page('process.read', following)}]" if at + size < seen else ""
    parts = [skipped, text.rstrip("\n"), note, more, _process_line(process)]
    return ToolResult(text="\n".join(part for part in parts if part), structured=structured)


def send_signal(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """To the whole tree of a process."""
    process = _find_process(given["process"], context)
    if process is None:
        return _no_such_process(given["process"])
    sent = context.sandbox.processes.signal(process.call, process.attempt, SIGNALS[given["signal"]])
    if sent:
        # What a signal ends is gone in a moment; whoever asks next should not find it running.
        context.sandbox.processes.output(
            process.call, process.attempt, "stdout", 2**62, length=1, wait_s=STARTUP_WAIT_S
        )
        process = _find_process(given["process"], context) or process
    words = f"SIG{given['signal']} was sent." if sent else "It has ended, or is ending: no signal was sent."
    return ToolResult(text=f"{words} {_process_line(process)}", structured={**_process_fields(process), "sent": sent})


def _background_processes(context: ToolContext) -> tuple[Process, ...]:
    return tuple(item for item in context.sandbox.processes.list() if item.background and item.call.startswith(PREFIX))


def _find_process(name: str, context: ToolContext) -> Process | None:
    # Of several attempts the newest: an earlier one's sandbox may be gone, and then so is it.
    return next((item for item in reversed(_background_processes(context)) if item.call == name), None)


def _evict_ended(known: tuple[Process, ...], context: ToolContext) -> None:
    ended = [item for item in known if item.result is not None]
    for item in ended[: max(0, len(ended) - MAX_ENDED)]:
        context.sandbox.acknowledge(item.call, item.attempt)


def _no_such_process(name: str) -> ToolResult:
    text = f"There is no process {name}: it was never started here, or is forgotten (process_list shows what there is)."
    return ToolResult(text=text, is_error=True, code="NO_SUCH_PROCESS")


def _decode(data: bytes, *, is_last: bool) -> tuple[str, int]:
    """The text, and how many bytes it stands for: half a character at the end waits for its other half."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, is_last)
    waiting = len(decoder.getstate()[0])
    if waiting and waiting == len(data):
        return data.decode("utf-8", "replace"), len(data)  # a limit below a character's size: go on all the same
    return text, len(data) - waiting


def _process_fields(process: Process) -> dict[str, Any]:
    result = process.result
    return {
        "process": process.call,
        "argv": list(process.argv),
        "running": result is None,
        "outcome": None if result is None else result.kind.value,
        "exit_code": None if result is None else result.exit_code,
        "signal": None if result is None else result.signal,
        "age_s": round(process.age_s, 3),
        "stdout_bytes": (process.stdout if result is None else result.stdout).bytes,
        "stderr_bytes": (process.stderr if result is None else result.stderr).bytes,
    }


def _process_line(process: Process) -> str:
    result = process.result
    if result is None:
        state = f"running for {process.age_s:.0f} s"
    elif result.kind is ExitKind.EXITED:
        state = f"ended with exit code {result.exit_code}"
    elif result.kind is ExitKind.SIGNALED:
        state = f"ended by {signal_text(result.signal)}"
    else:
        state = f"ended: {result.kind.value.replace('_', ' ')}"
    return f"{process.call}: {state}: {' '.join(process.argv)[:200]}"
