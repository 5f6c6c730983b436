"""The changes of a preview for a person: each path in words, and unified diffs of text files, bounded. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from codesdk.domain.work_budget import WorkBudget
from codesdk.sandbox.port import FileKind, ManifestEntry
from codesdk.toolcalls.previews.effects import FileEffect
from codesdk.toolcalls.previews.unified_diff import MAX_WORK, unified_diff

MAX_PATHS = 200
"""Paths that are listed."""
NAME_CHARACTERS = 1000
"""Of a path, and of what became of it."""
MAX_DIFFS = 50
"""Files whose texts are compared."""
TEXT_BYTES = 256 * 1024
"""Of one side; a larger file is told by its size and hash."""
MAX_DIFF_CHARACTERS = 48 * 1024
"""Of all diffs together. The page shows all of it, a message its beginning."""

Clean = Callable[[str], str]
"""A text without what policy hides."""


def files_to_diff(effects: Iterable[FileEffect]) -> tuple[FileEffect, ...]:
    """The files whose content is needed on both sides; the others are told by their facts."""
    wanted = [effect for effect in effects if _has_text(effect)]
    return tuple(wanted[:MAX_DIFFS])


def change_summary(
    effects: tuple[FileEffect, ...],
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    clean: Clean,
    *,
    hidden: bool = False,
) -> dict[str, Any]:
    """`files`, `files_left_out`, `diff` and `diff_left_out`, the last two in characters.

    `before`, `after`: contents of those that are wanted, where they could be read. `hidden`: no content may be shown.
    """
    diffs: list[str] = []
    budget = WorkBudget(MAX_WORK)
    files: list[dict[str, Any]] = []
    wanted = {effect.path for effect in files_to_diff(effects)}
    for effect in effects[:MAX_PATHS]:
        told = {"path": _cut(clean(effect.path)), "change": effect.change, "what": _cut(clean(_effect_text(effect)))}
        if effect.path in wanted and not hidden:
            text = _diff(effect, before.get(effect.path), after.get(effect.path), clean, budget)
            if text is None:
                told["what"] += ", no text that can be shown"
            else:
                diffs.append(text)
        files.append(told)
    whole = "".join(diffs)
    found: dict[str, Any] = {"files": files, "diff": whole[:MAX_DIFF_CHARACTERS]}
    if len(effects) > len(files):
        found["files_left_out"] = len(effects) - len(files)
    if len(whole) > MAX_DIFF_CHARACTERS:
        found["diff_left_out"] = len(whole) - MAX_DIFF_CHARACTERS
    return found


def _cut(text: str) -> str:
    left = len(text) - NAME_CHARACTERS
    return text if left <= 0 else f"{text[:NAME_CHARACTERS]}… ({left} characters more)"


def _has_text(effect: FileEffect) -> bool:
    """Whether one of its sides is a file of a size to be shown, and the other no larger one."""
    sides = [entry for entry in (effect.before, effect.after) if entry is not None]
    files = [entry for entry in sides if entry.kind is FileKind.FILE]
    return bool(files) and _content_differs(effect) and all(entry.size <= TEXT_BYTES for entry in files)


def _content_differs(effect: FileEffect) -> bool:
    before, after = effect.before, effect.after
    return before is None or after is None or (before.kind, before.mark) != (after.kind, after.mark)


def _diff(
    effect: FileEffect, before: bytes | None, after: bytes | None, clean: Clean, budget: WorkBudget
) -> str | None:
    """None: one side is no text, or could not be read."""
    sides: list[str | None] = []
    for entry, content in ((effect.before, before), (effect.after, after)):
        if entry is None or entry.kind is not FileKind.FILE:
            sides.append(None)
            continue
        text = _decode(content)
        if text is None:
            return None
        sides.append(clean(text))
    return unified_diff(clean(effect.path), sides[0], sides[1], budget)


def _decode(content: bytes | None) -> str | None:
    if content is None or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _effect_text(effect: FileEffect) -> str:
    before, after = effect.before, effect.after
    if before is None or after is None:
        entry = after or before
        return _entry_text(entry) if entry is not None else ""
    if before.kind is not after.kind:
        return f"{_entry_text(before)} → {_entry_text(after)}"
    told = []
    if before.mode != after.mode:
        told.append(f"mode {before.mode:04o} → {after.mode:04o}")
    if before.kind is FileKind.SYMLINK and before.mark != after.mark:
        told.append(f"link to {before.mark} → {after.mark}")
    elif (before.size, before.mark) != (after.size, after.mark):
        told.append(f"{before.size} → {after.size} bytes")
    return f"{before.kind.value}, {', '.join(told)}" if told else before.kind.value


def _entry_text(entry: ManifestEntry) -> str:
    match entry.kind:
        case FileKind.FILE:
            return f"file, {entry.size} bytes, mode {entry.mode:04o}"
        case FileKind.SYMLINK:
            return f"link to {entry.mark}"
        case _:
            return f"{entry.kind.value}, mode {entry.mode:04o}"
