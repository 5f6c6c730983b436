"""Runs a call that people approved by its preview.

A file tool makes the change that was shown or none; of a command that comes out otherwise it is told.
"""

from __future__ import annotations

from dataclasses import replace

from codesdk.domain.tool_results import ToolResult
from codesdk.registry import Tool
from codesdk.sandbox.port import Chunk, FileError, FileRefused, Files, Manifest, OnOutput
from codesdk.toolcalls.previews.effects import effects_of, state_hash, write_conditions
from codesdk.toolcalls.previews.output_digest import OutputDigest
from codesdk.toolcalls.previews.preview import Preview, differences, ending_of
from codesdk.toolcalls.records.call_record import CallRecord
from codesdk.tools import ToolContext, files_changed_result, run_tool, runs_one_exec
from codesdk.tools.redacted_output import STREAMS

_STATE_CHANGED = "what this call would change is not as it was when it was tried in a copy of the workspace"


def run_previewed(tool: Tool, stored: CallRecord, preview: Preview, context: ToolContext) -> ToolResult:
    """Run it and compare. Where an earlier worker has begun it, what was there before nobody knows.

    Raises:
        Fault: the sandbox failed.
    """
    before = _manifest(context.files)
    if not runs_one_exec(tool):
        if before is None or state_hash(before, preview.concerned) != preview.before:
            return files_changed_result(_STATE_CHANGED)
        context = replace(context, expected=write_conditions(before, preview.concerned))
    output = OutputDigest()
    result = run_tool(tool, stored.call.input, replace(context, on_output=_tee(output.add, context.on_output)))
    ended = preview.ending
    if result.code == FileError.CONFLICT and ended is not None and ended.code != FileError.CONFLICT:
        return files_changed_result(_STATE_CHANGED)
    if result.code == "FILES_CHANGED":
        return result
    after = _manifest(context.sandbox.files) if before is not None and not context.taken_up else None
    effects = effects_of(before, after) if before is not None and after is not None else None
    runs = runs_one_exec(tool)
    now = ending_of(result, *(output.digest(stream) if runs else None for stream in STREAMS))
    return _flag_differences(result, differences(preview, now, effects))


def _flag_differences(result: ToolResult, differs: tuple[str, ...]) -> ToolResult:
    if not differs:
        return result
    note = f"[not as in the preview that was approved: {'; '.join(differs)}]"
    return result.model_copy(update={"differs": differs, "text": f"{result.text}\n{note}"})


def _manifest(files: Files) -> Manifest | None:
    found = files.manifest()
    return None if isinstance(found, FileRefused) else found


def _tee(one: OnOutput, other: OnOutput) -> OnOutput:
    def add(chunk: Chunk) -> None:
        one(chunk)
        other(chunk)

    return add
