"""The one tool of the host itself: it gives the answer of a call that was made before. It runs nothing."""

from __future__ import annotations

import mcp_types as types

from codesdk.domain.ids import IdKind, ToolCallId, is_id
from codesdk.mcphost.tool_calls.answers import COLLECT_TOOL

COLLECT_RESULT = types.Tool(
    name=COLLECT_TOOL,
    title="Collect a result",
    description=(
        "Gives the result of a tool call of this session that was answered with APPROVAL_PENDING, CALL_RUNNING or "
        "RESULT_READY. It waits a while if that call has not ended, and runs nothing itself."
    ),
    input_schema={
        "type": "object",
        "properties": {"call_id": {"type": "string", "description": "The call's id, as its answer named it."}},
        "required": ["call_id"],
        "additionalProperties": False,
    },
    annotations=types.ToolAnnotations(
        title="Collect a result",
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=False,
    ),
)


def call_id_argument(arguments: dict[str, object]) -> ToolCallId | None:
    """The id that was given; None where it is none."""
    given = arguments.get("call_id")
    return ToolCallId(given) if isinstance(given, str) and is_id(given, IdKind.CALL) else None
