"""Finds the paths that a call names, and the directories that it reads with all beneath them.

Of a command: every word that may be a path, wherever it stands. Of other tools: every string argument that is one line,
except those that are content (`content`, `pattern`, `url`, …); of a patch, the files that it names.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice, pairwise
from typing import Any, NamedTuple, TypeVar

from codesdk.domain.patch_headers import BOM, DIFF_GIT, is_name_pair, name_of, section, unquote_path
from codesdk.domain.search_globs import is_exclusion, search_globs
from codesdk.domain.work_budget import WorkBudget
from codesdk.policy.matching.path_globs import ANY, UNREAD, is_known, spells_nothing
from codesdk.policy.matching.word_paths import braces, code_paths, readings, word_paths
from codesdk.policy.shell.commands import ShellViews, SimpleCommand
from codesdk.policy.shell.directory_reads import directory_reads, pattern_argument
from codesdk.policy.shell.nested_command_wrappers import AWKS, WRAPPERS
from codesdk.policy.shell.words import Word, unquote

_COMMANDS = frozenset(("command", "argv", "stdin"))
_PATHS = frozenset(("path", "target", "cwd"))
_PATCHES = frozenset(("patch", "diff"))
_CONTENT = frozenset(
    [
        *("content", "contents", "text", "oldtext", "newtext", "oldstring", "newstring", "body", "data", "message"),
        *("pattern", "regex", "query", "title", "description", "prompt", "url", "headers"),
    ]
)
"""Names of arguments that are no paths, in lower case and without `_` and `-`."""
_MAX_PATH = 4096
_MAX_HEADER = 4 * _MAX_PATH
"""Characters of a line of a patch; a longer one names nothing that can be opened, but is not read."""
_MAX_COST = 1_000_000
"""Cost of a call's paths: about 40,000 of them, or 5000 that are partly unknown. Takes about a second with many patterns."""
_COST_OF_NAME = 20
_COST_OF_DIRECTORY = 100
_COST_OF_UNKNOWN = 200
_COST_OF_REPETITION = 5
_MAX_BASES = 8
_PRINTERS = frozenset(("echo", "printf"))
_PASSES_WORDS = re.compile(r"[|`]|[$<]\(|\bxargs\b")
"""What can make an argument of what `echo` prints."""
_NAMES_ONLY = frozenset(
    [
        *("ls", "stat", "basename", "dirname", "realpath", "readlink", "du", "wc", "file", "test", "[", "[["),
        *("cd", "pwd", "true", "false", ":", *_PRINTERS),
    ]
)
"""Commands that show names, sizes or counts of files, not what is in them."""
_PROGRAMS = frozenset(
    [
        *(
            "python",
            "python2",
            "python3",
            "node",
            "deno",
            "bun",
            "ruby",
            "perl",
            "php",
            "lua",
            "Rscript",
            "sqlite3",
            "psql",
        ),
        *("sed", "gsed", "jq", "vim", "vi", "ex", "ed", *AWKS),
    ]
)
"""Commands with program text in their arguments."""
_FIRST_IS_PROGRAM = frozenset(("sed", "gsed", *AWKS))
_PATHSPECS = frozenset(
    [
        *(
            "add",
            "archive",
            "blame",
            "cat-file",
            "checkout",
            "diff",
            "grep",
            "log",
            "ls-files",
            "ls-tree",
            "mv",
            "reset",
        ),
        *("restore", "rm", "show", "stash", "status"),
    ]
)
"""Subcommands of git that expand wildcards themselves."""
_WILDCARD_OPTIONS = {
    **dict.fromkeys(("rg", "grep", "egrep", "fgrep", "zgrep", "rsync", "tar"), ("-g", "--glob", "--iglob", "--include")),
    **dict.fromkeys(("find", "gfind"), ("-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename")),
}  # fmt: skip
_EXCLUDES = ("--exclude", "--exclude-dir", "--ignore-dir", "--ignore-glob")
_FOLDER_OPTIONS = ("-C", "--directory", "--chdir")
_NAMING_LINES = re.compile(r"^(?:diff --git |(?:rename|copy) (?:from|to) |--- |\*\*\* ).*", re.MULTILINE)
_GIT_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?$)')  # without its end, up to the end: each character is read once
_RENAMES = ("rename from ", "rename to ", "copy from ", "copy to ")


_APPENDED = re.compile(r"(?<!\w)\w+\+=")  # each word is read once: 64 KiB of letters took 40 s without the lookbehind
_NAME = re.compile(r"[A-Za-z_]\w*")


class NamedPath(NamedTuple):
    """A path that a call names; wildcards and unknown parts are marks (`path_globs`)."""

    path: str
    shown: str
    command: str = ""
    """The command that names it."""
    certain: bool = True
    """False: the word comes from program text or an unreadable line, so it may be no path at all."""


class ReadDirectory(NamedTuple):
    """A directory that a call reads with all beneath it."""

    path: str
    shown: str
    command: str
    hidden: bool


_PathT = TypeVar("_PathT", NamedPath, ReadDirectory)


class CallPaths(NamedTuple):
    """What a call names and reads."""

    named: tuple[NamedPath, ...]
    read: tuple[ReadDirectory, ...]
    bases: tuple[str, ...]
    """Directories from which relative paths may start, other than the workspace."""
    too_many: bool = False
    """There are more, which are not compared."""


def call_paths(tool: str, given: Mapping[str, Any], shell: ShellViews | None) -> CallPaths:
    """Return the paths of a call; `shell` are the views of its command, if it has one."""
    fields = {name: value for name, value in given.items() if not (shell is not None and name in _COMMANDS)}
    named, read = _fields(fields), _tool_reads(tool, given)
    folders = [
        text
        for name in ("cwd", "path")
        if (isinstance(text := given.get(name), str) and shell is None) or name == "cwd"
    ]
    bases = [text for text in folders if isinstance(text, str)]
    if shell is not None:
        line = given.get("command")
        appended = [name for field in _COMMANDS for text in _texts(given.get(field)) for name in _appended(text)]
        found = _CommandPaths(shell, line if isinstance(line, str) else "", appended)
        named, read = chain(named, found.named()), chain(read, found.read())
        bases += found.folders()
        bases = [*bases, posixpath.join("", *bases)] if len(bases) > 1 else bases
    starts = tuple(dict.fromkeys(bases[-_MAX_BASES:]))
    names, too_many = _affordable(named, len(starts))
    directories, too_many_read = _affordable(read, len(starts))
    return CallPaths(names, directories, starts, too_many or too_many_read)


def is_content(name: str) -> bool:
    """Return whether an argument of this name is content, not a path."""
    return name.lower().replace("_", "").replace("-", "") in _CONTENT


def patch_paths(patch: str) -> Iterator[str]:
    """Yield the files that a patch names, in every format; of a unified diff with and without `a/` and `b/`."""
    patch = patch.removeprefix(BOM)
    for found in _NAMING_LINES.finditer(patch):
        line = found[0].rstrip("\r")
        names: list[str] = []
        if len(line) > _MAX_HEADER:
            names = [UNREAD]
        elif line.startswith(DIFF_GIT):
            rest = line.removeprefix(DIFF_GIT)
            half = len(rest) // 2
            names = [rest[:half], rest[half + 1 :], *rest.split(" "), *_GIT_QUOTED.findall(rest)]
        elif line.startswith(_RENAMES):
            names = [line.split(" ", 2)[2]]
        elif header := section(line):
            yield header[1]
        else:
            end = patch.find("\n", found.end() + 1)
            following = patch[found.end() + 1 : end if end >= 0 else None]
            names = [name_of(line), name_of(following)] if is_name_pair(line, following) else []
        for name in names:
            try:
                path = unquote_path(name)
            except ValueError:
                path = name  # the patch will be refused
            yield path
            if path.startswith(("a/", "b/")):
                yield path[2:]


def _fields(fields: Mapping[str, Any]) -> Iterator[NamedPath]:
    for name, value in fields.items():
        key = name.lower()
        if key in _PATCHES and isinstance(value, str):
            yield from (NamedPath(path, path) for path in patch_paths(value) if path != "/dev/null")
        elif key == "glob" and isinstance(value, str):
            for pattern in search_globs(value):
                if not is_exclusion(pattern):
                    yield from (NamedPath(path, value) for path in braces(pattern))
        elif not is_content(name):
            # A name may hold a newline: what is certainly a path counts with it.
            texts = (
                (value,) if key in _PATHS and isinstance(value, str) and len(value) <= _MAX_PATH else _strings(value)
            )
            yield from (NamedPath(text, text) for text in texts)


def _strings(value: Any) -> Iterator[str]:
    yield from (text for text in _texts(value) if text and "\n" not in text and len(text) <= _MAX_PATH)


def _texts(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            pending += one
        elif isinstance(one, Mapping):
            pending += [part for name, part in one.items() if not is_content(name)]


def _tool_reads(tool: str, given: Mapping[str, Any]) -> Iterator[ReadDirectory]:
    path, glob = given.get("path", "."), given.get("glob")
    if not isinstance(path, str):
        return
    if tool == "workspace.delete" and given.get("recursive") is True:
        yield ReadDirectory(path, path, "", hidden=True)
    if tool == "workspace.search":
        # Hidden files are left out, unless the call asks for them or a glob includes them; `*` includes all.
        only = [one for one in search_globs(glob) if not is_exclusion(one)] if isinstance(glob, str) else []
        everything = any(spells_nothing(path) for one in only for path in braces(one))
        hidden = given.get("hidden") is True
        if everything or hidden or not only:
            yield ReadDirectory(path, path, "", hidden=everything or hidden)


def _affordable(paths: Iterator[_PathT], bases: int) -> tuple[tuple[_PathT, ...], bool]:
    """Return the paths without repetitions, and whether there are more than can be compared with patterns."""
    budget = WorkBudget(_MAX_COST // (1 + bases))
    found: dict[_PathT, None] = {}
    for each in paths:
        cost = _COST_OF_REPETITION if each in found else _cost(each)
        found[each] = None
        if not budget.spend(cost):
            return tuple(found), True
    return tuple(found), False


def _cost(path: NamedPath | ReadDirectory) -> int:
    one = _COST_OF_NAME if isinstance(path, NamedPath) else _COST_OF_DIRECTORY
    return one + len(path.path) + (0 if is_known(path.path) else _COST_OF_UNKNOWN)


def _appended(text: str) -> Iterator[str]:
    """Yield the variables that a text may append to."""
    for word in _APPENDED.findall(text):
        yield from _NAME.findall(word)[:1]


def _continued(words: tuple[Word, ...]) -> Iterator[Word]:
    """Yield what a variable may hold that a line appends to: each value with any end, and all of them."""
    for word in words:
        yield Word(word.text, dynamic=True)
    if not any(word.dynamic for word in words):
        yield Word("".join(word.text for word in words))


class _CommandPaths:
    """Reads the views of a command."""

    def __init__(self, shell: ShellViews, line: str, appended: Iterable[str]) -> None:
        self._shell = shell
        self._passes_words = _PASSES_WORDS.search(line) is not None
        set_words: dict[str, dict[Word, None]] = {}
        for name, word in shell.values:
            if name:
                set_words.setdefault(name, {})[word] = None
        self._values = {name: tuple(words) for name, words in set_words.items()}
        for name in set(appended) & set(self._values):
            self._values[name] += tuple(_continued(self._values[name]))
        self._read_words: dict[tuple[Word, bool], tuple[str, ...]] = {}
        self._takes_words = any(
            word.dynamic
            for command in shell.seen
            if command.name not in _NAMES_ONLY and command.name not in WRAPPERS
            for word in command.words[1:]
        )
        """A command that reads files takes arguments that are only known when it runs."""

    def named(self) -> Iterator[NamedPath]:
        for command in self._shell.seen:
            yield from self._command(command)
        for word in (*self._shell.redirections, *(word for _, word in self._shell.values)):
            yield from self._readings(word, "")
        for command in self._shell.guessed:
            yield from (path._replace(certain=False) for path in self._readings(command.words[0], ""))
        if self._takes_words or self._passes_words:
            for text in self._shell.inputs:
                for part in text.split():
                    yield from self._readings(unquote(part), "")

    def read(self) -> Iterator[ReadDirectory]:
        for command in self._shell.seen:
            by = command.shown
            for found in directory_reads(command, names_are_used=self._takes_words):
                only = [path for text in found.only for path in braces(text)]
                if only and not any(spells_nothing(path) for path in only):
                    continue  # the patterns themselves are among the named paths
                for path in word_paths(found.directory, self._values):
                    shown = found.directory.text or path.replace(ANY, "…")
                    yield ReadDirectory(path, shown, by, found.hidden)

    def folders(self) -> list[str]:
        """Return where `cd` and options such as `git -C` go, in order."""
        found: list[str] = []
        for command in self._shell.seen:
            words = command.words[1:]
            if command.name in ("cd", "pushd"):
                found += [path for word in words[:2] if word.text != "--" for path in word_paths(word, self._values)]
            for word, value in pairwise(words):
                found += word_paths(value, self._values) if word.text in _FOLDER_OPTIONS else []
        return list(islice(found, _MAX_BASES))

    def _command(self, command: SimpleCommand) -> Iterator[NamedPath]:
        words, name, shown = command.words, command.name, command.shown
        if name in _PRINTERS:
            if self._passes_words:
                for word in words[1:]:
                    yield from self._readings(word, shown)
                    yield from self._readings(unquote("$'" + word.text.replace("'", "\\'") + "'"), shown)
            return
        pattern = pattern_argument(command)
        wildcards = self._wildcards(command)
        program = next((at for at, word in enumerate(words) if at and not word.text.startswith("-")), 0)
        for at, word in enumerate(words):
            if at == pattern or self._is_excluding(command, at):
                continue
            if name in _PROGRAMS and at:
                for text in code_paths(word.text + word.rest):
                    yield NamedPath(text, text, shown, certain=False)
                if at == program and name in _FIRST_IS_PROGRAM:
                    continue
            yield from self._readings(word, shown, globs=at in wildcards)

    def _wildcards(self, command: SimpleCommand) -> frozenset[int]:
        """Return the indexes of words whose wildcards the command expands itself."""
        words = command.words
        if command.name == "git":
            if not any(word.text in _PATHSPECS for word in words[1:]):
                return frozenset()
            return frozenset(at for at, word in enumerate(words) if not word.text.startswith("-"))
        options = _WILDCARD_OPTIONS.get(command.name, ())
        return frozenset(
            at
            for at, word in enumerate(words)
            if at and options and (words[at - 1].text in options or word.text.startswith(options))
        )

    def _is_excluding(self, command: SimpleCommand, at: int) -> bool:
        """Return whether the word names what the command leaves out."""
        words = command.words
        if words[at].text.partition("=")[0] in _EXCLUDES and "=" in words[at].text:
            return True
        if command.name in ("find", "gfind") and at > 1:
            return words[at - 1].text in _WILDCARD_OPTIONS["find"] and words[at - 2].text in ("!", "-not")
        return command.name in ("tar", "rsync", "grep", "egrep", "diff", "du") and words[at - 1].text in _EXCLUDES

    def _readings(self, word: Word, shown: str, *, globs: bool = False) -> Iterator[NamedPath]:
        key = (word, globs)
        if key not in self._read_words:
            paths = word_paths(word, self._values, globs=globs)
            found = dict.fromkeys(reading for path in paths for reading in readings(path))
            self._read_words[key] = tuple(reading for reading in found if not spells_nothing(reading))
        for reading in self._read_words[key]:
            yield NamedPath(reading, word.text + word.rest, shown)
