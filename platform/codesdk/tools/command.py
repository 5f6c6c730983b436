"""Commands: workspace.exec and the tools with an argv template; output is shown in part and kept whole."""

from __future__ import annotations

import codecs
import signal
from typing import Any

from codesdk.domain.media import is_binary, kind_of
from codesdk.domain.tool_results import ToolResult, Truncation
from codesdk.sandbox.port import Chunk, ExecResult, ExitKind, OutputCount
from codesdk.tools.context import ToolContext, files_changed_result
from codesdk.tools.pages import room_beside, size_in_page

# Policy reads a line as bash does, so bash must run it; without start-up files, which the workspace could hold.
SHELL = ("bash", "--noprofile", "--norc", "-c")
_SHELL_SIGNALS = 128
"""A shell's exit code for a command that a signal ended, less the signal's number."""


MIN_SHOWN = 256
"""Bytes of a stream that are shown at least."""


class Excerpt:
    """Keeps the first half and the last half of `limit` bytes."""

    def __init__(self, limit: int) -> None:
        """`limit`: bytes shown in all."""
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._dropped = 0

    def add(self, data: bytes, offset: int | None = None) -> None:
        """The next piece of the stream, and where in the stream it begins: right after the last where None."""
        if offset is not None:
            self.end(offset)
        self._total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self._tail_limit:  # trimmed now and then, not for every byte
                del self._tail[: -self._tail_limit]

    def end(self, total: int) -> None:
        """The stream had so many bytes up to here. What did not come was dropped: it is never bridged in silence."""
        if total <= self._total:
            return
        self._dropped += total - self._total
        self._total = total
        self._head_limit = len(self._head)  # what follows is shown as the tail, and nothing from before it is
        self._tail.clear()

    def fit(self, room: int) -> None:
        """Show less, so that the text takes at most `room` bytes of a result's page."""
        shown = self._head_limit + self._tail_limit
        while (taken := size_in_page(self.text())) > room and shown > MIN_SHOWN:
            shown = max(MIN_SHOWN, min(shown - 1, self.shown) * room // taken)
            head, tail = bytes(self._head), bytes(self._tail)
            if not self.cut:
                head, tail = head + tail, head + tail
            self._head_limit, self._tail_limit = shown // 2, shown - shown // 2
            self._head, self._tail = bytearray(head[: self._head_limit]), bytearray(tail[-self._tail_limit :])

    @property
    def cut(self) -> bool:
        """Whether anything is left out."""
        return self._total > len(self._head) + min(len(self._tail), self._tail_limit)

    @property
    def binary_note(self) -> str:
        """What is shown instead of output that is no text; empty if it is text."""
        head, tail = self._parts()
        if not (is_binary(head) or is_binary(tail)):
            return ""
        return f"[{self._total} bytes of binary output ({kind_of(head).name}) are not shown; the artifact has them]"

    @property
    def shown(self) -> int:
        """Bytes of the stream that `text` shows."""
        return sum(map(len, self._parts()))

    def text(self, rest: str = "the whole output is in the artifact") -> str:
        """Head, a mark that counts what is missing, tail. Bytes that are no UTF-8 show as U+FFFD.

        `rest`: where what is left out can be found.
        """
        head, tail = self._parts()
        if not self.cut:
            return (head + tail).decode("utf-8", "replace")
        missing = self._total - len(head) - len(tail)
        where = rest
        if self._dropped:
            where = f"{self._dropped} of them were too many to keep and are lost, the rest is in the artifact"
        mark = f"[… {missing} bytes left out; {where} …]"
        return f"{head.decode('utf-8', 'replace')}\n{mark}\n{tail.decode('utf-8', 'replace')}"

    def _parts(self) -> tuple[bytes, bytes]:
        head, tail = bytes(self._head), bytes(self._tail[-self._tail_limit :])
        if not self.cut:
            return head, tail
        # A cut inside a character must not invent one: its pieces go to what is left out.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(head)
        begun = len(decoder.getstate()[0])
        edge = next((at for at, byte in enumerate(tail[:_MAX_CHARACTER_BYTES]) if byte not in _CONTINUATION), 0)
        return head[: len(head) - begun], tail[edge:]


_CONTINUATION = range(0x80, 0xC0)
_MAX_CHARACTER_BYTES = 4
"""Bytes of the longest UTF-8 character: continuation bytes beyond that are no piece of one, and are shown."""


def command_argv(given: dict[str, Any]) -> tuple[str, ...]:
    """What the exec tool runs: the argv as it is, or the line through bash."""
    return tuple(given["argv"]) if "argv" in given else (*SHELL, given["command"])


def execute(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """workspace.exec: run what the caller gives."""
    return run_command(
        command_argv(given),
        context,
        cwd=given.get("cwd", "."),
        stdin=given.get("stdin", "").encode(),
        timeout_s=given.get("timeout_s"),
    )


def run_command(
    argv: tuple[str, ...], context: ToolContext, *, cwd: str = ".", stdin: bytes = b"", timeout_s: float | None = None
) -> ToolResult:
    """Run it to the end; a failing command is a result with `is_error`, as the model expects.

    `timeout_s`: seconds that the caller grants; the call's own limit holds all the same.
    """
    excerpts = {name: Excerpt(context.profile.show_output_bytes) for name in ("stdout", "stderr")}

    def show(chunk: Chunk) -> None:
        excerpts[chunk.stream].add(chunk.data, chunk.offset)
        context.on_output(chunk)

    result = context.run_streaming(argv, show, cwd=cwd, stdin=stdin, timeout_s=timeout_s)
    if result.kind is ExitKind.FILES_CHANGED:
        return files_changed_result(result.error)
    excerpts["stdout"].end(result.stdout.bytes)
    excerpts["stderr"].end(result.stderr.bytes)
    fit_page(excerpts["stdout"], excerpts["stderr"])
    stdout, stderr = (each.binary_note or each.text() for each in excerpts.values())
    ending = _exit_note(result, context)
    structured = {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "outcome": result.kind.value,
        "stdout": stdout,
        "stderr": stderr,
        "stdout_bytes": result.stdout.bytes,
        "stderr_bytes": result.stderr.bytes,
        "truncated": any(each.cut or each.binary_note for each in excerpts.values()),
        "duration_ms": round(result.duration_s * 1000),
    }
    failed = result.kind is not ExitKind.EXITED or result.exit_code != 0
    parts = [stdout, f"[stderr]\n{stderr}" if stderr else "", ending]
    return ToolResult(
        text="\n".join(part.rstrip("\n") for part in parts if part) or "(no output)",
        structured=structured,
        is_error=failed,
        code=None if result.kind is ExitKind.EXITED else result.kind.upper(),
        stdout=_truncation(result.stdout, excerpts["stdout"]),
        stderr=_truncation(result.stderr, excerpts["stderr"]),
    )


def fit_page(*excerpts: Excerpt) -> None:
    """Let excerpts share a result's page: one that needs less than its part leaves the rest to the others."""
    room = room_beside()
    for left, excerpt in zip(
        range(len(excerpts), 0, -1), sorted(excerpts, key=lambda each: size_in_page(each.text())), strict=True
    ):
        excerpt.fit(room // left)
        room -= size_in_page(excerpt.text())


def _exit_note(result: ExecResult, context: ToolContext) -> str:
    match result.kind:
        case ExitKind.EXITED:
            note = f"exit code {result.exit_code}" if result.exit_code else ""
            return f"[{note}{_bus_error_cause((result.exit_code or 0) - _SHELL_SIGNALS, context)}]" if note else ""
        case ExitKind.SIGNALED:
            return f"[ended by {signal_text(result.signal)}{_bus_error_cause(result.signal, context)}]"
        case ExitKind.TIMED_OUT:
            return f"[timed out after {result.duration_s:.1f} s; the whole process tree was ended]"
        case ExitKind.OOM_KILLED | ExitKind.DISK_FULL:
            return _limit_exceeded_text(result.kind, context)
        case ExitKind.CANCELLED:
            return "[cancelled; the whole process tree was ended]"
        case ExitKind.SPAWN_FAILED | ExitKind.FILES_CHANGED:
            return f"[could not start: {result.error}]"


def signal_text(number: int | None) -> str:
    """Name a signal: `signal 11 (SIGSEGV)`."""
    try:
        return f"signal {number} ({signal.Signals(number or 0).name})"
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _bus_error_cause(number: int | None, context: ToolContext) -> str:
    if number != signal.SIGBUS:
        return ""
    size = context.profile.shm_bytes // (1024 * 1024)
    return f"; a bus error, as when /dev/shm is full: it holds {size} MiB, `shm_bytes` of the session's profile"


def _limit_exceeded_text(kind: ExitKind, context: ToolContext) -> str:
    mib = 1024 * 1024
    if kind is ExitKind.OOM_KILLED:
        return f"[killed: out of memory, the sandbox's limit is {context.profile.memory_bytes // mib} MiB]"
    size, files = context.profile.workspace_bytes // mib, context.profile.workspace_inodes
    return f"[killed: the workspace is full, it may hold {size} MiB and {files} files; delete some to go on]"


def _truncation(count: OutputCount, excerpt: Excerpt) -> Truncation:
    shown = 0 if excerpt.binary_note else excerpt.shown
    return Truncation(bytes=count.bytes, shown=shown, dropped=count.dropped, gap=count.gap)
