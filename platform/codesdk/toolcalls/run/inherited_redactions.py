"""What policy demanded of the call that started a process holds for what later calls read of it."""

from __future__ import annotations

from typing import Any

from codesdk.domain.decisions import Obligations, Redaction
from codesdk.domain.ids import ToolCallId
from codesdk.registry import Builtin, Tool
from codesdk.storage.database import Database
from codesdk.toolcalls.records import store
from codesdk.tools.processes import call_id_of_process

_OUTPUT_POINTER = "/text"
"""Where process.read has the output."""


def inherited_redactions(tool: Tool, given: dict[str, Any], database: Database) -> Obligations:
    """The redactions that come with a process which this call reads; none for other calls."""
    if not isinstance(tool.runs, Builtin) or tool.runs.builtin != "process.read":
        return Obligations()
    with database.read() as connection:
        started = store.find(connection, ToolCallId(call_id_of_process(str(given["process"]))))
    if started is None:
        return Obligations()
    # A pointer means a place in the start's own result: what it hides may be anywhere in the output.
    return Obligations(
        redactions=tuple(
            item if item.pointer is None else Redaction(pointer=_OUTPUT_POINTER)
            for item in started.obligations.redactions
        )
    )
