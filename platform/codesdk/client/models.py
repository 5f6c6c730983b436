"""What the API returns, as far as applications need it. Unknown fields are ignored, so a newer server still fits."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from codesdk.client.errors import CallFailed

CALL_DENIED = "denied"
CALL_COMPLETED = "completed"


class ApiModel(BaseModel):
    """Base of the models: immutable, tolerant of fields that this version doesn't know."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class SessionInfo(ApiModel):
    """A session's record."""

    id: str
    state: str
    """`open` or `closed`."""
    runtime: str = ""
    permission_mode: str = "auto"
    labels: dict[str, str] = {}
    image: str = ""
    parallel_calls: int = 0
    """Maximum number of calls that run at once."""
    last_seq: int = 0
    """`seq` of the newest event."""
    created_at: float = 0.0
    """Seconds since the epoch."""
    closed_at: float | None = None
    closed_reason: str | None = None
    opened_from: str | None = None
    """The session whose last snapshot the workspace started from."""
    snapshot_artifact: str | None = None
    """Id of the artifact with the last snapshot."""


class OpenedSession(ApiModel):
    """A new session, and what an agent needs to connect to it."""

    session: SessionInfo
    token: str
    """Valid for this session's MCP endpoint only. Can't be read again."""
    mcp_url: str


class WaitsFor(ApiModel):
    """What a waiting call needs."""

    who: str
    """The required approvers, in words."""
    rules: tuple[str, ...] = ()
    """Ids of the rules that ask."""
    reason: str = ""
    expires_at: float = 0.0
    """Seconds since the epoch."""


class ToolResult(ApiModel):
    """A tool's result, or the reason of a denial."""

    text: str
    """As a model reads it."""
    structured: dict[str, Any] | None = None
    is_error: bool = False
    code: str | None = None
    """Stable reason of an error or a denial."""
    artifacts: tuple[str, ...] = ()
    """Ids of artifacts with the complete content that the result shows only in part."""


class Call(ApiModel):
    """A tool call: its state and, once it has ended, its result."""

    tool_call_id: str
    attempt: int = 1
    tool: str
    input_hash: str = ""
    state: str
    approval_id: str | None = None
    waits_for: WaitsFor | None = None
    result: ToolResult | None = None

    @property
    def ended(self) -> bool:
        """Whether it was denied, or ran to its end."""
        return self.state in (CALL_COMPLETED, CALL_DENIED)

    @property
    def denied(self) -> bool:
        """Whether it was denied: it never ran."""
        return self.state == CALL_DENIED

    @property
    def ok(self) -> bool:
        """Whether it ran and succeeded; for a command: it exited with 0."""
        return self.state == CALL_COMPLETED and self.result is not None and not self.result.is_error

    @property
    def text(self) -> str:
        """The result as a model reads it; the reason, if the call was denied. Empty before it ended."""
        return self.result.text if self.result is not None else ""

    @property
    def code(self) -> str | None:
        """Stable reason of a denial or an error."""
        return self.result.code if self.result is not None else None

    @property
    def exit_code(self) -> int | None:
        """A command's exit code. None if it has none: it was denied, killed by a signal, or is no command."""
        code = self._field("exit_code")
        return int(code) if code is not None else None

    @property
    def stdout(self) -> str:
        """A command's standard output, as far as the result shows it; `artifacts` has the whole."""
        return str(self._field("stdout") or "")

    @property
    def stderr(self) -> str:
        """A command's standard error, likewise."""
        return str(self._field("stderr") or "")

    @property
    def truncated(self) -> bool:
        """Whether the result shows only a part of the output."""
        return bool(self._field("truncated"))

    @property
    def artifacts(self) -> tuple[str, ...]:
        """Ids of artifacts with the complete output."""
        return self.result.artifacts if self.result is not None else ()

    def check(self) -> Call:
        """Return this call if it succeeded.

        Raises:
            CallFailed: it was denied, or ended with an error.
        """
        if self.ok:
            return self
        raise CallFailed(
            self.text or "The call has not ended.", code=self.code or "CALL_FAILED", call_id=self.tool_call_id
        )

    def _field(self, name: str) -> Any:
        structured = self.result.structured if self.result is not None else None
        return structured.get(name) if structured else None


class Event(ApiModel):
    """One entry of a session's log. `docs/reference/events.md` lists the types and their payloads."""

    seq: int
    """Dense and increasing within the session."""
    time: str
    """RFC 3339, UTC."""
    type: str
    payload: dict[str, Any] = {}
    trace: dict[str, Any] = {}


class Approval(ApiModel):
    """A request for approval, bound by `digest` to exactly what would run."""

    id: str
    tool_call_id: str
    session_id: str
    state: str
    digest: str
    shown: dict[str, Any] = {}
    """What the approver decides on: tool, input, rule, reason, requester."""
    created_at: float = 0.0
    expires_at: float = 0.0
    """Seconds since the epoch."""
    comment: str | None = None
    rules: tuple[str, ...] = ()

    @property
    def pending(self) -> bool:
        """Whether it can still be answered."""
        return self.state == "pending"


class FileEntry(ApiModel):
    """An entry of a directory."""

    path: str
    """In the workspace, in the spelling that other requests take."""
    kind: str
    """`file`, `directory`, `symlink` or `other`."""
    size: int = 0
    """Bytes."""


class FileStatus(FileEntry):
    """What a path is. A symbolic link is described as itself."""

    mode: str = ""
    modified: str = ""
    """RFC 3339, UTC."""


class WrittenFile(ApiModel):
    """A file that was written."""

    path: str
    bytes: int
    created: bool = False
    sha256: str = ""
    """Its ETag, for a later write with `if_match`."""


class Artifact(ApiModel):
    """A stored file, found by its id."""

    id: str
    session_id: str | None = None
    content_hash: str
    """`sha256:<hex>`."""
    size: int = Field(ge=0)
    """Bytes."""
    content_type: str = "application/octet-stream"
    name: str = ""
    created_at: float = 0.0


class Tool(ApiModel):
    """A tool that sessions can call."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}
