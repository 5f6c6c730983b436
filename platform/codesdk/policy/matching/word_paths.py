"""Reads the words of a command as paths: what an expansion may become is a mark (`path_globs`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from codesdk.policy.matching.path_globs import ANY, UNREAD, with_marks
from codesdk.policy.shell.words import Word, unquote

Values = Mapping[str, Sequence[Word]]
"""What variables may hold, as far as the line sets them."""

_MAX_ALTERNATIVES = 64
_MAX_DEPTH = 3
"""Variables in the values of variables."""
_MAX_LEVEL = 8
"""Braces in braces; what is deeper may be any path."""
_MAX_PIECES = 32
_LITERAL = re.compile(r"[^\\${}<>`'\"]+")
_BRACKETS = re.compile(r"[{}(),]")
_BRACES = re.compile(r"(?<!\$)\{")
_ANSI = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_DEFAULT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?:?[-=+]", re.DOTALL)
_SPECIAL = re.compile(r"\$[0-9@*#?$!-]")
_URL = re.compile(r"(?:--?[\w-]+=)?(?!file:)[a-z][a-z0-9+.-]{1,20}://[^/\s]", re.IGNORECASE)
_SEPARATOR = re.compile(r"[=:@,;<)]")
_CODE = re.compile(r"[^\s'\"`(){}\[\]<>;,|&$=:]{3,}")
_ATTACHED = 8
"""Letters of a cluster of options behind which a value is looked for: `-xzf.env`."""


def word_paths(word: Word, values: Values, *, globs: bool = False) -> list[str]:
    """Return what the word may be. `globs`: its command reads wildcards itself, even quoted ones."""
    return _word_paths(word, values, 0, globs=globs)


def _word_paths(word: Word, values: Values, depth: int, *, globs: bool = False) -> list[str]:
    known = with_marks(word.text) if word.glob or globs else word.text
    if not word.dynamic:
        return [known, *braces(word.text)] if globs and "{" in word.text else [known]
    return [known + rest for rest in (_expanded(word.rest, values, _Nesting(depth)) if word.rest else [ANY])]


def braces(text: str) -> list[str]:
    """Return the alternatives of a pattern with braces, and its wildcards as marks."""
    return _expanded(text, {}, _Nesting(_MAX_DEPTH))


class _Nesting(NamedTuple):
    """How many variables and braces a text is in."""

    variables: int = 0
    braces: int = 0


def _expanded(raw: str, values: Values, nesting: _Nesting) -> list[str]:
    """Return the texts that a word may become."""
    brackets = _Brackets(raw)
    found = [""]
    single: list[str] = []
    at = 0
    while at < len(raw):
        alternatives, at = _step(raw, at, brackets, values, nesting)
        if len(alternatives) == 1:
            single += alternatives
            continue
        before = "".join(single)
        single = []
        found = [one + before + other for one in found for other in alternatives]
        if len(found) > _MAX_ALTERNATIVES:
            return [ANY, UNREAD] if _BRACES.search(raw) else [ANY]
    after = "".join(single)
    return [with_marks(text + after) for text in found]


def _step(  # noqa: PLR0911 (a branch for each expansion)
    raw: str, at: int, brackets: _Brackets, values: Values, nesting: _Nesting
) -> tuple[list[str], int]:
    """Return the alternatives of the characters or the expansion at a position, and the position after them."""
    if literal := _LITERAL.match(raw, at):
        return [literal[0]], literal.end()
    char = raw[at]
    if raw.startswith("$'", at) and (ansi := _ANSI.match(raw, at)):
        return [unquote(ansi[0]).text], ansi.end()
    if variable := _VARIABLE.match(raw, at):
        return _variable(variable[1] or variable[2], values, nesting.variables), variable.end()
    if raw.startswith("${", at):
        return _default(raw, at, brackets, values, nesting)
    if raw.startswith(("$(", "<(", ">("), at):
        return [ANY], brackets.ends.get(at + 1, len(raw)) + 1
    if special := _SPECIAL.match(raw, at):
        return [ANY], special.end()
    if char == "`":
        end = raw.find("`", at + 1)
        return [ANY], len(raw) if end < 0 else end + 1
    if char == "{":
        return _group(raw, at, brackets, values, nesting)
    if char == "\\":
        return [raw[at + 1 : at + 2]], at + 2
    return (["" if char in "'\"" else char]), at + 1


def _default(raw: str, at: int, brackets: _Brackets, values: Values, nesting: _Nesting) -> tuple[list[str], int]:
    """Return the alternatives of `${…}`: anything, and its default."""
    end = brackets.ends.get(at + 1, len(raw))
    default = _DEFAULT.match(raw, at + 2, end)
    if default is None or nesting.variables >= _MAX_DEPTH:
        return [ANY], end + 1
    inner = nesting._replace(variables=nesting.variables + 1)
    return [ANY, *_expanded(raw[default.end() : end], values, inner)], end + 1


def _group(raw: str, at: int, brackets: _Brackets, values: Values, nesting: _Nesting) -> tuple[list[str], int]:
    """Return the alternatives of braces."""
    end = brackets.ends.get(at)
    if end is None:
        # The brace that closes it may be one that counts for a quoted brace before it.
        expands = brackets.commas.get(at) or raw.find("..", at) >= 0
        return ([ANY, UNREAD], len(raw)) if expands else (["{"], at + 1)
    if commas := brackets.commas.get(at):
        if nesting.braces >= _MAX_LEVEL:
            return [ANY, UNREAD], end + 1
        parts = [raw[one + 1 : other] for one, other in pairwise([at, *commas, end])]
        inner = nesting._replace(braces=nesting.braces + 1)
        return [text for part in parts for text in _expanded(part, values, inner)], end + 1
    return ([ANY], end + 1) if raw.find("..", at, end) >= 0 else (["{"], at + 1)


def _variable(name: str, values: Values, depth: int) -> list[str]:
    if depth >= _MAX_DEPTH:
        return [ANY]
    known = values.get(name, ())[:_MAX_ALTERNATIVES]
    return [ANY, *(text for word in known for text in _word_paths(word, values, depth + 1))]


class _Brackets:
    """Where the brackets of a text end, and the commas directly in its braces, by the index of the bracket."""

    def __init__(self, raw: str) -> None:
        self.ends: dict[int, int] = {}
        self.commas: dict[int, list[int]] = {}
        braces: list[int] = []
        others: list[int] = []
        for found in _BRACKETS.finditer(raw):
            char, at = found[0], found.start()
            opened = braces if char in "{}," else others
            if char in "{(":
                opened.append(at)
            elif opened and char == ",":
                self.commas.setdefault(opened[-1], []).append(at)
            elif opened:
                self.ends[opened.pop()] = at


def readings(path: str) -> Iterator[str]:
    """Yield the paths that a word may contain: all of it, an option's value, and what follows `=`, `:`, `@` or `,`."""
    if _URL.match(path) and ".." not in path:
        return
    yield path
    if path[:1] == "-" and path[1:2] != "-":
        yield from (path[at:] for at in range(2, min(len(path), _ATTACHED + 2)))
    if _SEPARATOR.search(path):
        ends = [found.end() for found in _SEPARATOR.finditer(path)][:_MAX_PIECES]
        yield from (path[end:] for end in ends)
        yield from _SEPARATOR.split(path, maxsplit=_MAX_PIECES)


def code_paths(text: str) -> Iterator[str]:
    """Yield the words of program text that may be paths."""
    yield from _CODE.findall(text)
