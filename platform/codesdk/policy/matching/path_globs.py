"""Compares path patterns with paths that may be known only in part.

A path is a text in which the marks below stand for what a shell or program fills in when it runs: `.e*` may become
`.env`. Such a path *may* match a pattern if both have a path in common, and if the path contains a character of the name
that the pattern contains, too. `*` and `$X` alone could be anything, and never match.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import copy
from enum import Enum
from fnmatch import translate
from functools import cached_property

from codesdk.domain.work_budget import WorkBudget
from codesdk.policy.shell.patterns import Fit

ANY = "\x01"
"""Any text."""
ONE = "\x02"
"""Any one character."""
UNREAD = f"{ANY}/{ANY}{ONE}{ANY}/{ANY}{ONE}{ANY}/{ANY}{ONE}{ANY}"
"""A path that was not read to its end, and counts as one that spells something: it may match any pattern."""
_SET_START, _SET_END = "\x03", "\x04"
_MARKS = re.compile("[\x01-\x04]")
_PIECE = re.compile("\x03[^\x04]*\x04|.", re.DOTALL)
_BRACKET_PART = re.compile(r"\]|\[[:.=]")
_CLASS = re.compile(r"\[[.=]")
_MAX_FAILED = 16
"""Brackets without an end, each of which is searched for to the end of the text."""
_MAX_TOKENS = 64
"""Characters of one partly known name that are compared; those in the middle of a longer one may be anything."""
_MAX_NAMES = 64
MAX_STEPS = 200_000
"""Steps of comparing partly known names for one call, about 0.2 s; beyond them, a path may match. Doesn't count the search for
places of `**`."""
_STEPS_PER_NAME = 3
"""What looking at one name of an unknown path takes for each pattern, in steps of `MAX_STEPS`."""
WORKSPACE = "workspace"

_DEEP = "**"
_Visited = dict[tuple[int, int], tuple[bool, bool]]
"""Results by index in a pattern's names and in a path's."""


def with_marks(text: str) -> str:
    """Return a path whose wildcards are marks."""
    if "]" in text and "[" in text:
        text = "".join(_brackets(text))
    return text.replace("*", ANY).replace("?", ONE)


def _brackets(text: str) -> Iterator[str]:
    """Yield the pieces of a text, with the marks of its bracket expressions."""
    at = failed = 0
    last = text.rfind("]")
    while (start := text.find("[", at, last)) >= 0:
        yield text[at:start]
        end = _bracket_end(text, start, last)
        if end < 0:
            failed += 1
            if failed > _MAX_FAILED:
                yield UNREAD
                return
            yield "["
            at = start + 1
            continue
        members = text[start + 1 : end]
        open_ended = members[:1] in ("!", "^") or "-" in members[1:-1] or ":" in members or _CLASS.search(members)
        yield ONE if open_ended else f"{_SET_START}{members}{_SET_END}"
        at = end + 1
    yield text[at:]


def _bracket_end(text: str, start: int, last: int) -> int:
    """Return where the bracket expression ends that starts at `start`; -1 if it doesn't."""
    at = start + 1
    at += text.startswith(("!", "^"), at)
    at += text.startswith("]", at) and at < last
    while 0 <= at <= last:
        found = _BRACKET_PART.search(text, at)
        if found is None or found[0] == "]":
            return found.start() if found else -1
        # A class without its end is an ordinary character.
        end = text.find(f"{found[0][1]}]", found.end(), last + 1)
        at = end + 2 if end >= 0 else found.start() + 1
    return -1


def is_known(path: str) -> bool:
    """Return whether no part of the path is open."""
    return _MARKS.search(path) is None


def spells_nothing(path: str) -> bool:
    """Return whether the path may be any path."""
    return all(name in (".", "..") or not name.strip(ANY) for name in path.split("/"))


class Home(Enum):
    """Where a path starts."""

    ROOT = "/"
    WORKSPACE = ""
    UNKNOWN = "~"


class PathNames:
    """The names of a path, without `.` and `..`, in lower case."""

    def __init__(self, path: str) -> None:
        path = path.lower()
        names = path.split("/")
        self.start = Home.ROOT if path.startswith("/") else Home.WORKSPACE
        if names[0].startswith("~") or names[0] == ANY:
            self.start = Home.UNKNOWN
        self.names = _resolved(names, absolute=self.start is Home.ROOT)

    @cached_property
    def absolute(self) -> list[str]:
        """The names from the root on; of a path that may start anywhere, as written."""
        if self.start is Home.WORKSPACE:
            return _resolved([WORKSPACE, *self.names], absolute=True)
        return self.names

    @cached_property
    def known(self) -> bool:
        """No name is open."""
        return all(map(is_known, self.names))

    @property
    def holds_everything(self) -> bool:
        """The path is the workspace, a directory above it, a home directory, or may be any directory."""
        if self.start is Home.UNKNOWN:
            return len(self.names) == 1
        names = self.absolute
        return not names or names in ([WORKSPACE], ["root"]) or (names[0] in ("home", "users") and len(names) <= 2)  # noqa: PLR2004


def _resolved(names: Sequence[str], *, absolute: bool) -> list[str]:
    found: list[str] = []
    for name in names:
        if name == ".." and found and found[-1] != "..":
            found.pop()
        elif name not in ("", ".") and not (name == ".." and absolute and not found):
            found.append(name)
    return found[-_MAX_NAMES:]


def without_proc_links(path: str) -> str:
    """Return the path behind `/proc/<process>/root` and `cwd`, which lead to all files; empty if the path has no such link."""
    if "root" not in path.lower() and "cwd" not in path.lower() and is_known(path):
        return ""
    found: list[str] = []
    linked = False
    for name in (path if path.startswith("/") else f"{WORKSPACE}/{path}").lower().split("/"):
        found = _resolved([*found, name], absolute=True)
        at = 4 if found[2:3] == ["task"] else 2
        if len(found) == at + 1 and found[0] == "proc" and (found[at] in ("root", "cwd") or ANY in found[at]):
            found = [WORKSPACE] if found[at] == "cwd" else []
            linked = True
    return "/" + "/".join(found) if linked else ""


class _Name:
    """One name of a pattern."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.deep = pattern == _DEEP
        self.hidden = pattern.startswith(".")
        self.tokens = _tokens(with_marks(pattern))


class PathPattern:
    """One compiled pattern."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.rooted = text.startswith("/")
        written = text.lower().strip("/").split("/")
        self.names = tuple(_Name(name) for name in written)
        self.first = "" if set(written[0]) & set("*?[") else written[0]
        """The name that a path needs at least; empty if the pattern starts with a wildcard."""

    @property
    def is_name(self) -> bool:
        """A single name, which matches in every directory."""
        return not self.rooted and len(self.names) == 1


class PathSet:
    """Patterns of paths, and exceptions from them."""

    def __init__(self, patterns: Sequence[str], exceptions: Sequence[str] = ()) -> None:
        self._patterns = [PathPattern(text) for text in patterns]
        self._exceptions = [PathPattern(text) for text in exceptions]
        names = [pattern.names[0].pattern for pattern in self._patterns if pattern.is_name]
        self._name = re.compile("|".join(translate(name) for name in names) or r"(?!)")
        firsts = {pattern.first for pattern in self._patterns if not pattern.is_name}
        one_of = "|".join(map(translate, [*names, *firsts]))
        self._needed = re.compile(one_of if firsts.isdisjoint(("", WORKSPACE)) else "")
        """What one name of a known path must match, for the path to match a pattern. Comparing the rest takes far longer."""
        self._fits = {name.pattern: re.compile(translate(name.pattern)) for name in self._all_names()}
        self.begin()

    def begin(self) -> None:
        """Forget what was compared, and start with a new limit on the work."""
        self._budget = WorkBudget(MAX_STEPS)
        self._compared: dict[tuple[str, str], Fit] = {}

    def _all_names(self) -> Iterator[_Name]:
        for pattern in (*self._patterns, *self._exceptions):
            yield from pattern.names

    def fresh(self) -> PathSet:
        """Return the same set with a new limit on its work, for one call."""
        made = copy(self)
        made.begin()
        return made

    def find(self, path: str) -> tuple[Fit, str]:
        """Return whether the path, or a directory above it, matches, and the pattern."""
        if is_known(path) and not any(map(self._needed.match, path.lower().split("/"))):
            return Fit.NO, ""
        names = PathNames(path)
        found = self._find(names)
        return (Fit.NO, "") if found[0] is not Fit.NO and self._is_excepted(names) else found

    def _find(self, names: PathNames) -> tuple[Fit, str]:
        best, by = Fit.NO, ""
        named = [name for name in names.names if self._name.match(name) and is_known(name)]
        for pattern in self._patterns:
            if pattern.is_name and any(self._fits[pattern.names[0].pattern].match(name) for name in named):
                return Fit.YES, pattern.text
            if names.known and (pattern.is_name or (pattern.first and pattern.first not in names.absolute)):
                continue
            fit = self._match(pattern, names)
            if fit > best:
                best, by = fit, pattern.text
            if best is Fit.YES:
                break
        return best, by

    def held_by(self, directory: str, *, hidden: bool) -> str:
        """Return the pattern of which a directory may hold a match, if it is read with all beneath it; empty if none.

        `hidden`: hidden files are read as well. A single name is expected only in the workspace's root and other starting
        points, else every directory would be a question; a pattern with directories in each of them, and `**/` everywhere.
        """
        names = PathNames(directory)
        for pattern in self._patterns:
            if hidden and names.holds_everything and (not pattern.rooted or names.absolute != [WORKSPACE]):
                return pattern.text
            where = names.absolute if pattern.rooted else names.names
            for count in range(1, len(pattern.names)):
                if not hidden and any(name.hidden for name in pattern.names[count:]):
                    continue
                if self._is_prefix(pattern, pattern.names[:count], where):
                    return pattern.text
            if pattern.rooted and names.start is Home.ROOT and not names.names:
                return pattern.text
        return ""

    def _is_prefix(self, pattern: PathPattern, wanted: Sequence[_Name], where: Sequence[str]) -> bool:
        visited: _Visited = {}
        starts = range(1) if pattern.rooted else range(len(where) + 1)
        return any(self._sequence(wanted, where, 0, at, visited, whole=True)[0] for at in starts)

    def _is_excepted(self, names: PathNames) -> bool:
        for pattern in self._exceptions:
            where = names.absolute if pattern.rooted else names.names
            starts = range(1) if pattern.rooted else range(len(where))
            compared = where if any(name.deep for name in pattern.names) else where[-len(pattern.names) :]
            visited: _Visited = {}
            if all(map(is_known, compared)) and any(
                self._sequence(pattern.names, where, 0, at, visited, whole=True)[0] for at in starts
            ):
                return True
        return False

    def _match(self, pattern: PathPattern, names: PathNames) -> Fit:
        where = names.absolute if pattern.rooted else names.names
        anywhere = not pattern.rooted or names.start is Home.UNKNOWN
        best = Fit.NO
        if not names.known and not self._budget.spend(_STEPS_PER_NAME * len(where)):
            return Fit.MAYBE
        visited: _Visited = {}
        for at in range(len(where) if anywhere else 1):
            fits, spelled = self._sequence(pattern.names, where, 0, at, visited, whole=False)
            if fits and names.known:
                return Fit.YES
            if fits and spelled:
                best = Fit.MAYBE
        return best

    def _sequence(
        self, wanted: Sequence[_Name], where: Sequence[str], index: int, at: int, visited: _Visited, *, whole: bool
    ) -> tuple[bool, bool]:
        """Return whether names of a pattern match names of a path from `at` on, and whether the path spells one of them.

        `visited` holds the results for this pattern and path, so that several `**` don't try the same names again.
        """
        found = visited.get((index, at))
        if found is None:
            found = visited[index, at] = self._sequence_from(wanted, where, index, at, visited, whole=whole)
        return found

    def _sequence_from(
        self, wanted: Sequence[_Name], where: Sequence[str], index: int, at: int, visited: _Visited, *, whole: bool
    ) -> tuple[bool, bool]:
        if index == len(wanted):
            return (not whole or at == len(where)), False
        name = wanted[index]
        if name.deep:
            found = [
                self._sequence(wanted, where, index + 1, then, visited, whole=whole)
                for then in range(at, len(where) + 1)
            ]
            return any(fits for fits, _ in found), any(fits and spelled for fits, spelled in found)
        if at >= len(where):
            return False, False
        fit = self._name_fit(name, where[at])
        if fit is Fit.NO:
            return False, False
        fits, spelled = self._sequence(wanted, where, index + 1, at + 1, visited, whole=whole)
        # A visible name such as `config.json` is weak evidence if the pattern also has a hidden directory.
        counts = name.hidden or not any(other.hidden for other in wanted)
        return fits, fits and (spelled or (fit is Fit.YES and counts))

    def _name_fit(self, name: _Name, text: str) -> Fit:
        """Compare one name: MAYBE if it may be the pattern's and spells nothing of it."""
        if is_known(text):
            return Fit.YES if self._fits[name.pattern].match(text) else Fit.NO
        key = (name.pattern, text)
        if key not in self._compared:
            self._compared[key] = self._overlap(name.tokens, _tokens(text))
        return self._compared[key]

    def _overlap(self, pattern: tuple[str, ...], text: tuple[str, ...]) -> Fit:
        """Return whether two names with wildcards have a name in common: YES if both spell a character of it."""
        if not pattern or not text or not _common(pattern[0], text[0]) or not _common(pattern[-1], text[-1]):
            return Fit.NO
        best = Fit.NO
        pending = [(0, 0, False)]
        visited: set[tuple[int, int, bool]] = set()
        while pending:
            state = pending.pop()
            if state in visited:
                continue
            visited.add(state)
            if not self._budget.spend(1):
                return Fit.YES
            at, there, spelled = state
            if at == len(pattern) and there == len(text):
                if spelled:
                    return Fit.YES
                best = Fit.MAYBE
            pending += _next(pattern[at : at + 1], text[there : there + 1], state)
        return best


def _next(
    pattern: tuple[str, ...], text: tuple[str, ...], state: tuple[int, int, bool]
) -> Iterator[tuple[int, int, bool]]:
    """Yield the states after the next token of a pattern and of a name; both are empty at their ends."""
    at, there, spelled = state
    if pattern == (ANY,):
        yield at + 1, there, spelled
        if text and text != (ANY,):
            yield at, there + 1, spelled
    if text == (ANY,):
        yield at, there + 1, spelled
        if pattern and pattern != (ANY,):
            yield at + 1, there, spelled
    if pattern and text and (ANY,) not in (pattern, text) and _common(pattern[0], text[0]):
        # The dot of an extension is no evidence: `README.*` is not `*.pem`.
        says = len(pattern[0]) == 1 and pattern[0] != ONE and (pattern[0] != "." or at == 0)
        yield at + 1, there + 1, spelled or says


def _tokens(text: str) -> tuple[str, ...]:
    found = _PIECE.findall(text)
    if len(found) > _MAX_TOKENS:
        half = _MAX_TOKENS // 2
        found = [*found[:half], ANY, *found[-half:]]
    return tuple(found)


def _common(one: str, other: str) -> bool:
    """Return whether two tokens can be the same character."""
    if {one, other} & {ANY, ONE}:
        return True
    return not set(one.strip("\x03\x04")).isdisjoint(other.strip("\x03\x04"))
