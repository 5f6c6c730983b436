"""What an agent gets back for a call: pure functions from outcomes and faults to MCP results.

Details for programs are in `_meta` under `codesdk/call`, never in `structuredContent`, which clients validate against the
tool's output schema.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import mcp_types as types

from codesdk.artifacts import StoredArtifact
from codesdk.domain.calls import CallIdentity
from codesdk.domain.clock import to_rfc3339
from codesdk.domain.ids import ToolCallId
from codesdk.domain.media import MAX_IMAGE_BYTES, read_image
from codesdk.errors import Fault
from codesdk.mcphost.session_resources.uris import artifact_link, artifact_title, artifact_uri, is_text_type
from codesdk.registry import Tool
from codesdk.toolcalls.pipeline import CallUncertain
from codesdk.toolcalls.records.call_record import Denied, Finished, Queued, Waiting

DETAILS_KEY = "codesdk/call"
COLLECT_TOOL = "collect_result"
"""Name of the tool that returns the result of an earlier call."""
READ_TOOL = "workspace_read"
"""The tool that reads files and artifacts. Without it in the registry, files can't be read as resources."""
MAX_IMAGES = 4
"""Images that one answer shows; it links to the rest."""
IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
RESULT_NAME = "-result.json"
"""End of the name of an artifact that repeats a large result for the log."""
Answer = types.CallToolResult | types.InputRequiredResult
_DOTTED = re.compile(r"(?<![\w.-])[a-z][a-z0-9-]*(?:\.[a-z][a-z0-9_-]*)+(?![\w-])")
_LINKS_SINCE = "2025-06-18"
"""The protocol version that introduced resource links."""


def finished(outcome: Finished, tool: Tool | None) -> types.CallToolResult:
    """The call ran; the tool reports whether it succeeded. `tool`: None when collecting an earlier call's result.

    A failed command has a structured result, too: its exit code and output.
    """
    result = outcome.result
    details = {
        "status": "failed" if result.is_error else "completed",
        "code": result.code,
        "artifacts": list(result.artifacts) or None,
        "differs_from_preview": list(result.differs) or None,
        "stdout": result.stdout.model_dump() if result.stdout else None,
        "stderr": result.stderr.model_dump() if result.stderr else None,
    }
    answer = _result(result.text, details, outcome.identity, is_error=result.is_error)
    # Some clients validate failed results too, and none that is checked here has to: a schema may describe success only.
    if result.structured is not None and (
        not result.is_error or tool is None or tool.matches_output(result.structured)
    ):
        answer.structured_content = result.structured
    return answer


def denied(outcome: Denied, *, is_named: bool = False) -> types.CallToolResult:
    """The call was denied, and why.

    `is_named`: the client gave the call a binding id. The denial is final for that id, so a retry needs a new one.
    """
    rules = f" Decided by: {', '.join(outcome.rules)}." if outcome.rules else ""
    retry_hint = " To try again, send it under a new id." if is_named and outcome.retry_after_s is not None else ""
    text = f"This call was not run. {outcome.message}{rules}{retry_hint} [{outcome.code.value}]"
    details = {
        "status": "denied",
        "code": outcome.code.value,
        "reason": outcome.message,
        "rules": list(outcome.rules),
        "retryable": outcome.retry_after_s is not None,
        "retry_after_s": outcome.retry_after_s,
    }
    return _result(text, details, outcome.identity, is_error=True)


def waiting(outcome: Waiting, rules: tuple[str, ...], who: str, page: str | None = None) -> types.CallToolResult:
    """The call waits for approval; sending the same call again keeps waiting for the same approval.

    `who`: the approvers. `page`: a read-only link to the approval, since the agent reads it too.
    """
    until = to_rfc3339(datetime.fromtimestamp(outcome.expires_at, UTC))
    asked_by = f" Asked by: {', '.join(rules)}." if rules else ""
    page_hint = f"Your user can see it at {page} and answer there with an API key of their own. " if page else ""
    text = (
        f"This call has not run yet: {who} must approve it first. {outcome.reason}{asked_by} "
        f"The approval {outcome.approval_id} stays open until {until}. {page_hint}"
        "Call the same tool again with the same arguments to keep waiting. "
        f"Once approved it runs by itself. {_collect_hint(outcome.identity.tool_call_id)} [APPROVAL_PENDING]"
    )
    details = {
        "status": "waiting",
        "code": "APPROVAL_PENDING",
        "reason": outcome.reason,
        "rules": list(rules),
        "approval_id": outcome.approval_id,
        "approvers": who,
        "approval_page": page,
        "expires_at": until,
    }
    return _pending(text, details, outcome.identity)


def running(outcome: Queued) -> types.CallToolResult:
    """The call takes longer than this client can wait; it continues."""
    text = (
        "This call was taken and has not ended yet; it goes on. "
        f"{_collect_hint(outcome.identity.tool_call_id)} The same call again waits for the same run. [CALL_RUNNING]"
    )
    return _pending(text, {"status": "running", "code": "CALL_RUNNING"}, outcome.identity)


def ready(outcome: Finished) -> types.CallToolResult:
    """The call that this one repeats has ended while nobody waited. Running it again would be a second run."""
    text = (
        "This call was not run again: the same one, whose answer you do not have, has ended meanwhile. "
        f"{_collect_hint(outcome.identity.tool_call_id)} To run it again, call the tool once more. [RESULT_READY]"
    )
    return _pending(text, {"status": "ready", "code": "RESULT_READY"}, outcome.identity)


def unknown_call(call: str) -> types.CallToolResult:
    """The session has no call with that id."""
    text = f"There is no call {call[:64]} in this session. Nothing was run. [CALL_UNKNOWN]"
    return _result(text, {"status": "refused", "code": "CALL_UNKNOWN", "retryable": False}, None, is_error=True)


def indeterminate(fault: CallUncertain) -> types.CallToolResult:
    """The database connection broke during the commit. Sending the same call again finds it, if it was recorded."""
    call = fault.identity.tool_call_id
    text = (
        f"It is not known whether this call was taken: {fault} Call the same tool again with the same arguments: where "
        f"it was taken, that does not run it a second time. Its record would be call {call}. [{fault.code}]"
    )
    details = {"status": "unknown", "code": fault.code, "reason": fault.message, "advice": fault.advice() or None}
    return _pending(text, details, fault.identity)


def unreadable(call: ToolCallId, fault: Fault) -> types.CallToolResult:
    """The call was recorded, but the database is down: its outcome can't be read now."""
    text = (
        f"This call was taken, and what became of it cannot be read now: {fault} {_collect_hint(call)} "
        "The same call again is not run a second time. [RESULT_UNREADABLE]"
    )
    details = {
        "status": "unknown",
        "code": "RESULT_UNREADABLE",
        "reason": fault.message,
        "advice": fault.advice() or None,
        "retryable": True,
        "collect": _collect_call(call),
        "tool_call_id": call,
    }
    return _result(text, details, None, is_error=True)


def unfinished(outcome: Queued, seconds: float) -> types.CallToolResult:
    """The call exceeded its time limit, and the cancel that followed wasn't confirmed either."""
    text = (
        f"This call has not ended within {seconds:.0f} s, and it was cancelled. Whether it had effects is not known "
        f"here; its record is call {outcome.identity.tool_call_id}. Look before you repeat it. [NO_RESULT]"
    )
    details = {"status": "unknown", "code": "NO_RESULT", "retryable": False}
    return _result(text, details, outcome.identity, is_error=True)


def interrupted(call: ToolCallId, *, asked: bool) -> types.CallToolResult:
    """The host stops while the call is in progress; `asked`: it waits for an approval."""
    then = (
        "It still waits for a person: call the same tool again with the same arguments to keep waiting."
        if asked
        else "It goes on without the host, and may have effects: don't repeat it. Once the host answers again,"
        f" c{_collect_hint(call)[1:]}"
    )
    text = f"The MCP host stops before this call has ended. {then} Its record is call {call}. [HOST_STOPPING]"
    details = {"status": "interrupted", "code": "HOST_STOPPING", "retryable": asked, "tool_call_id": call}
    return _result(text, details, None, is_error=True)


def refused(fault: Fault) -> types.CallToolResult:
    """The call was not submitted: invalid input that the model can correct, or a component that is down."""
    again = " The same call may succeed later." if fault.retryable else ""
    details = {
        "status": "refused",
        "code": fault.code,
        "reason": fault.message,
        "advice": fault.advice() or None,
        "retryable": fault.retryable,
        "details": fault.details or None,
    }
    return _result(f"This call was not run. {fault}{again} [{fault.code}]", details, None, is_error=True)


def with_wire_names(answer: Answer, names: Mapping[str, str]) -> Answer:
    """The answer of a call that didn't run, with the names of tools that the client knows. A result is left as it is."""
    if not isinstance(answer, types.CallToolResult):
        return answer
    if (answer.meta or {}).get(DETAILS_KEY, {}).get("status") in ("completed", "failed"):
        return answer
    content = [
        types.TextContent(text=to_wire_names(part.text, names)) if isinstance(part, types.TextContent) else part
        for part in answer.content
    ]
    return answer.model_copy(update={"content": content})


def for_model(answer: Answer, *, keeps_structure: bool) -> Answer:
    """The answer as a model should read it: some agents show it everything, also `_meta`."""
    if not isinstance(answer, types.CallToolResult):
        return answer
    structure = answer.structured_content if keeps_structure else None
    return answer.model_copy(update={"meta": None, "structured_content": structure})


def to_wire_names(text: str, names: Mapping[str, str]) -> str:
    """The text with each name of a tool as clients know it."""
    return _DOTTED.sub(lambda found: names.get(found[0], found[0]), text)


def named_artifacts(answer: Answer) -> tuple[str, ...]:
    """The ids of the artifacts that an answer names."""
    if not isinstance(answer, types.CallToolResult):
        return ()
    return tuple((answer.meta or {}).get(DETAILS_KEY, {}).get("artifacts") or ())


class ShownArtifact(NamedTuple):
    """An artifact that an answer names."""

    artifact: StoredArtifact
    image: bytes | None = None
    """Of an image that the answer shows, its bytes."""


def may_show(artifact: StoredArtifact) -> bool:
    """Whether an answer may show an artifact as an image, if its header agrees."""
    return artifact.content_type in IMAGE_TYPES and 0 < artifact.size <= MAX_IMAGE_BYTES


def is_image(content: bytes, content_type: str) -> bool:
    """Whether bytes are an image of that type and of dimensions that clients take."""
    image = read_image(content)
    return image is not None and image.mime_type == content_type and image.fits


def add_artifacts(answer: Answer, named: Sequence[ShownArtifact], protocol: str) -> Answer:
    """The answer with its images, with how to read its other artifacts, and with links where the client has links."""
    artifacts = [each.artifact for each in named if each.image is None]
    if not isinstance(answer, types.CallToolResult) or not named:
        return answer
    content = list(answer.content)
    hints = [_read_hint(each) for each in artifacts if not each.name.endswith(RESULT_NAME)]
    if hints and isinstance(content[0], types.TextContent):
        content[0] = types.TextContent(text="\n".join((content[0].text, *hints)))
    images = [
        types.ImageContent(data=base64.b64encode(each.image).decode(), mime_type=each.artifact.content_type)
        for each in named
        if each.image is not None
    ]
    links = [artifact_link(each.artifact) for each in named] if protocol >= _LINKS_SINCE else []
    return answer.model_copy(update={"content": [*content, *images, *links]})


def _read_hint(artifact: StoredArtifact) -> str:
    about = f"{artifact_title(artifact)}, {artifact.content_type}, {artifact.size} bytes"
    if not is_text_type(artifact.content_type):
        return f"[{about}: {artifact_uri(artifact.id)}]"
    return f'[{about}: {READ_TOOL} {{"path": "{artifact_uri(artifact.id)}"}}]'


def _collect_hint(call: ToolCallId) -> str:
    return f"Collect its result with {COLLECT_TOOL} and call_id {call}."


def _collect_call(call: ToolCallId) -> dict[str, Any]:
    return {"tool": COLLECT_TOOL, "arguments": {"call_id": call}}


def _pending(text: str, details: dict[str, Any], identity: CallIdentity) -> types.CallToolResult:
    """No result yet, and how to collect it."""
    pending_details = {**details, "retryable": True, "collect": _collect_call(identity.tool_call_id)}
    return _result(text, pending_details, identity, is_error=True)


def _result(
    text: str, details: dict[str, Any], identity: CallIdentity | None, *, is_error: bool
) -> types.CallToolResult:
    shown = {name: value for name, value in details.items() if value is not None}
    if identity is not None:
        shown |= {"tool_call_id": identity.tool_call_id, "attempt": identity.attempt}
    content: list[types.ContentBlock] = [types.TextContent(text=text)]
    return types.CallToolResult(content=content, is_error=is_error, _meta={DETAILS_KEY: shown})
