"""process.start, process.list, process.read, process.signal: commands that run on while other calls come and go."""

from __future__ import annotations

import codecs
import signal
from typing import Any

from codesdk.domain.tools import ToolResult
from codesdk.sandbox.port import ExecRequest, ExitKind, Process, Stream
from codesdk.toolcalls.builtins.bench import Bench, files_changed
from codesdk.toolcalls.builtins.command import command_argv
from codesdk.toolcalls.builtins.withheld import kept_of

PREFIX = "prc_"
"""Before the id of the call that started it, without that id's own prefix."""
_CALL_PREFIX = "call_"
MAX_RUNNING = 8
"""Background processes at once: the runner runs 24 execs, and the other calls must find room."""
MAX_ENDED = 16
"""Ended ones whose output is kept; of more the oldest are forgotten when another is started."""
SETTLE_S = 0.25
"""Seconds that a start waits for a sign of life, so that what fails at once is told at once."""
DEFAULT_BYTES = 16 * 1024
SIGNALS = {name: int(signal.Signals[f"SIG{name}"]) for name in ("INT", "TERM", "KILL", "HUP", "QUIT", "USR1", "USR2")}
"""Not STOP and CONT: stopping and letting go on is how the runner itself holds tools."""


def name_of(call: str) -> str:
    """The process that a call started."""
    return PREFIX + call.removeprefix(_CALL_PREFIX)


def call_of(process: str) -> str:
    """The call that started a process."""
    return _CALL_PREFIX + process.removeprefix(PREFIX)


def start(given: dict[str, Any], bench: Bench) -> ToolResult:
    """Start it and come back; the same call again, by another worker, finds what it has started."""
    name = name_of(bench.identity.tool_call_id)
    known = _background(bench)
    running = [item for item in known if item.result is None and item.call != name]
    # One that an earlier worker started for this call is answered for: the refusal says that nothing was started.
    if len(running) >= MAX_RUNNING and all(item.call != name for item in known):
        text = f"{len(running)} processes run in the background, and no more can: end one with process.signal."
        return ToolResult(text=text, is_error=True, code="TOO_MANY_PROCESSES")
    _forget(known, bench)
    request = ExecRequest(
        call=name,
        attempt=bench.identity.attempt,
        argv=command_argv(given),
        cwd=given.get("cwd", "."),
        stdin=given.get("stdin", "").encode(),
        timeout_s=min(given.get("timeout_s") or bench.lasts_s, bench.lasts_s),
        keep_bytes=bench.profile.keep_output_bytes,
        egress=bench.profile.egress,
        limits=bench.limits,
        bound=bench.bound,
    )
    processes = bench.sandbox.processes
    process = processes.start(request)
    if process.result is None:
        processes.output(name, request.attempt, "stdout", 0, length=1, wait_s=SETTLE_S)
        process = _found(name, bench) or process
    result = process.result
    if result is not None and result.kind is ExitKind.FILES_CHANGED:
        return files_changed(result.error)
    structured = _described(process)
    if result is not None and result.kind in (ExitKind.SPAWN_FAILED, ExitKind.DISK_FULL):
        text = f"Nothing was started: {result.error or result.kind.value}."
        return ToolResult(text=text, structured=structured, is_error=True, code=result.kind.upper())
    return ToolResult(text=_words(process), structured=structured)


def list_processes(_given: dict[str, Any], bench: Bench) -> ToolResult:
    """Those in the background, oldest first."""
    found = _background(bench)
    text = "\n".join(map(_words, found)) or "No process was started in the background."
    return ToolResult(text=text, structured={"processes": [_described(item) for item in found]})


def read(given: dict[str, Any], bench: Bench) -> ToolResult:
    """Output from an offset on; where policy redacts, once the process has ended."""
    process = _found(given["process"], bench)
    if process is None:
        return _unknown(given["process"])
    stream: Stream = given.get("stream", "stdout")
    offset, limit = given.get("offset", 0), given.get("limit", DEFAULT_BYTES)
    found = bench.sandbox.processes.output(
        process.call, process.attempt, stream, offset, length=limit, wait_s=given.get("wait_s", 0.0)
    )
    process = _found(given["process"], bench)
    if found is None or process is None:
        return _unknown(given["process"])
    at, data, seen, note = found.offset, found.data, found.seen, ""
    if bench.redactor is not None:
        at, data, seen, note = offset, b"", 0, "[policy redacts this output: it can be read once the process has ended]"
        if process.result is not None:
            kept, is_cut = kept_of(bench.sandbox.processes, process, stream)
            whole = bench.redactor.clean(kept, is_cut=is_cut)
            at, seen = min(offset, len(whole)), len(whole)
            data, note = whole[at : at + limit], ""
    is_last = found.over and process.result is not None and at + len(data) >= seen
    text, size = _text(data, is_last=is_last)
    structured = {
        **_described(process),
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
    more = f"[{seen - at - size} bytes more, from offset {at + size}]" if at + size < seen else ""
    parts = [skipped, text.rstrip("\n"), note, more, _words(process)]
    return ToolResult(text="\n".join(part for part in parts if part), structured=structured)


def send_signal(given: dict[str, Any], bench: Bench) -> ToolResult:
    """To the whole tree of a process."""
    process = _found(given["process"], bench)
    if process is None:
        return _unknown(given["process"])
    sent = bench.sandbox.processes.signal(process.call, process.attempt, SIGNALS[given["signal"]])
    if sent:
        # What a signal ends is gone in a moment; whoever asks next should not find it running.
        bench.sandbox.processes.output(process.call, process.attempt, "stdout", 2**62, length=1, wait_s=SETTLE_S)
        process = _found(given["process"], bench) or process
    words = f"SIG{given['signal']} was sent." if sent else "It has ended, or is ending: no signal was sent."
    return ToolResult(text=f"{words} {_words(process)}", structured={**_described(process), "sent": sent})


def _background(bench: Bench) -> tuple[Process, ...]:
    return tuple(item for item in bench.sandbox.processes.list() if item.background and item.call.startswith(PREFIX))


def _found(name: str, bench: Bench) -> Process | None:
    # Of several attempts the newest: an earlier one's sandbox may be gone, and then so is it.
    return next((item for item in reversed(_background(bench)) if item.call == name), None)


def _forget(known: tuple[Process, ...], bench: Bench) -> None:
    ended = [item for item in known if item.result is not None]
    for item in ended[: max(0, len(ended) - MAX_ENDED)]:
        bench.sandbox.acknowledge(item.call, item.attempt)


def _unknown(name: str) -> ToolResult:
    text = f"There is no process {name}: it was never started here, or is forgotten (process.list shows what there is)."
    return ToolResult(text=text, is_error=True, code="NO_SUCH_PROCESS")


def _text(data: bytes, *, is_last: bool) -> tuple[str, int]:
    """The text, and how many bytes it stands for: half a character at the end waits for its other half."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, is_last)
    waiting = len(decoder.getstate()[0])
    if waiting and waiting == len(data):
        return data.decode("utf-8", "replace"), len(data)  # a limit below a character's size: go on all the same
    return text, len(data) - waiting


def _described(process: Process) -> dict[str, Any]:
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


def _words(process: Process) -> str:
    result = process.result
    if result is None:
        state = f"running for {process.age_s:.0f} s"
    elif result.kind is ExitKind.EXITED:
        state = f"ended with exit code {result.exit_code}"
    elif result.kind is ExitKind.SIGNALED:
        state = f"ended by signal {result.signal}"
    else:
        state = f"ended: {result.kind.value.replace('_', ' ')}"
    return f"{process.call}: {state}: {' '.join(process.argv)[:200]}"
