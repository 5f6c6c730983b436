"""Finds tool descriptions that try to instruct the model unnoticed, for the person who accepts a tool. Pure.

Detects patterns seen in attacks, and nothing else: a plainly worded request passes. This helps the person who accepts;
policy and the sandbox are the protection.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any, NamedTuple

import re2

from codesdk.registry.pins import OfferedTool

MAX_FINDINGS = 20
_EXCERPT_CHARACTERS = 60
"""Characters of text that a finding shows."""
_INVISIBLE = {
    range(0x200B, 0x2010): "a character without width, or a mark of direction",
    range(0x202A, 0x202F): "a character that changes the direction of text (bidi)",
    range(0x2060, 0x2065): "a character without width",
    range(0x2066, 0x2070): "a character that changes the direction of text (bidi)",
    range(0xFE00, 0xFE10): "a variation selector",
    range(0xFFF9, 0xFFFC): "an annotation character",
    range(0xE0000, 0xE0080): "a tag character, which models read and people do not see",
    range(0xE0100, 0xE01F0): "a variation selector",
    range(0x00AD, 0x00AE): "a soft hyphen",
    range(0x061C, 0x061D): "a mark of direction",
    range(0x115F, 0x1161): "a filler without a shape",
    range(0x180B, 0x1810): "a character without width",
    range(0x3164, 0x3165): "a filler without a shape",
    range(0xFEFF, 0xFF00): "a character without width",
}
# RE2: the texts are a server's, and a backtracking engine takes time that grows with the square of a row of blanks.
_HEX = re2.compile(r"[0-9a-fA-F]{96,}")
_BASE64 = re2.compile(r"[A-Za-z0-9+/_-]{72,}={0,2}")
_OFF_SCREEN = re2.compile("[ \t\u00a0]{60,}" r"\S|(?:[ \t\r]*\n){12,}[ \t\r]*\S")
_PHRASES = tuple(
    (re2.compile(f"(?i){pattern}"), what)
    for pattern, what in (
        (
            (
                r"\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,40}"
                r"\b(?:previous|prior|above|earlier|preceding|other|all|any|your|system)\b[^.\n]{0,40}"
                r"\b(?:instruction|prompt|rule|message|guideline|context|tool|polic)"
            ),
            "tells the model to ignore what it was told",
        ),
        (
            (
                r"\b(?:do not|don't|never|without)\b[^.\n]{0,30}\b(?:tell|telling|mention|mentioning|inform|informing|reveal"
                r"|revealing|notify|notifying|show|showing)\b[^.\n]{0,40}\b(?:user|human|person|anyone|developer|operator)"
            ),
            "tells the model to keep something from its user",
        ),
        (r"\bsystem\s*(?:prompt|message|instruction)", "speaks of the system prompt"),
        (
            r"<\s*/?\s*(?:important|system|instructions?|secret|hidden|assistant|admin|critical)\b",
            "has a tag that is meant for the model",
        ),
        (r"<!--", "has a comment that is not shown where the text is rendered"),
        (
            (
                r"\b(?:you|assistant|model|ai|agent)\b\s+(?:must|should|shall|need to|have to|are required to)\b[^.\n]{0,60}"
                r"\b(?:always|first|before|also|call|invoke|use|read|send|include|pass|append)\b"
            ),
            "gives the model orders",
        ),
        (
            (
                r"\b(?:before|prior to|instead of|whenever|every time)\b[^.\n]{0,40}\b(?:using|calling|invoking|use|call|"
                r"invoke|run|running)\b[^.\n]{0,30}\b(?:any|other|another|every|all|all other|different)\b[^.\n]{0,20}\btool"
            ),
            "speaks of how other tools are to be used",
        ),
        (
            (
                r"(?:~/\.ssh|\bid_(?:rsa|ed25519|ecdsa)\b|\.aws/credentials|\bauthorized_keys\b|/etc/(?:passwd|shadow)|"
                r"\bmcp\.json\b|\.claude\.json|\b\.env\b file|\bapi[ _-]?keys?\b[^.\n]{0,30}\b(?:include|send|pass|read))"
            ),
            "names files or keys that hold secrets",
        ),
        (
            (
                r"\b(?:send|post|upload|forward|exfiltrate|transmit|copy)\b[^.\n]{0,60}\b(?:conversation|chat history|"
                r"message history|contents? of|credentials|secrets?|tokens?|passwords?)\b"
            ),
            "asks for something to be sent on",
        ),
    )
)


class Suspicion(NamedTuple):
    """A finding that a person should look at."""

    where: str
    """`description`, or a JSON pointer into a schema."""
    what: str
    shown: str
    """The matching text, with invisible characters escaped."""

    def __str__(self) -> str:
        return f"{self.where} {self.what}: {self.shown}"


def find_suspicions(tool: OfferedTool) -> tuple[Suspicion, ...]:
    """Find suspicious text in a tool's name, title, description, and all texts of its schemas."""
    found: list[Suspicion] = []
    for where, text in _texts(tool):
        for what, place in _scan(text):
            found.append(
                Suspicion(where, what, escape_invisible(text[max(0, place - 10) : place + _EXCERPT_CHARACTERS]))
            )
            if len(found) >= MAX_FINDINGS:
                return tuple(found)
    return tuple(found)


def escape_invisible(text: str) -> str:
    """Escape invisible characters, and put the text on one line, for a terminal."""
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    return " " if letter in "\n\t" else f"<U+{ord(letter):04X}>"


def _texts(tool: OfferedTool) -> Iterator[tuple[str, str]]:
    yield "name", tool.name
    if tool.title:
        yield "title", tool.title
    yield "description", tool.description
    for name, schema in (("input_schema", tool.input_schema), ("output_schema", tool.output_schema)):
        yield from _strings(f"/{name}", schema)


def _strings(where: str, value: Any) -> Iterator[tuple[str, str]]:
    stack = [(where, value)]
    while stack:
        at, node = stack.pop()
        if isinstance(node, str):
            yield at, node
        elif isinstance(node, dict):
            for key, below in node.items():
                yield f"{at} (a key)", str(key)
                stack.append((f"{at}/{key}"[:200], below))
        elif isinstance(node, list):
            stack += [(f"{at}/{number}"[:200], below) for number, below in enumerate(node)]


def _scan(text: str) -> Iterator[tuple[str, int]]:
    for place, letter in enumerate(text):
        if (what := _invisible_kind(letter)) is not None and not _is_emoji(text, place):
            yield f"has {what}", place
            break
    # Search the text as a reader sees it: without invisible characters, with compatible letters normalized.
    plain = "".join(letter for letter in unicodedata.normalize("NFKC", text) if _invisible_kind(letter) is None)
    for pattern, what in _PHRASES:
        if found := pattern.search(plain):
            yield what, min(found.start(), len(text))
    if found := _OFF_SCREEN.search(text):
        yield "has words far out of sight, behind blanks", found.end() - 1
    if found := _HEX.search(text) or _find_encoded(text):
        yield "has a long piece of encoded data", found.start()


def _find_encoded(text: str) -> Any:
    """Return a long base64 text, but no path, word or repeated letter."""
    for found in _BASE64.finditer(text):
        if len(set(found[0])) > 16 and any(c.isdigit() for c in found[0]) and any(c.isupper() for c in found[0]):  # noqa: PLR2004 (a blob has most letters)
            return found
    return None


def _is_emoji(text: str, place: int) -> bool:
    """Return whether a single variation selector follows a symbol. Rows of selectors can hide messages."""
    around = text[max(0, place - 1) : place + 2]
    return (
        text[place] == "\ufe0f" and place > 0 and unicodedata.category(around[0]) == "So" and around[1:2] != around[2:]
    )


def _invisible_kind(letter: str) -> str | None:
    code = ord(letter)
    if code < 0x20 and letter not in "\n\t\r":  # noqa: PLR2004 (control characters)
        return "a control character"
    if code < 0xAD:  # noqa: PLR2004 (nothing below it is in the table)
        return "a control character" if 0x7F <= code <= 0x9F else None  # noqa: PLR2004 (DEL and C1)
    for places, what in _INVISIBLE.items():
        if code in places:
            return what
    return "a character of private use" if unicodedata.category(letter) in ("Co", "Cn", "Cs") else None
