"""Reads the words of a command as paths: what an expansion may become is a mark (`path_globs`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from codesdk.policy.matching.path_globs import ANY, with_marks
from codesdk.policy.shell.words import Word, unquote

Values = Mapping[str, Sequence[Word]]
"""What variables may hold, as far as the line sets them."""

_MAX_ALTERNATIVES = 64
_MAX_DEPTH = 3
"""Variables in the values of variables."""
_MAX_PIECES = 32
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
        return [known]
    return [known + rest for rest in (_expanded(word.rest, values, depth) if word.rest else [ANY])]


def braces(text: str) -> list[str]:
    """Return the alternatives of a pattern with braces, and its wildcards as marks."""
    return _expanded(text, {}, _MAX_DEPTH)


def _expanded(raw: str, values: Values, depth: int) -> list[str]:
    found = [""]
    at = 0
    while at < len(raw):
        alternatives, at = _step(raw, at, values, depth)
        found = [before + after for before in found for after in alternatives]
        if len(found) > _MAX_ALTERNATIVES:
            return [ANY]
    return [with_marks(text) for text in found]


def _step(raw: str, at: int, values: Values, depth: int) -> tuple[list[str], int]:  # noqa: PLR0911 (a branch for each expansion)
    """Return the alternatives of the character or expansion at a position, and the position after it."""
    char = raw[at]
    if ansi := _ANSI.match(raw, at):
        return [unquote(ansi[0]).text], ansi.end()
    if variable := _VARIABLE.match(raw, at):
        return _variable(variable[1] or variable[2], values, depth), variable.end()
    if raw.startswith("${", at):
        end = _closing(raw, at + 1)
        default = _DEFAULT.match(raw[at + 2 : end])
        rest = _expanded(raw[at + 2 + default.end() : end], values, depth + 1) if default and depth < _MAX_DEPTH else []
        return [ANY, *rest], end + 1
    if raw.startswith(("$(", "<(", ">("), at):
        return [ANY], _closing(raw, at + 1) + 1
    if special := _SPECIAL.match(raw, at):
        return [ANY], special.end()
    if char == "`":
        end = raw.find("`", at + 1)
        return [ANY], len(raw) if end < 0 else end + 1
    if char == "{":
        end = _closing(raw, at)
        parts = _split(raw[at + 1 : end])
        if len(parts) > 1:
            return [text for part in parts for text in _expanded(part, values, depth)], end + 1
        return ([ANY] if ".." in raw[at:end] else ["{"]), (end + 1 if ".." in raw[at:end] else at + 1)
    if char == "\\":
        return [raw[at + 1 : at + 2]], at + 2
    return (["" if char in "'\"" else char]), at + 1


def _variable(name: str, values: Values, depth: int) -> list[str]:
    if depth >= _MAX_DEPTH:
        return [ANY]
    known = values.get(name, ())[:_MAX_ALTERNATIVES]
    return [ANY, *(text for word in known for text in _word_paths(word, values, depth + 1))]


def _closing(raw: str, start: int) -> int:
    """Return the index of the bracket that closes the one at `start`, or of the end."""
    opens, closes = raw[start], {"{": "}", "(": ")"}[raw[start]]
    level = 0
    for at in range(start, len(raw)):
        level += (raw[at] == opens) - (raw[at] == closes)
        if level == 0:
            return at
    return len(raw)


def _split(text: str) -> list[str]:
    """Split at commas outside of inner braces."""
    parts, level = [""], 0
    for char in text:
        level += (char == "{") - (char == "}")
        if char == "," and level == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


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
