"""Renders a preview as text: the effects of a dry run, from an approval's `shown.preview`. Pure.

All content comes from programs that an agent chose, so control characters are made visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from codesdk.transcript.rendering import escape_control, line

HEADING = "Tried in a copy of the workspace"


def outcome_line(preview: Mapping[str, Any]) -> str:
    """Return the dry run's outcome and number of changes, on one line."""
    if "failed" in preview:
        return line(f"It could not be tried: {preview['failed']}")
    count = len(_changed_files(preview)) + _count_of(preview, "files_left_out")
    changed = "nothing was changed" if not count else f"{count} path{'s' if count > 1 else ''} changed"
    return line(f"{_outcome(preview)}, {changed}")


def changes(preview: Mapping[str, Any]) -> list[str]:
    """Return a line for each changed path."""
    changed = [line(f"{file.get('change')} {file.get('path')}: {file.get('what')}") for file in _changed_files(preview)]
    left = _count_of(preview, "files_left_out")
    return [*changed, f"and {left} more"] if left else changed


def diff(preview: Mapping[str, Any]) -> str:
    """Return the unified diff, with a note about omissions. Empty if there is none."""
    text = preview.get("diff")
    if not isinstance(text, str) or not text:
        return ""
    left = _count_of(preview, "diff_left_out")
    return escape_control(text) + (f"\n[{left} more characters are not shown]" if left else "")


def output_texts(preview: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and text of its output."""
    for name in ("stdout", "stderr", "answer"):
        text = preview.get(name)
        if isinstance(text, str) and text:
            yield name, escape_control(text)


def lines(preview: Any, most: int | None = None) -> list[str]:
    """Return the whole preview as lines, at most `most` characters. Empty if there is none."""
    if not isinstance(preview, Mapping):
        return []
    rows = [f"{HEADING}: {outcome_line(preview)}", *(f"  {each}" for each in changes(preview))]
    rows += diff(preview).splitlines()
    for name, text in output_texts(preview):
        rows += [f"{name}:", *text.splitlines()]
    return rows if most is None else _truncate(rows, most)


def _truncate(rows: list[str], most: int) -> list[str]:
    kept: list[str] = []
    room = most
    for each in rows:
        room -= len(each) + 1
        if room < 0:
            return [*kept, "[cut; the approval shows all of it]"]
        kept.append(each)
    return kept


def _outcome(preview: Mapping[str, Any]) -> str:
    outcome, code = preview.get("outcome"), preview.get("exit_code")
    if outcome == "exited" or (outcome is None and code is not None):
        return f"exit code {code}"
    if outcome:
        return f"ended as {outcome}"
    if preview.get("failed_in_copy"):
        return f"it failed there ({preview['code']})" if preview.get("code") else "it failed there"
    return "it succeeded"


def _changed_files(preview: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    files = preview.get("files")
    known = isinstance(files, Sequence) and not isinstance(files, str)
    return [each for each in files if isinstance(each, Mapping)] if known and files else []


def _count_of(preview: Mapping[str, Any], name: str) -> int:
    found = preview.get(name)
    return found if isinstance(found, int) else 0
