"""Runs a call that people approved by its preview.

A file tool makes the change that was shown or none; of a command that comes out otherwise it is told.
"""

from __future__ import annotations

from dataclasses import replace

from codesdk.domain.tools import ToolResult
from codesdk.registry import Tool
from codesdk.sandbox.port import Chunk, FileError, FileRefused, Files, Manifest, OnOutput
from codesdk.toolcalls.builtins import Bench, files_changed, run_tool, runs_one_exec
from codesdk.toolcalls.builtins.withheld import STREAMS
from codesdk.toolcalls.effects import conditions, effects_of, state_hash
from codesdk.toolcalls.heard import Heard
from codesdk.toolcalls.preview import Preview, differences, ending_of
from codesdk.toolcalls.stored import StoredCall

_NOT_AS_SHOWN = "what this call would change is not as it was when it was tried in a copy of the workspace"


def run_as_previewed(tool: Tool, stored: StoredCall, preview: Preview, bench: Bench) -> ToolResult:
    """Run it and compare. Where an earlier worker has begun it, what was there before nobody knows.

    Raises:
        Fault: the sandbox failed.
    """
    before = _manifest(bench.files)
    if not runs_one_exec(tool):
        if before is None or state_hash(before, preview.concerned) != preview.before:
            return files_changed(_NOT_AS_SHOWN)
        bench = replace(bench, expected=conditions(before, preview.concerned))
    heard = Heard()
    result = run_tool(tool, stored.call.input, replace(bench, on_output=_both(heard.add, bench.on_output)))
    ended = preview.ending
    if result.code == FileError.CONFLICT and ended is not None and ended.code != FileError.CONFLICT:
        return files_changed(_NOT_AS_SHOWN)
    if result.code == "FILES_CHANGED":
        return result
    after = _manifest(bench.sandbox.files) if before is not None and not bench.taken_up else None
    effects = effects_of(before, after) if before is not None and after is not None else None
    runs = runs_one_exec(tool)
    now = ending_of(result, *(heard.mark(stream) if runs else None for stream in STREAMS))
    return _flagged(result, differences(preview, now, effects))


def _flagged(result: ToolResult, differs: tuple[str, ...]) -> ToolResult:
    if not differs:
        return result
    note = f"[not as in the preview that was approved: {'; '.join(differs)}]"
    return result.model_copy(update={"differs": differs, "text": f"{result.text}\n{note}"})


def _manifest(files: Files) -> Manifest | None:
    found = files.manifest()
    return None if isinstance(found, FileRefused) else found


def _both(one: OnOutput, other: OnOutput) -> OnOutput:
    def add(chunk: Chunk) -> None:
        one(chunk)
        other(chunk)

    return add
