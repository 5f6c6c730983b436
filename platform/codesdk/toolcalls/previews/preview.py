"""What came of trying a call in a copy of its workspace: what people are shown, and what the run is held against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import PREVIEWABLE, Decision, Obligations
from codesdk.domain.model import FrozenModel
from codesdk.domain.tool_results import ToolResult
from codesdk.registry import SourceCall, Template, Tool
from codesdk.toolcalls.previews.effects import FileEffect, effects_hash

MAX_DRY_RUNS = 2
"""How often a preview is begun: one that was lost with its worker, or for a fault that passes, is begun again once."""
PREVIEWABLE_BUILTINS = frozenset(
    {"workspace.exec", "workspace.write", "workspace.edit", "workspace.move", "workspace.delete", "patch.apply"}
)
"""The built-in tools of which a copy of the workspace shows all that they do."""
MAX_NAMED_PATHS = 20
"""Paths that a difference names."""
NAME_CHARACTERS = 200
"""Of each of them."""


class StreamDigest(FrozenModel):
    """One stream of output, known by its hash."""

    bytes: int
    sha256: str


class Ending(FrozenModel):
    """How a call ended, with all that counts as the same ending. Times do not."""

    is_error: bool
    code: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    stdout: StreamDigest | None = None
    stderr: StreamDigest | None = None


class Preview(FrozenModel):
    """Kept with the call; the approval's digest covers it, and with `shown_hash` all that was shown of it."""

    obliged: str
    """`sha256:` of the tool's behaviour and the obligations that it was made under."""
    shown_hash: str = ""
    failed: str = ""
    """Why there is none; people were shown this."""
    ending: Ending | None = None
    effects: tuple[tuple[str, str], ...] = ()
    """Path and hash of the first changes."""
    effects_count: int = 0
    effects_hash: str = ""
    concerned: tuple[str, ...] = ()
    """Of a file tool: the paths that its change is about."""
    before: str = ""
    """`sha256:` over what was there."""


class PreviewResult(NamedTuple):
    """A preview, and what people are shown of it (JSON values)."""

    preview: Preview
    shown: dict[str, Any]


def wants_preview(tool: Tool, decision: Decision) -> bool:
    """Whether the call is to be tried before anybody is asked about it."""
    return decision.approval is not None and decision.approval.preview and _is_previewable(tool)


def _is_previewable(tool: Tool) -> bool:
    """Whether it does what it does here, and to its end.

    What a server does happens there, and what runs in the background goes on: no copy of the workspace shows it.
    """
    if tool.classification not in PREVIEWABLE or isinstance(tool.runs, SourceCall):
        return False
    return isinstance(tool.runs, Template) or tool.runs.builtin in PREVIEWABLE_BUILTINS


def obligations_hash(tool: Tool, obligations: Obligations) -> str:
    """`sha256:` of what the tool does and policy demands; under others it is another preview."""
    return content_hash([tool.behaviour_hash, obligations.model_dump(mode="json")])


def failed_preview(tool: Tool, obligations: Obligations, reason: str) -> PreviewResult:
    """A preview that could not be made, which people are shown as such."""
    shown = {"failed": reason}
    return PreviewResult(
        Preview(obliged=obligations_hash(tool, obligations), failed=reason, shown_hash=content_hash(shown)), shown
    )


def effect_hashes(effects: tuple[FileEffect, ...], most: int) -> tuple[tuple[str, str], ...]:
    """The first of them, each known by its hash."""
    return tuple((effect.path, content_hash(effect.facts())) for effect in effects[:most])


def ending_of(result: ToolResult, stdout: StreamDigest | None, stderr: StreamDigest | None) -> Ending:
    """What counts of a result."""
    told = result.structured or {}
    return Ending(
        is_error=result.is_error,
        code=result.code,
        exit_code=told.get("exit_code"),
        signal=told.get("signal"),
        stdout=stdout,
        stderr=stderr,
    )


def differences(preview: Preview, now: Ending, effects: tuple[FileEffect, ...] | None) -> tuple[str, ...]:
    """In what a run is not as its preview was, in words. `effects` None: nobody could see what it changed."""
    assert preview.ending is not None  # noqa: S101 (a failed preview is compared with nothing)
    return (*_ending_differences(preview.ending, now), *_effect_differences(preview, effects))


def _ending_differences(was: Ending, now: Ending) -> Iterator[str]:
    for name, words in (("code", "outcome"), ("exit_code", "exit code"), ("signal", "signal")):
        before, after = getattr(was, name), getattr(now, name)
        if before != after:
            yield f"{words} {_value_text(after)}, in the preview {_value_text(before)}"
    if was.is_error != now.is_error and was.code == now.code and was.exit_code == now.exit_code:
        yield f"it {'failed' if now.is_error else 'succeeded'}, and in the preview it did not"
    for name in ("stdout", "stderr"):
        if getattr(was, name) != getattr(now, name):
            yield f"another {name}"


def _effect_differences(preview: Preview, effects: tuple[FileEffect, ...] | None) -> Iterator[str]:
    if effects is None:
        yield "what it changed could not be compared"
        return
    if effects_hash(effects) == preview.effects_hash:
        return
    was, now = dict(preview.effects), dict(effect_hashes(effects, len(effects)))
    paths = sorted(path for path in was.keys() | now.keys() if was.get(path) != now.get(path))
    whole = preview.effects_count == len(preview.effects)
    if not whole or not paths:
        yield f"other files changed ({len(effects)}, in the preview {preview.effects_count})"
        return
    more = f" and {len(paths) - MAX_NAMED_PATHS} more" if len(paths) > MAX_NAMED_PATHS else ""
    yield f"other changes: {', '.join(path[:NAME_CHARACTERS] for path in paths[:MAX_NAMED_PATHS])}{more}"


def _value_text(value: object) -> str:
    return "none" if value is None else str(value)
