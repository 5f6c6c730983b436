"""A call tried in a copy of its workspace: no network, no secrets, a short time; and what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import Obligations, combine_obligations
from codesdk.domain.redaction import Redactor
from codesdk.domain.tool_results import ToolResult
from codesdk.registry import Tool
from codesdk.sandbox.egress.rules import DENY_ALL
from codesdk.sandbox.port import FileContent, FileKind, FileRefused, Manifest, Sandbox
from codesdk.sandbox.profiles.profile import Profile
from codesdk.toolcalls.approval.bound_files import named_files
from codesdk.toolcalls.previews.change_summary import TEXT_BYTES, change_summary, files_to_diff
from codesdk.toolcalls.previews.effects import FileEffect, affected_paths, effects_hash, effects_of, state_hash
from codesdk.toolcalls.previews.output_digest import OutputDigest
from codesdk.toolcalls.previews.preview import (
    Preview,
    PreviewResult,
    effect_hashes,
    ending_of,
    failed_preview,
    obligations_hash,
)
from codesdk.toolcalls.records.call_record import CallRecord
from codesdk.tools import NO_TRANSFERS, ToolContext, Transfers, process_limits, run_tool, runs_one_exec
from codesdk.tools.redacted_output import STREAMS

TIMEOUT_S = 30.0
"""Wall time of a trial: a person waits for it, and a copy takes a place of its host."""
MAX_EFFECTS = 200
"""Changes that are kept one by one, to name those that differ; of more only their hash is."""
ANSWER_CHARACTERS = 4000
"""Of what a file tool answered."""

Contents = Callable[[Iterable[str]], Mapping[str, bytes]]
"""Files as they were when the copy was made, up to `TEXT_BYTES` each; what cannot be read is left out."""


def dry_run_profile(stored: CallRecord) -> Profile:
    """The copy's: the session's, and no host may be reached."""
    return Profile.model_validate(stored.profile).model_copy(update={"egress": DENY_ALL})


def dry_run(
    copy: Sandbox,
    stored: CallRecord,
    tool: Tool,
    obligations: Obligations,
    contents: Contents,
    *,
    transfers: Transfers = NO_TRANSFERS,
) -> PreviewResult:
    """Run the call in `copy`, which holds the workspace, and look at what that did.

    Raises:
        Fault: the copy's sandbox failed.
    """
    obliged = combine_obligations((obligations, Obligations(sandbox=tool.sandbox)))
    profile = dry_run_profile(stored).tighten(obliged)
    redactor = Redactor(obliged.redactions) if obliged.redactions else None
    output = OutputDigest()
    context = ToolContext(
        sandbox=copy,
        profile=profile,
        limits=process_limits(obliged.sandbox),
        identity=stored.identity,
        timeout_s=min(tool.timeout_s, profile.wall_s, TIMEOUT_S),
        on_output=output.add,
        redactor=redactor,
        transfers=transfers,
    )
    before = copy.files.manifest()
    result = run_tool(tool, stored.call.input, context)
    after = copy.files.manifest()
    if isinstance(before, FileRefused) or isinstance(after, FileRefused):
        return failed_preview(tool, obligations, "The workspace holds too many files to see what the call changes.")
    effects = effects_of(before, after)
    shown = {**_ending_fields(tool, result, output, redactor), **_change_fields(copy, effects, contents, redactor)}
    return PreviewResult(
        _preview_record(stored, tool, obligations, result, output, before=before, effects=effects, shown=shown), shown
    )


def _preview_record(
    stored: CallRecord,
    tool: Tool,
    obligations: Obligations,
    result: ToolResult,
    output: OutputDigest,
    *,
    before: Manifest,
    effects: tuple[FileEffect, ...],
    shown: dict[str, Any],
) -> Preview:
    runs = runs_one_exec(tool)
    names = () if runs else (name.path for name in named_files(tool, stored.call.input))
    paths = () if runs else affected_paths(names, effects, dry_run_profile(stored).workspace)
    return Preview(
        obliged=obligations_hash(tool, obligations),
        shown_hash=content_hash(shown),
        ending=ending_of(result, *(output.digest(stream) if runs else None for stream in STREAMS)),
        effects=effect_hashes(effects, MAX_EFFECTS),
        effects_count=len(effects),
        effects_hash=effects_hash(effects),
        concerned=paths,
        before="" if runs else state_hash(before, paths),
    )


def _ending_fields(tool: Tool, result: ToolResult, output: OutputDigest, redactor: Redactor | None) -> dict[str, Any]:
    """How it ended. What policy hides is not shown here either."""
    clean = result if redactor is None else redactor.clean_result(result)
    told: dict[str, Any] = {"failed_in_copy": True} if result.is_error else {}
    if result.code:
        told["code"] = result.code
    if not runs_one_exec(tool):
        return {**told, "answer": clean.text[:ANSWER_CHARACTERS]}
    structured = result.structured or {}
    told |= {name: structured[name] for name in ("outcome", "exit_code", "signal", "duration_ms") if name in structured}
    if redactor is None or not redactor.withholds_output:
        told |= {stream: output.text(stream) for stream in STREAMS if output.digest(stream).bytes}
    return told


def _change_fields(
    copy: Sandbox, effects: tuple[FileEffect, ...], contents: Contents, redactor: Redactor | None
) -> dict[str, Any]:
    hidden = redactor is not None and redactor.withholds_output
    wanted = () if hidden else files_to_diff(effects)
    old = contents(effect.path for effect in wanted if effect.before and effect.before.kind is FileKind.FILE)
    new = {effect.path: found for effect in wanted if (found := _read_after(copy, effect)) is not None}
    clean = redactor.clean_text if redactor is not None else str
    return change_summary(effects, old, new, clean, hidden=hidden)


def _read_after(copy: Sandbox, effect: FileEffect) -> bytes | None:
    if effect.after is None or effect.after.kind is not FileKind.FILE:
        return None
    found = copy.files.read(effect.path, length=TEXT_BYTES)
    return found.data if isinstance(found, FileContent) and len(found.data) == found.size else None
