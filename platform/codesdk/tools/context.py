"""What a built-in tool works with."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from codesdk.domain.calls import CallIdentity
from codesdk.domain.decisions import SandboxBounds
from codesdk.domain.redaction import Redactor
from codesdk.domain.tool_results import ToolResult
from codesdk.sandbox.port import (
    ExecRequest,
    ExecResult,
    FileError,
    FileFingerprint,
    FileInfo,
    FileRefused,
    Files,
    FileWrite,
    FingerprintKind,
    OnOutput,
    ProcessLimits,
    Sandbox,
)
from codesdk.sandbox.profiles.profile import Profile
from codesdk.tools.redacted_output import RedactingBuffer

DEFAULT_PROCESS_LIFETIME_S = 24 * 3600.0
"""Of a background process where neither profile nor policy says less."""


class Attachment(NamedTuple):
    """Something that a tool made and that is kept as an artifact of its call."""

    name: str
    content_type: str
    content: bytes


class StoredOutput(NamedTuple):
    """An artifact of the session, as a tool reads it."""

    name: str
    content_type: str
    size: int
    read: Callable[[int, int], bytes]
    """Up to so many bytes from an offset on."""


KeepStream = Callable[[Attachment, Callable[[Callable[[bytes], object]], FileRefused | None]], FileRefused | None]
"""Keeps an artifact whose content the function writes piece by piece; nothing if that is refused."""


def _keep_nothing(_about: Attachment, _fill: object) -> FileRefused | None:
    """For a call whose artifacts are not kept."""
    return FileRefused(error=FileError.TOO_LARGE, path=_about.name, message="there is no place to keep it")


def _discard(_attachment: Attachment) -> None:
    """For a call whose artifacts are not kept."""


def _never(_given: dict[str, Any]) -> bool:
    """For a call whose tool may do nothing but what was decided."""
    return False


def _nothing(_path: str) -> bool:
    """For a call without policy."""
    return False


def _no_outputs(_artifact: str) -> None:
    """For a call that reads no artifacts."""


class Transfers(NamedTuple):
    """What a call that moves bytes or trees is given. A dry run is given the same."""

    find_upload: Callable[[str], StoredOutput | None]
    """The bytes of that hash that the call's session has as an artifact; None if it has none."""
    covers: Callable[[dict[str, Any]], bool]
    """Whether what let this call run lets it run with another input, too: the same rules, and the same obligations."""


NO_TRANSFERS = Transfers(_no_outputs, _never)
"""For a call that nothing was uploaded for, and that has no policy."""


@dataclass(frozen=True)
class ToolContext:
    """One call's place of work."""

    sandbox: Sandbox
    profile: Profile
    """The session's, with what policy demands of this call on top."""
    identity: CallIdentity
    timeout_s: float
    """Wall time that is left for this call, seconds."""
    on_output: OnOutput
    """Where a command's output goes as it comes."""
    process_lifetime_s: float = DEFAULT_PROCESS_LIFETIME_S
    """How long what it starts in the background may live, seconds."""
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    """What policy lowers for this call's processes."""
    attach: Callable[[Attachment], None] = _discard
    """Keeps something as an artifact of the call, when it ends."""
    keep_stream: KeepStream = _keep_nothing
    """Likewise, of any size, in bounded memory."""
    transfers: Transfers = NO_TRANSFERS
    """For a call that moves bytes or trees."""
    find_output: Callable[[str], StoredOutput | None] = _no_outputs
    """An artifact of the call's session by its id; None if the session has no such artifact."""
    allows: Callable[[dict[str, Any]], bool] = _never
    """Whether policy lets this tool run with another input, without asking anybody."""
    denies_read: Callable[[str], bool] = _nothing
    """Whether policy denies to read a file by that path."""
    expected: Mapping[str, str] = field(default_factory=dict)
    """What files must hold for a write to land, by path: those that a preview changed, as they were then."""
    taken_up: bool = False
    """An earlier worker may have begun this call."""
    bound: tuple[FileFingerprint, ...] = ()
    """Files that a person was shown: the call runs with these or not at all."""
    redactor: Redactor | None = None
    """Takes out what policy says nobody is to see. A tool that cuts what it read has it cleaned before."""

    @property
    def files(self) -> Files:
        """The workspace, for what comes before this call has changed anything, and for that change itself.

        A cancel ends the call there as one that did nothing. What is looked at afterwards is asked of the sandbox, and so
        is all of a call that an earlier worker may have begun: only its runner knows what became of it.
        """
        if self.taken_up:
            return self.sandbox.files
        return self.sandbox.files_of(self.identity.tool_call_id, self.identity.attempt)

    def run(self, argv: tuple[str, ...], on_output: OnOutput | None = None, **more: Any) -> ExecResult:
        """Run a command as this call's one exec."""
        request = ExecRequest(
            call=self.identity.tool_call_id,
            attempt=self.identity.attempt,
            taken_up=self.taken_up,
            argv=argv,
            timeout_s=min(more.pop("timeout_s", None) or self.timeout_s, self.timeout_s),
            keep_bytes=self.profile.keep_output_bytes,
            # Nothing, unless the session's profile names hosts; a tool that needs none says so.
            egress=more.pop("egress", self.profile.egress),
            limits=self.limits,
            bound=self.bound,
            **more,
        )
        return self.sandbox.exec(request, on_output or self.on_output)

    def run_streaming(self, argv: tuple[str, ...], on_output: OnOutput, **more: Any) -> ExecResult:
        """Run a command whose output goes out as it is: as it comes, or clean at its end where policy redacts."""
        if self.redactor is None:
            return self.run(argv, on_output, **more)
        buffer = RedactingBuffer()
        return buffer.release(self.run(argv, buffer.add, **more), self.redactor, on_output)

    def clean(self, text: str, *, is_cut: bool = False) -> str:
        """A text without what policy redacts; `is_cut` where it goes on elsewhere."""
        return text if self.redactor is None else self.redactor.clean_text(text, is_cut=is_cut)

    def write(self, writes: tuple[FileWrite, ...]) -> tuple[FileInfo, ...] | FileRefused:
        """Write files, none of them larger than this call may make one."""
        for item in writes:
            refused = self._refuse_write(item.path, len(item.content or b""), item.if_sha256)
            if refused is not None:
                return refused
        return self.files.write(tuple(self.require_previewed_content(item) for item in writes))

    def upload(self, path: str, size: int, pieces: Iterable[bytes], if_sha256: str | None) -> FileInfo | FileRefused:
        """Write one file of that many bytes, under the same rules as `write`."""
        refused = self._refuse_write(path, size, if_sha256)
        if refused is not None:
            return refused
        wanted = if_sha256 or self.expected.get(posixpath.normpath(path))
        return self.files.upload(path, pieces, if_sha256=wanted)

    def _refuse_write(self, path: str, size: int, if_sha256: str | None) -> FileRefused | None:
        most = self.profile.file_bytes
        if most and size > most:
            text = f"{path} would have {size} bytes; this call may write {most} to a file."
            return FileRefused(path=path, error=FileError.TOO_LARGE, message=text)
        shown = self._shown_content(path)
        if if_sha256 and shown and shown != if_sha256:
            text = f"{path} has changed since approval of this call was requested."
            return FileRefused(path=path, error=FileError.CONFLICT, message=text)
        return None

    def require_previewed_content(self, item: FileWrite) -> FileWrite:
        """The write, which lands only on what a preview of the call has changed."""
        wanted = self.expected.get(posixpath.normpath(item.path))
        return item if item.if_sha256 or wanted is None else item.model_copy(update={"if_sha256": wanted})

    def _shown_content(self, path: str) -> str | None:
        """What a person was shown that a file holds, as `if_sha256` of a write; None if they were shown nothing of it."""
        clean = posixpath.normpath(path)
        if clean in self.expected:
            return self.expected[clean]
        for mark in self.bound:
            if posixpath.normpath(posixpath.join(mark.cwd, mark.path)) == clean:
                return "absent" if mark.kind is FingerprintKind.ABSENT else mark.sha256
        return None


def process_limits(bounds: SandboxBounds) -> ProcessLimits:
    """The part of policy's bounds that holds for each process."""
    return ProcessLimits(**bounds.model_dump(include=set(ProcessLimits.model_fields)))


Builtin = Callable[[dict[str, Any], ToolContext], ToolResult]


def files_changed_result(what: str) -> ToolResult:
    """Nothing ran: the files that a person approved have changed."""
    text = (
        f"Nothing was run: {what}, since approval of this call was requested. The approval is void; call again to request"
        " a new one."
    )
    return ToolResult(text=text, is_error=True, code="FILES_CHANGED")


def file_error_result(refusal: FileRefused) -> ToolResult:
    """A file operation's "no" as a tool error that says what to do."""
    named = refusal.message if refusal.path in refusal.message else f"{refusal.path}: {refusal.message}"
    return ToolResult(text=named, is_error=True, code=refusal.error.value)
