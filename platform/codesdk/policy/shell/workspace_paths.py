"""Files that a shell line names, relative to the workspace, wherever in the workspace its commands may run."""

from __future__ import annotations

import posixpath
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

from codesdk.policy.shell.allow_wrappers import wrapped_commands
from codesdk.policy.shell.commands import SimpleCommand

_WORKSPACE = "/workspace"
_MAX_MOVES = 3
"""Changes of directory in a line; with more, where its commands run is not tracked."""
_MOVES = frozenset(("cd", "pushd", "popd"))
_FOLDER_OPTIONS = frozenset(
    ["--chdir", "--cwd", "--directory", "--git-dir", "--prefix", "--project", "--root", "--work-tree", "--workdir"]
)
_WRITES_NOTHING = frozenset(
    [
        "cat",
        "cd",
        "cut",
        "diff",
        "du",
        "echo",
        "env",
        "exit",
        "file",
        "git",
        "grep",
        "head",
        "ls",
        "pwd",
        "rg",
        "sleep",
        "stat",
        "tail",
        "test",
        "timeout",
        "tr",
        "true",
        "wc",
        "which",
        "[",
        ":",
    ]
)
"""Commands that can't put a program in place of another."""
_LINES_AROUND = frozenset(("rg", "grep", "egrep", "fgrep", "zgrep", "ag", "ack", "diff"))
"""Commands whose `-C` is a number of lines."""


class LinePlaces:
    """Where the commands of one allow view may run, and the files that they name. Computed when a rule needs it."""

    def __init__(self, commands: Sequence[SimpleCommand], start: str = "", *, moves_in_loop: bool = False) -> None:
        self._commands = commands
        self._start = start
        self._moves_in_loop = moves_in_loop

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """Every directory in which a command may run, whether or not each `cd` works; none if that is not known."""
        found = [self._start]
        if any(map(runs_elsewhere, self._commands)):
            return ()
        moved = [command.words for command in self._commands if moves(command)]
        if len(moved) > _MAX_MOVES or (moved and self._moves_in_loop):
            return ()
        for words in moved:
            at = 2 if words[1:2] and words[1].text == "--" else 1
            target = words[at] if words[0].text == "cd" and len(words) == at + 1 else None
            if target is None or not target.literal or target.glob or target.text[:1] in ("-", "~", ""):
                return ()
            found += [posixpath.join(folder, target.text) for folder in found]
        return tuple(found)

    def files(self, path: str | None) -> tuple[str, ...]:
        """Return every file that a path in the line may mean; none if one of them is outside or not known."""
        found = [None if path is None else resolve(folder, path) for folder in self.folders]
        known = tuple(file for file in found if file is not None)
        return known if len(known) == len(found) else ()

    def programs(self, path: str) -> tuple[str, ...]:
        """Return every file that a command named by path may be; none if the line may write it first.

        That is any redirection to an unknown place, or another word of the line that names something around the program.
        """
        found = self.files(path)
        named = self._named
        if named is None or self._unclear - {path} or any(_holds_beneath(named, _surroundings(file)) for file in found):
            return ()
        return found

    @cached_property
    def _unclear(self) -> frozenset[str]:
        """The command words of the commands that may write anywhere."""
        return frozenset(command.words[0].text for command in self._commands if _may_name_anything(command))

    @cached_property
    def _named(self) -> list[str] | None:
        """The files that arguments and redirections of the line may name, sorted; None if a redirection may write anywhere."""
        written = {path for command in self._commands for path in command.context.writes}
        if not all(self.files(path) for path in written):
            return None
        arguments: set[str] = set()
        for command in self._commands:
            *_, run = command, *wrapped_commands(command)
            arguments.update(word.text for word in run.words[1:])
        return sorted({file for path in (*written, *arguments) for file in self.files(path)})


def _may_name_anything(command: SimpleCommand) -> bool:
    """Return whether the command may write, and names a file by a wildcard, an option's value or a whole directory."""
    if command.name in _WRITES_NOTHING:
        return False
    return any(
        not word.literal
        or word.glob
        or word.text.startswith("-")
        or posixpath.normpath(word.text) in (".", "/", _WORKSPACE)
        for word in command.words[1:]
    )


def _surroundings(program: str) -> str:
    """Return the directory of the program's directory (`.venv` of `.venv/bin/pytest`), or its own at the top."""
    folder = posixpath.dirname(program)
    return posixpath.dirname(folder) or folder or program


def runs_elsewhere(command: SimpleCommand) -> bool:
    """Return whether an option may make the command, or one that it runs, work in another directory than the line."""
    whole = command.context.whole or command  # `find` is looked at without its `-execdir`
    for word in whole.words[1:]:
        option = word.text.partition("=")[0]
        if option in ("-execdir", "-okdir") or option in _FOLDER_OPTIONS:
            return True
        if word.text.startswith("-C") and whole.name not in _LINES_AROUND:
            return True
    return False


def moves(command: SimpleCommand) -> bool:
    """Return whether the command may change the directory in which the line runs."""
    return any(word.text in _MOVES for word in command.words)


def resolve(folder: str, path: str) -> str | None:
    """Return the path relative to the workspace; None if it is outside, in a home, or goes up, where a link could lead elsewhere."""
    whole = posixpath.join(_WORKSPACE, folder, path)
    if ".." in whole.split("/") or "\0" in whole or path.startswith("~"):
        return None
    whole = posixpath.normpath(whole)
    return whole.removeprefix(_WORKSPACE + "/") if whole.startswith(_WORKSPACE + "/") else None


def _holds_beneath(files: Sequence[str], folder: str) -> bool:
    """Return whether one of the sorted files is the folder, or below it."""
    below = folder + "/"
    return any(
        at < len(files) and (files[at] == folder or files[at].startswith(below))
        for at in (bisect_left(files, folder), bisect_left(files, below))
    )


def is_beneath(path: str, folders: Sequence[str]) -> bool:
    """Return whether the path is one of the folders (`.` is the workspace) or below one."""
    return any(folder in (".", path) or path.startswith(folder + "/") for folder in folders)
