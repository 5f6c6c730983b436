"""What came of trying a call in a copy of its workspace: what people are shown, and what the run is held against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import PREVIEWED, Decision, Frozen, Obligations
from codesdk.domain.tools import ToolResult
from codesdk.registry import SourceCall, Template, Tool
from codesdk.toolcalls.effects import Effect, effects_hash

TRIES = 2
"""How often a preview is begun: one that was lost with its worker, or for a fault that passes, is begun again once."""
TRIED = frozenset({"workspace.exec", "workspace.write", "workspace.move", "workspace.delete", "patch.apply"})
"""The built-in tools of which a copy of the workspace shows all that they do."""
NAMED = 20
"""Paths that a difference names."""
NAME_CHARACTERS = 200
"""Of each of them."""


class StreamMark(Frozen):
    """One stream of output, known by its hash."""

    bytes: int
    sha256: str


class Ending(Frozen):
    """How a call ended, with all that counts as the same ending. Times do not."""

    is_error: bool
    code: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    stdout: StreamMark | None = None
    stderr: StreamMark | None = None


class Preview(Frozen):
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


class Tried(NamedTuple):
    """A preview, and what people are shown of it (JSON values)."""

    preview: Preview
    shown: dict[str, Any]


def wants_preview(tool: Tool, decision: Decision) -> bool:
    """Whether the call is to be tried before anybody is asked about it."""
    return decision.approval is not None and decision.approval.preview and _can_be_tried(tool)


def _can_be_tried(tool: Tool) -> bool:
    """Whether it does what it does here, and to its end.

    What a server does happens there, and what runs in the background goes on: no copy of the workspace shows it.
    """
    if tool.classification not in PREVIEWED or isinstance(tool.runs, SourceCall):
        return False
    return isinstance(tool.runs, Template) or tool.runs.builtin in TRIED


def obliged_hash(tool: Tool, obligations: Obligations) -> str:
    """`sha256:` of what the tool does and policy demands; under others it is another preview."""
    return content_hash([tool.behaviour_hash, obligations.model_dump(mode="json")])


def failed(tool: Tool, obligations: Obligations, reason: str) -> Tried:
    """A preview that could not be made, which people are shown as such."""
    shown = {"failed": reason}
    return Tried(Preview(obliged=obliged_hash(tool, obligations), failed=reason, shown_hash=content_hash(shown)), shown)


def few(effects: tuple[Effect, ...], most: int) -> tuple[tuple[str, str], ...]:
    """The first of them, each known by its hash."""
    return tuple((effect.path, content_hash(effect.facts())) for effect in effects[:most])


def ending_of(result: ToolResult, stdout: StreamMark | None, stderr: StreamMark | None) -> Ending:
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


def differences(preview: Preview, now: Ending, effects: tuple[Effect, ...] | None) -> tuple[str, ...]:
    """In what a run is not as its preview was, in words. `effects` None: nobody could see what it changed."""
    assert preview.ending is not None  # noqa: S101 (a failed preview is compared with nothing)
    return (*_endings(preview.ending, now), *_changes(preview, effects))


def _endings(was: Ending, now: Ending) -> Iterator[str]:
    for name, words in (("code", "outcome"), ("exit_code", "exit code"), ("signal", "signal")):
        before, after = getattr(was, name), getattr(now, name)
        if before != after:
            yield f"{words} {_said(after)}, in the preview {_said(before)}"
    if was.is_error != now.is_error and was.code == now.code and was.exit_code == now.exit_code:
        yield f"it {'failed' if now.is_error else 'succeeded'}, and in the preview it did not"
    for name in ("stdout", "stderr"):
        if getattr(was, name) != getattr(now, name):
            yield f"another {name}"


def _changes(preview: Preview, effects: tuple[Effect, ...] | None) -> Iterator[str]:
    if effects is None:
        yield "what it changed could not be compared"
        return
    if effects_hash(effects) == preview.effects_hash:
        return
    was, now = dict(preview.effects), dict(few(effects, len(effects)))
    paths = sorted(path for path in was.keys() | now.keys() if was.get(path) != now.get(path))
    whole = preview.effects_count == len(preview.effects)
    if not whole or not paths:
        yield f"other files changed ({len(effects)}, in the preview {preview.effects_count})"
        return
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    yield f"other changes: {', '.join(path[:NAME_CHARACTERS] for path in paths[:NAMED])}{more}"


def _said(value: object) -> str:
    return "none" if value is None else str(value)
