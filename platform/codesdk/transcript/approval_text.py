"""Renders what an approver must see first: the words that made policy ask, and what the call can do. Pure.

Everything comes from an approval's `shown`. The approval page, terminals and messages share these functions, so that their
texts agree.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from codesdk.transcript.rendering import line

MAX_COMMANDS = 6
"""Commands of one kind in a terminal or a message; the approval page lists all of them."""
MAX_CHARACTERS = 160
"""Characters of one command there."""


class Severity(IntEnum):
    """How much an effect matters to who approves it."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2


_PARTLY_KNOWN = re.compile(r"([\w./:=,@%+-]*…)?")
_HIGH = frozenset(("deletes", "publishes", "rewrites-history", "changes-remote", "other-user", "unknown"))


class Piece(NamedTuple):
    """Part of a text, and whether it is marked: a word that made policy ask."""

    text: str
    marked: bool = False


class EffectGroup(NamedTuple):
    """What some of the commands can do."""

    text: str
    severity: Severity
    commands: tuple[str, ...]
    """As one would type them. Empty for a call that runs no command."""


def effect_groups(shown: Mapping[str, Any]) -> list[EffectGroup]:
    """What the call can do, worst first; commands with the same effect are together."""
    groups: dict[str, tuple[Severity, list[str]]] = {}
    for each in _mappings(shown.get("effects")):
        text = str(each.get("text", ""))
        _, commands = groups.setdefault(text, (_severity(each.get("effects")), []))
        if (command := _command(each.get("command"))) and command not in commands:
            commands.append(command)
    found = [EffectGroup(text, severity, tuple(commands)) for text, (severity, commands) in groups.items() if text]
    return sorted(found, key=lambda group: -group.severity)


def effect_lines(shown: Mapping[str, Any]) -> list[str]:
    """The same as lines of text."""
    lines = []
    for group in effect_groups(shown):
        more = len(group.commands) - MAX_COMMANDS
        commands = [_shortened(command) for command in group.commands[:MAX_COMMANDS]]
        commands += [f"and {more} more"] if more > 0 else []
        lines.append(line(f"{group.text}: {'; '.join(commands)}" if commands else group.text))
    return lines


def cause_pieces(shown: Mapping[str, Any]) -> list[Piece]:
    """The command that made policy ask, with its decisive words marked. Empty if the reason is about the whole call."""
    cause = shown.get("cause")
    words = cause.get("command") if isinstance(cause, Mapping) else None
    if not isinstance(cause, Mapping) or not isinstance(words, Sequence) or isinstance(words, str):
        return []
    return marked_words([str(word) for word in words], _numbers(cause.get("words")))


def marked_words(words: Sequence[str], marked: Sequence[int]) -> list[Piece]:
    """Words as one would type them, some of them marked. An empty one is only known when it runs."""
    pieces: list[Piece] = []
    for index, word in enumerate(words):
        is_marked = index in marked
        if pieces and is_marked == pieces[-1].marked:
            pieces[-1] = Piece(f"{pieces[-1].text} {_typed(word)}", is_marked)
        elif pieces:
            space = " " if is_marked else ""
            pieces[-1] = Piece(pieces[-1].text + space, pieces[-1].marked)
            pieces.append(Piece(_typed(word) if is_marked else f" {_typed(word)}", is_marked))
        else:
            pieces.append(Piece(_typed(word), is_marked))
    return pieces


def cause_line(shown: Mapping[str, Any]) -> str:
    """The same as text, with `[` and `]` around marked words: `[git push --force] origin main`."""
    return line(
        "".join(
            f"[{_shortened(piece.text)}]" if piece.marked else _shortened(piece.text) for piece in cause_pieces(shown)
        )
    )


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def line_pieces(shown: Mapping[str, Any]) -> list[Piece]:
    """The call's command line, with the words marked that made policy ask. Empty if it has no command line."""
    given = shown.get("input")
    text = given.get("command") if isinstance(given, Mapping) else None
    if not isinstance(text, str):
        return []
    pieces, at = [], 0
    for start, end in _joined(_spans(shown.get("cause"), len(text)), text):
        pieces += [Piece(text[at:start]), Piece(text[start:end], marked=True)]
        at = end
    return [piece for piece in (*pieces, Piece(text[at:])) if piece.text]


def _joined(spans: list[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Spans with only spaces between them as one, so that `git push --force` reads as what it is."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and not text[joined[-1][1] : start].strip(" "):
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _spans(cause: Any, length: int) -> list[tuple[int, int]]:
    spans = cause.get("spans") if isinstance(cause, Mapping) else None
    found = []
    for span in spans if isinstance(spans, Sequence) and not isinstance(spans, str) else ():
        start_end = _numbers(span)
        if len(start_end) == 2 and 0 <= start_end[0] < start_end[1] <= length:  # noqa: PLR2004 (start and end)
            found.append((start_end[0], start_end[1]))
    return sorted(found)


def _severity(effects: Any) -> Severity:
    names = {str(each) for each in effects} if isinstance(effects, Sequence) and not isinstance(effects, str) else set()
    if names & _HIGH or not names:
        return Severity.HIGH
    return Severity.LOW if names == {"reads"} else Severity.MEDIUM


def _command(words: Any) -> str:
    known = isinstance(words, Sequence) and not isinstance(words, str)
    return " ".join(str(word) if word in (">", ">>") else _typed(str(word)) for word in words) if known else ""


def _typed(word: str) -> str:
    """A word as one would type it; `…` stands for what is only known when it runs."""
    return (word or "…") if _PARTLY_KNOWN.fullmatch(word) else shlex.quote(word)


def _mappings(given: Any) -> list[Mapping[str, Any]]:
    known = isinstance(given, Sequence) and not isinstance(given, str)
    return [each for each in given if isinstance(each, Mapping)] if known else []


def _numbers(given: Any) -> list[int]:
    known = isinstance(given, Sequence) and not isinstance(given, str)
    return [each for each in given if isinstance(each, int)] if known else []
