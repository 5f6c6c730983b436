"""What the database knows of a call and of its session."""

from __future__ import annotations

from typing import Any, NamedTuple

from codesdk.domain.calls import CallIdentity, CallState, DenialCode, ToolCall
from codesdk.domain.decisions import Classification, Evaluation, Obligations
from codesdk.domain.execution import SandboxSummary
from codesdk.domain.ids import ApprovalId, GrantId, HostId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.domain.subjects import Subject
from codesdk.domain.tool_results import ToolResult
from codesdk.registry import Tool
from codesdk.sandbox.port import FileFingerprint
from codesdk.toolcalls.previews.preview import Preview
from codesdk.toolcalls.run.effective_limits import EffectiveLimits


class SessionFacts(FrozenModel):
    """The part of a session that decides about its calls."""

    subject: Subject
    host_id: HostId
    image: str
    profile: dict[str, Any]
    open: bool
    batch: bool = False
    """Its calls let those of the tenant's interactive sessions go first."""
    log_bytes: int = 0
    """Bytes of its log and its calls."""


class CallRecord(FrozenModel):
    """A row of `tool_calls`."""

    call: ToolCall
    tenant_id: TenantId
    host_id: HostId
    subject: Subject
    schema_hash: str
    serial: bool
    state: CallState
    digest: str | None
    sources: tuple[Evaluation, ...]
    cancel_requested: bool
    image: str
    profile: dict[str, Any]
    session_open: bool
    log_bytes: int = 0
    """Of its session."""
    grant_id: GrantId | None = None
    """What turned policy's ask into an allow, where something did."""
    obligations: Obligations
    """What policy demanded when it was claimed; nothing before."""
    barred: bool
    """The tenant is suspended, or the principal disabled: nothing of theirs starts."""
    result: ToolResult | None
    generation: int | None = None
    """The fencing number of the worker that has it, from its claim on."""
    behaviour_hash: str | None = None
    """Of its tool as the claim saw it; None before, and where an older version claimed it."""
    classification: Classification | None = None
    """Of its tool, as above."""
    life: int | None = None
    """How many runners of its sandbox were lost before it was claimed; None as above."""
    preparing: ApprovalId | None = None
    """The approval that will be asked for when a worker has looked at the files that the call names."""
    bound: tuple[FileFingerprint, ...] = ()
    """The files that its approval binds, as they were when it was asked for."""
    preview_tries: int | None = None
    """How often a preview of it was begun; None where none is wanted."""
    preview: Preview | None = None
    """What came of trying it, where people were shown that."""
    requested_at: float = 0.0
    """Seconds since the epoch, on the database's clock."""

    @property
    def identity(self) -> CallIdentity:
        """Id, attempt and input hash."""
        return self.call.identity

    @property
    def session_facts(self) -> SessionFacts:
        """Its session, as the row has it."""
        return SessionFacts(
            subject=self.subject,
            host_id=self.host_id,
            image=self.image,
            profile=self.profile,
            open=self.session_open,
            log_bytes=self.log_bytes,
        )

    def only_reads(self, tool: Tool | None) -> bool:
        """Whether it only read, by the manifest that it was claimed under. `tool`: as it is now; None where it is gone.

        Where an older version claimed it, it is not known unless the tool is still the same.
        """
        if self.classification is not None:
            return self.classification is Classification.READ_ONLY
        is_same = tool is not None and self.behaviour_hash == tool.behaviour_hash
        return tool is not None and is_same and tool.classification is Classification.READ_ONLY

    def blocked_by(self, tool: Tool) -> str:
        """What happened since its claim so that it is not to begin now, or not again; empty where nothing did.

        `tool`: as it is now.
        """
        if self.cancel_requested:
            return "it was cancelled"
        if not self.session_open:
            return "its session ended"
        if self.barred:
            return "its tenant was suspended, or who asked for it disabled"
        is_same = self.schema_hash == tool.schema_hash and self.behaviour_hash in (None, tool.behaviour_hash)
        return "" if is_same else "the manifest of its tool changed"


class EndedCall(FrozenModel):
    """The end of a call, as its row has it."""

    identity: CallIdentity
    state: CallState
    result: ToolResult


class CallDurations(NamedTuple):
    """How long an attempt was queued and ran, in seconds on the database's clock."""

    queued_s: float
    ran_s: float


class ClaimedCall(FrozenModel):
    """A call that this worker runs, once."""

    stored: CallRecord
    generation: int
    """The worker's fencing number, which must still be in the row when the call ends."""
    ran: bool = True
    """False where its sandbox could not even be opened."""
    is_indeterminate_outcome: bool = False
    """Its run ended for us in a way that says nothing of whether it took effect."""
    limits: EffectiveLimits | None = None
    """None: only its end is recorded, because its tool is gone or its session ended."""
    timeout_s: float
    sandbox: SandboxSummary
    environment: str
    behaviour_hash: str | None = None
    """Of the tool as it was when the call was claimed; None where a later worker takes the call up."""


class Denied(FrozenModel):
    """It will not run; `message` is what the agent reads."""

    identity: CallIdentity
    code: DenialCode
    message: str
    rules: tuple[str, ...] = ()
    retry_after_s: float | None = None
    """Seconds after which the same call may get through; only of one that came too soon."""


class Waiting(FrozenModel):
    """A person must decide."""

    identity: CallIdentity
    approval_id: str
    reason: str
    rules: tuple[str, ...] = ()
    """Ids of the rules that ask; none where the default or the session's mode does."""
    who: str = ""
    """Whose yes it takes, in words."""
    expires_at: float
    """Seconds since the epoch."""
    is_being_previewed: bool = False
    """Nobody is asked yet: it is tried in a copy of the workspace first."""


class Queued(FrozenModel):
    """Nothing stands against it; the session's host will run it."""

    identity: CallIdentity


class Finished(FrozenModel):
    """It ran."""

    identity: CallIdentity
    result: ToolResult


Outcome = Denied | Waiting | Queued | Finished
