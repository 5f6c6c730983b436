"""The scripts that a call runs from the workspace: which they are, and their text for the people who approve them.

A text is shown only if its hash is the one that the approval binds, so nobody approves another script than they read.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from codesdk.policy.shell.command_effects import script_word
from codesdk.registry import Tool
from codesdk.sandbox.port import FileFingerprint, FileRefused, Files, FingerprintKind
from codesdk.toolcalls.approval.call_commands import shell_views

MAX_SCRIPTS = 4
MAX_READ_BYTES = 256 * 1024
"""Larger scripts are named with their size, and not read."""
MAX_SHOWN_CHARACTERS = 16 * 1024


def script_paths(tool: Tool, given: Mapping[str, Any]) -> tuple[str, ...]:
    """The scripts that a call's commands run, as they name them: `deploy.sh` of `sh deploy.sh`, and `./deploy.sh`."""
    views = shell_views(tool, given)
    found = (script_word(command) for command in views.seen) if views else ()
    return tuple(dict.fromkeys(word.text for word in found if word is not None))


def read_scripts(files: Files, marks: Sequence[FileFingerprint], paths: Sequence[str]) -> list[dict[str, Any]]:
    """What approvers are shown of these scripts, as JSON values. Those that are no files of the workspace are left out."""
    there = [mark for mark in marks if mark.path in paths and mark.kind is FingerprintKind.FILE]
    unique = {mark.real or mark.path: mark for mark in there}
    return [_shown(files, mark) for mark in list(unique.values())[:MAX_SCRIPTS]]


def _shown(files: Files, mark: FileFingerprint) -> dict[str, Any]:
    shown: dict[str, Any] = {"path": mark.path, "size": mark.size}
    if mark.size > MAX_READ_BYTES:
        return {**shown, "hidden": "it is too large to show"}
    content = files.read(posixpath.join(mark.cwd, mark.path), length=MAX_READ_BYTES)
    if isinstance(content, FileRefused):
        return {**shown, "hidden": "it could not be read"}
    if content.sha256 is None or content.sha256.removeprefix("sha256:") != (mark.sha256 or "").removeprefix("sha256:"):
        return {**shown, "hidden": "it changed while it was read"}
    try:
        text = content.data.decode("utf-8")
    except UnicodeDecodeError:
        return {**shown, "hidden": "it is not text"}
    cut = len(text) - MAX_SHOWN_CHARACTERS
    return {**shown, "text": text[:MAX_SHOWN_CHARACTERS], **({"left_out": cut} if cut > 0 else {})}
