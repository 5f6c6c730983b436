"""Which files a call names: those that an approval binds by their content, because a person approves what they hold.

Named is what stands in the input as such: the path of a file tool, the files of a patch, and every word of a command
that may be a path, from each directory that the line changes to. What a program reads by itself (a module that it
imports, a Makefile, what a pattern like `*.sh` or a variable stands for) is not named, and not bound.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Any

from codesdk.domain.decisions import Classification
from codesdk.policy.shell.command_analysis import analyze_argv, analyze_line
from codesdk.policy.shell.commands import ShellViews, SimpleCommand
from codesdk.policy.shell.words import Word, unquote
from codesdk.registry import SourceCall, Template, Tool
from codesdk.sandbox.port import FileFingerprint, FileRefused, Files, FingerprintKind, NamedPath, spell
from codesdk.tools.diff_parser import PatchRejected, parse_diff

MAX_NAMES = 512
"""Files that one call may name. Of more none is bound beyond these, and the approver is told so."""
MORE_FILES_NOTE = (
    f"Only the first {MAX_NAMES} files that the call names are bound: others may have changed when it runs."
)
MAX_PATH = 4096
MAX_DIRECTORIES = 8
_ARGUMENTS = ("path", "target")
_CHANGES_DIRECTORY = frozenset(("cd", "pushd"))
_REDIRECTION = re.compile(r"(?<![<&])<(?![<&(])[ \t]*((?:\\.|'[^']*'|\"[^\"]*\"|[^\s<>|&;()'\"\\])+)")
_OPTION_VALUE = re.compile(r"-{1,2}[A-Za-z][A-Za-z0-9_-]*=(.+)", re.DOTALL)


def named_files(tool: Tool, given: dict[str, Any]) -> tuple[NamedPath, ...]:
    """The files that a call names, each once; none for a tool that only reads."""
    if tool.classification is Classification.READ_ONLY:
        return ()
    return tuple(dict.fromkeys(_find_names(tool, given)))[:MAX_NAMES]


def _find_names(tool: Tool, given: dict[str, Any]) -> Iterator[NamedPath]:
    if isinstance(tool.runs, Template):
        yield from _command_files(analyze_argv(tool.argv(given)), ".")
    elif isinstance(tool.runs, SourceCall):
        return  # it has a workspace of its own: what its input names is no file of this session's
    elif tool.runs.builtin in ("workspace.exec", "process.start"):
        stdin = given.get("stdin")
        cwd = str(given.get("cwd", "."))
        if "argv" in given:
            yield from _command_files(analyze_argv(given["argv"], stdin), cwd)
        else:
            yield from _command_files(analyze_line(given["command"], stdin), cwd, _redirected_inputs(given["command"]))
    elif tool.runs.builtin == "patch.apply":
        yield from _patch_files(str(given["patch"]))
    else:
        for argument in _ARGUMENTS:
            if isinstance(path := given.get(argument), str):
                yield NamedPath(path=path)


def _patch_files(patch: str) -> Iterator[NamedPath]:
    try:
        files = parse_diff(patch)
    except PatchRejected:
        return  # and nothing will be changed by it
    for file in files:
        yield NamedPath(path=file.path)
        if file.source is not None:
            yield NamedPath(path=file.source)


def _redirected_inputs(line: str) -> list[str]:
    """What `<` reads: a shell or an interpreter may take its script from there."""
    return [path for raw in _REDIRECTION.findall(line) if (path := _word_path(unquote(raw)))]


def _command_files(views: ShellViews, cwd: str, more: Iterable[str] = ()) -> Iterator[NamedPath]:
    directories = [cwd]
    for command in views.possible:
        if command.name in _CHANGES_DIRECTORY:
            # Whether the line really is there by then is for the shell to know: names are taken from both.
            for word in command.words[1:]:
                below = [posixpath.join(place, word.text) for place in directories if word.literal]
                directories += [place for place in below if place not in directories]
            del directories[MAX_DIRECTORIES:]
    yield from (NamedPath(path=path, cwd=place) for path in more for place in directories)
    # What is run and its first arguments first: where there are too many names, these must be among them.
    for most in (3, None):
        for command in views.possible:
            for path in _word_paths(command, most):
                for place in directories:
                    yield NamedPath(path=path, cwd=place)


def _word_paths(command: SimpleCommand, most: int | None) -> Iterator[str]:
    for number, word in enumerate(command.words[:most]):
        path = _word_path(word)
        if path and (number or "/" in path):  # a command without a slash is looked for on PATH, which is the image's
            yield path


def _word_path(word: Word) -> str:
    if not word.literal or word.glob:
        return ""
    value = _OPTION_VALUE.fullmatch(word.text)
    text = value[1] if value else word.text
    is_path = text and not text.startswith("-") and len(text) <= MAX_PATH and "\0" not in text and "\n" not in text
    return spell(text) if is_path else ""  # a shell has no escapes for names


def bound_files_value(marks: tuple[FileFingerprint, ...]) -> dict[str, Any] | None:
    """What an approval binds of them and its approver is shown, as JSON values: first what is there. None of none."""
    found = sorted(marks, key=lambda mark: mark.kind is FingerprintKind.ABSENT)
    if not marks:
        return None
    files = [mark.model_dump(mode="json", exclude_none=True) for mark in found]
    return {"files": files} if len(files) < MAX_NAMES else {"files": files, "more": MORE_FILES_NOTE}


def find_changed_file(files: Files, bound: tuple[FileFingerprint, ...]) -> str:
    """Which file a person has approved is another now; an exec's are looked at by the runner, with all tools stopped."""
    found = files.marks(tuple(mark.name for mark in bound))
    return found.message if isinstance(found, FileRefused) else first_difference(bound, found)


def first_difference(wanted: tuple[FileFingerprint, ...], found: tuple[FileFingerprint, ...]) -> str:
    """Which file is not as it was, in words; empty where all are."""
    for before, now in zip(wanted, found, strict=True):
        if before == now:
            continue
        if now.kind is FingerprintKind.ABSENT:
            return f"{before.path} is not there any more"
        if before.kind is FingerprintKind.ABSENT:
            return f"{before.path} was not there and is now"
        return f"{before.path} {'leads to another file' if before.real != now.real else 'has another content'} now"
    return ""
