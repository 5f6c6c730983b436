"""A call tried in a copy of its workspace: no network, no secrets, a short time; and what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import Obligations, tightest
from codesdk.domain.redaction import Redactor
from codesdk.domain.tools import ToolResult
from codesdk.registry import Tool
from codesdk.sandbox.egress.rules import NOTHING
from codesdk.sandbox.port import FileContent, FileKind, FileRefused, Manifest, Sandbox
from codesdk.sandbox.profile import Profile
from codesdk.toolcalls.bound_files import named
from codesdk.toolcalls.builtins import Bench, process_limits, run_tool, runs_one_exec
from codesdk.toolcalls.builtins.withheld import STREAMS
from codesdk.toolcalls.effects import Effect, concerned, effects_hash, effects_of, state_hash
from codesdk.toolcalls.heard import Heard
from codesdk.toolcalls.preview import Preview, Tried, ending_of, failed, few, obliged_hash
from codesdk.toolcalls.preview_diff import TEXT_BYTES, changes_shown, texts_wanted
from codesdk.toolcalls.stored import StoredCall

TIME_S = 30.0
"""Wall time of a trial: a person waits for it, and a copy takes a place of its host."""
KEPT_EFFECTS = 200
"""Changes that are kept one by one, to name those that differ; of more only their hash is."""
ANSWER_CHARACTERS = 4000
"""Of what a file tool answered."""

Contents = Callable[[Iterable[str]], Mapping[str, bytes]]
"""Files as they were when the copy was made, up to `TEXT_BYTES` each; what cannot be read is left out."""


def profile_of(stored: StoredCall) -> Profile:
    """The copy's: the session's, and no host may be reached."""
    return Profile.model_validate(stored.profile).model_copy(update={"egress": NOTHING})


def rehearse(copy: Sandbox, stored: StoredCall, tool: Tool, obligations: Obligations, contents: Contents) -> Tried:
    """Run the call in `copy`, which holds the workspace, and look at what that did.

    Raises:
        Fault: the copy's sandbox failed.
    """
    obliged = tightest((obligations, Obligations(sandbox=tool.sandbox)))
    profile = profile_of(stored).tighten(obliged)
    redactor = Redactor(obliged.redactions) if obliged.redactions else None
    heard = Heard()
    bench = Bench(
        sandbox=copy,
        profile=profile,
        limits=process_limits(obliged.sandbox),
        identity=stored.identity,
        timeout_s=min(tool.timeout_s, profile.wall_s, TIME_S),
        on_output=heard.add,
        redactor=redactor,
    )
    before = copy.files.manifest()
    result = run_tool(tool, stored.call.input, bench)
    after = copy.files.manifest()
    if isinstance(before, FileRefused) or isinstance(after, FileRefused):
        return failed(tool, obligations, "The workspace holds too many files to see what the call changes.")
    effects = effects_of(before, after)
    shown = {**_ending(tool, result, heard, redactor), **_changes(copy, effects, contents, redactor)}
    return Tried(_kept(stored, tool, obligations, result, heard, before=before, effects=effects, shown=shown), shown)


def _kept(
    stored: StoredCall,
    tool: Tool,
    obligations: Obligations,
    result: ToolResult,
    heard: Heard,
    *,
    before: Manifest,
    effects: tuple[Effect, ...],
    shown: dict[str, Any],
) -> Preview:
    runs = runs_one_exec(tool)
    names = () if runs else (name.path for name in named(tool, stored.call.input))
    paths = () if runs else concerned(names, effects, profile_of(stored).workspace)
    return Preview(
        obliged=obliged_hash(tool, obligations),
        shown_hash=content_hash(shown),
        ending=ending_of(result, *(heard.mark(stream) if runs else None for stream in STREAMS)),
        effects=few(effects, KEPT_EFFECTS),
        effects_count=len(effects),
        effects_hash=effects_hash(effects),
        concerned=paths,
        before="" if runs else state_hash(before, paths),
    )


def _ending(tool: Tool, result: ToolResult, heard: Heard, redactor: Redactor | None) -> dict[str, Any]:
    """How it ended. What policy hides is not shown here either."""
    clean = result if redactor is None else redactor.clean_result(result)
    told: dict[str, Any] = {"failed_in_copy": True} if result.is_error else {}
    if result.code:
        told["code"] = result.code
    if not runs_one_exec(tool):
        return {**told, "answer": clean.text[:ANSWER_CHARACTERS]}
    structured = result.structured or {}
    told |= {name: structured[name] for name in ("outcome", "exit_code", "signal", "duration_ms") if name in structured}
    if redactor is None or not redactor.holds_back_output:
        told |= {stream: heard.text(stream) for stream in STREAMS if heard.mark(stream).bytes}
    return told


def _changes(
    copy: Sandbox, effects: tuple[Effect, ...], contents: Contents, redactor: Redactor | None
) -> dict[str, Any]:
    hidden = redactor is not None and redactor.holds_back_output
    wanted = () if hidden else texts_wanted(effects)
    old = contents(effect.path for effect in wanted if effect.before and effect.before.kind is FileKind.FILE)
    new = {effect.path: found for effect in wanted if (found := _now(copy, effect)) is not None}
    clean = redactor.clean_text if redactor is not None else str
    return changes_shown(effects, old, new, clean, hidden=hidden)


def _now(copy: Sandbox, effect: Effect) -> bytes | None:
    if effect.after is None or effect.after.kind is not FileKind.FILE:
        return None
    found = copy.files.read(effect.path, length=TEXT_BYTES)
    return found.data if isinstance(found, FileContent) and len(found.data) == found.size else None
