"""Which files a call names: those that an approval binds by their content, because a person approves what they hold.

Named is what stands in the input as such: the path of a file tool, the files of a patch, and every word of a command
that may be a path, from each directory that the line may change to. What a program reads by itself (a module that it
imports, a Makefile, what a pattern like `*.sh` or a variable stands for) is not named, and not bound.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from codesdk.domain.decisions import Classification
from codesdk.policy.shell.command_analysis import analyze_argv, analyze_line
from codesdk.policy.shell.commands import ShellViews, SimpleCommand
from codesdk.policy.shell.words import Word, unquote
from codesdk.registry import SourceCall, Template, Tool
from codesdk.sandbox.port import FileFingerprint, FileRefused, Files, FingerprintKind, NamedPath, spell
from codesdk.tools.diff_parser import parse_readings
from codesdk.tools.hunks import PatchRejected

MAX_NAMES = 512
"""Files that one call may name. Of more none is bound beyond these, and the approver is told so."""
MAX_DIRECTORIES = 64
"""Directories that a line's words are looked up from: each `cd` doubles them, as it may fail or stand in a branch. Of
more, those in the middle are left out, and the approver is told so."""
MORE_FILES_NOTE = (
    f"The call names more than {MAX_NAMES} files or {MAX_DIRECTORIES} directories: some files are not bound and may have"
    " changed when it runs."
)
MAX_PATH = 4096
_ARGUMENTS = ("path", "target")
_CHANGES_DIRECTORY = frozenset(("cd", "pushd"))
_DIRECTORY_OPTIONS = ("-C", "-D", "--chdir", "--directory", "--cwd")
"""Options of `env`, `git`, `make`, `sudo`, `tar` and others that run in another directory."""
_HOME = "~"
"""As a directory of its own: the home directory. One of that name is written `./~`."""
_REDIRECTION = re.compile(r"(?<![<&])<>?(?![<&(])[ \t]*((?:\\.|'[^']*'|\"[^\"]*\"|[^\s<>|&;()'\"\\])+)")
_WORD = re.compile(r"[^\s;&|()<>'\"`]{1,4096}")
"""A word of a line that is too long or too tangled to parse: the first of them are bound, and the approver is told so."""
_OPTION_VALUE = re.compile(r"-{1,2}[A-Za-z][A-Za-z0-9_-]*=(.+)", re.DOTALL)


def named_files(tool: Tool, given: dict[str, Any]) -> tuple[NamedPath, ...]:
    """The files that a call names, each once; none for a tool that only reads."""
    if tool.classification is Classification.READ_ONLY:
        return ()
    found: dict[NamedPath, None] = {}
    for name in _find_names(tool, given):
        found[name] = None
        if len(found) == MAX_NAMES:
            break
    return tuple(found)


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
            views = analyze_line(given["command"], stdin)
            words = _WORD.findall(given["command"]) if views.over_limit else _redirected_inputs(given["command"])
            yield from _command_files(views, cwd, words)
    elif tool.runs.builtin == "patch.apply":
        yield from _patch_files(str(given["patch"]))
    else:
        for argument in _ARGUMENTS:
            if isinstance(path := given.get(argument), str):
                yield NamedPath(path=path)


def _patch_files(patch: str) -> Iterator[NamedPath]:
    try:
        readings = parse_readings(patch)
    except PatchRejected:
        return  # and nothing will be changed by it
    for files in readings:
        for file in files:
            yield from (NamedPath(path=path) for path in file.paths)


def _redirected_inputs(line: str) -> list[str]:
    """What `<` reads: a shell or an interpreter may take its script from there."""
    return [path for raw in _REDIRECTION.findall(line) if (path := _word_path(unquote(raw)))]


def _command_files(views: ShellViews, cwd: str, more: Iterable[str] = ()) -> Iterator[NamedPath]:
    directories = _possible_directories(views, "./" + cwd if cwd.startswith(_HOME) else cwd)
    # What is run and its first arguments first: where there are too many names, these must be among them.
    commands = sorted(views.possible, key=lambda command: command.name in _CHANGES_DIRECTORY)
    words = (path for most in (3, None) for command in commands for path in _word_paths(command, most))
    for path in dict.fromkeys((*more, *words)):
        yield from _names_of(path, directories)


def _names_of(path: str, directories: list[str]) -> Iterator[NamedPath]:
    if path.startswith(_HOME + "/") and path.strip("~/"):
        yield NamedPath(path=path[2:].lstrip("/"), cwd=_HOME)
    for place in directories:
        yield NamedPath(path=path, cwd=place)


def _possible_directories(views: ShellViews, cwd: str) -> list[str]:
    """Where a line's commands may run: whether it really goes somewhere is for the shell to know."""
    found = [cwd]
    for entered in _ends([path for command in views.possible for path in _entered_directories(command)]):
        below = [joined for place in found for joined in _joined(place, entered)]
        found = _ends(list(dict.fromkeys((*found, *below))))
    return found


def _ends(paths: list[str]) -> list[str]:
    """The first and the last, of which the very last is where a line is that went everywhere."""
    half = MAX_DIRECTORIES // 2
    return paths if len(paths) <= MAX_DIRECTORIES else paths[:half] + paths[-half:]


def _joined(place: str, entered: str) -> tuple[str, ...]:
    if entered == _HOME or entered.startswith(_HOME + "/"):
        return (entered, posixpath.join(place, entered))
    below = posixpath.join(place, entered)
    # A shell removes `..` from the words, a program from where links have led: both are bound.
    return (below, posixpath.normpath(below)) if ".." in below.split("/") else (below,)


def _entered_directories(command: SimpleCommand) -> list[str]:
    words = [word.text if word.literal else "" for word in command.words]
    if command.name in _CHANGES_DIRECTORY:
        return [word for word in words[1:] if word and not word.startswith("-")] or [_HOME]
    found = [value for option, value in pairwise(words) if option in _DIRECTORY_OPTIONS]
    for word in words:
        option, _, value = (word[:2], "", word[2:]) if word[:2] in ("-C", "-D") else word.partition("=")
        found += [value] if option in _DIRECTORY_OPTIONS else []
    return [value for value in found if value and "\0" not in value and len(value) <= MAX_PATH]


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
    is_complete = len(files) < MAX_NAMES and len({mark.cwd for mark in marks}) < MAX_DIRECTORIES
    return {"files": files} if is_complete else {"files": files, "more": MORE_FILES_NOTE}


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
