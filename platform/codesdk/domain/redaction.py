"""Redacts a call's result as policy requires. Patterns are RE2, so matching takes linear time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import re2

from codesdk.domain.decisions import REDACTED, RedactedKind, Redaction
from codesdk.domain.tool_results import ToolResult
from codesdk.domain.work_budget import WorkBudget

CUT_MARGIN_BYTES = 4096
"""Bytes withheld at a cut: a literal (1,000 characters of up to 4 bytes) that the cut splits would begin there."""
MAX_MATCHES = 10_000
"""Maximum matches of one pattern in one text; the rest is redacted as a whole. Otherwise a tool that prints many
matches could exhaust the worker's memory, and the replacements would inflate its output.
"""
MAX_VALUES = 50_000
"""Keys and values of one structured result that are searched, about a second with several patterns; all others are
redacted."""
_KIND_PATTERNS = {
    RedactedKind.EMAIL: r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
    # By the issuers' ranges (ISO/IEC 7812): Visa, Mastercard and Discover with 16 digits, American Express with 15.
    RedactedKind.CREDIT_CARD: (
        r"\b(?:(?:4\d{3}|5[1-5]\d{2}|2[2-7]\d{2}|6011|65\d{2})(?:[ -]?\d{4}){3}|3[47]\d{2}[ -]?\d{6}[ -]?\d{5})\b"
    ),
    # The key id by its prefix; the secret has no pattern of its own, so by the name before it.
    RedactedKind.AWS_KEY: (
        r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
        r"|(?i:(?:aws_?)?(?:secret_?access_?key|session_?token))[\\\"']*\s*[:=]\s*[\\\"']*[A-Za-z0-9/+=]{16,}"
    ),
    # RFC 7468 and OpenPGP. Without an end marker, the match extends to the end of the text.
    RedactedKind.PRIVATE_KEY: (
        r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
        r".*?(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)"
    ),
}


class InvalidPattern(ValueError):
    """RE2 rejects the pattern."""


def check_pattern(pattern: str) -> None:
    """Check that the pattern is usable.

    Raises:
        InvalidPattern: it doesn't parse, or matches the empty text.
    """
    if _compiled(pattern).search(b"") is not None:
        raise InvalidPattern("it matches the empty text")


class Redactor:
    """Redacts the parts of one call's result, and counts the redactions."""

    def __init__(self, redactions: Iterable[Redaction]) -> None:
        every = tuple(redactions)
        self._patterns = [_compiled(_regex_of(item)) for item in every if item.pointer is None]
        self._pointers = [_pointer_tokens(item.pointer) for item in every if item.pointer is not None]
        self.count = 0

    @property
    def withholds_output(self) -> bool:
        """Whether a JSON pointer is redacted. If so, no output or attachment is kept: it could repeat the value."""
        return bool(self._pointers)

    def clean(self, data: bytes, *, is_cut: bool = False) -> bytes:
        """Return the bytes with each match replaced by the marker and its line ends. Overlapping matches count as one.

        `is_cut`: the end is missing, so a match may be split; the last `CUT_MARGIN_BYTES` are redacted, too.
        """
        spans = [span for pattern in self._patterns for span in _spans(pattern, data)]
        if is_cut and self._patterns:
            spans.append((max(0, len(data) - CUT_MARGIN_BYTES), len(data)))
        pieces: list[bytes] = []
        place = 0
        for start, end in _merge_spans(spans):
            self.count += 1
            pieces += (data[place:start], REDACTED.encode(), b"\n" * data.count(b"\n", start, end))
            place = end
        return b"".join((*pieces, data[place:]))

    def clean_text(self, text: str, *, is_cut: bool = False) -> str:
        """Like `clean`, for text."""
        return self.clean(text.encode("utf-8", "replace"), is_cut=is_cut).decode("utf-8", "replace")

    def clean_result(self, result: ToolResult) -> ToolResult:
        """Redact the whole result. Its text reports the number of redactions and hides what pointers redact."""
        structured = result.structured
        for steps in self._pointers:  # before the patterns, which may rename keys
            structured, found = _replace_at(structured, steps)
            self.count += found
        if self._patterns and structured is not None:
            cleaned = self._redact_value(structured, WorkBudget(MAX_VALUES))
            structured = cleaned if isinstance(cleaned, dict) else {}
        changes: dict[str, Any] = {"structured": structured, "text": self.clean_text(result.text)}
        changes["differs"] = tuple(map(self.clean_text, result.differs))
        if self._pointers:
            changes |= {"stdout": None, "stderr": None}
            if structured is not None:
                changes["text"] = json.dumps(structured, ensure_ascii=False)
        if self.count:
            changes["text"] += (
                f"\n[policy took out {self.count} {'part' if self.count == 1 else 'parts'} of this result]"
            )
        return result.model_copy(update=changes)

    def _redact_value(self, value: Any, budget: WorkBudget) -> Any:
        if not budget.spend(1 + (len(value) if isinstance(value, dict) else 0)):
            self.count += 1
            return REDACTED
        if isinstance(value, str):
            return self.clean_text(value)
        if isinstance(value, dict):
            return self._redact_object(value, budget)
        if isinstance(value, list):
            return [self._redact_value(item, budget) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            # As JSON writes it, so that an unquoted card number matches. A redacted number becomes text.
            written = json.dumps(value)
            cleaned = self.clean_text(written)
            return value if cleaned == written else cleaned
        return value

    def _redact_object(self, value: dict[str, Any], budget: WorkBudget) -> dict[str, Any]:
        """Redact an object, including its keys. Keys that become equal are numbered, so that no value is lost."""
        cleaned: dict[str, Any] = {}
        often: Counter[str] = Counter()
        for key, item in value.items():
            base = name = self.clean_text(key)
            while base != key and (name in value or name in cleaned):
                often[base] += 1
                name = f"{base} {often[base] + 1}"
            cleaned[name] = self._redact_value(item, budget)
        return cleaned


def _spans(pattern: Any, data: bytes) -> Iterator[tuple[int, int]]:
    for number, match in enumerate(pattern.finditer(data)):
        if number == MAX_MATCHES:
            yield match.start(), len(data)
            return
        yield match.span()


def _regex_of(redaction: Redaction) -> str:
    if redaction.kind is not None:
        return _KIND_PATTERNS[redaction.kind]
    return str(redaction.pattern) if redaction.literal is None else str(re2.escape(redaction.literal))


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        said = error.args[0] if error.args else "it does not parse"
        raise InvalidPattern(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from error


def _merge_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif start < end:
            merged.append((start, end))
    return merged


def _pointer_tokens(pointer: str) -> tuple[str, ...]:
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])


def _replace_at(value: Any, steps: tuple[str, ...]) -> tuple[Any, bool]:
    """Return the value with the marker at the pointer, and whether the pointer existed."""
    if not steps:
        return REDACTED, True
    first, rest = steps[0], steps[1:]
    if isinstance(value, dict) and first in value:
        inner, found = _replace_at(value[first], rest)
        return {**value, first: inner}, found
    if isinstance(value, list) and first.isdecimal() and int(first) < len(value):
        inner, found = _replace_at(value[int(first)], rest)
        return [*value[: int(first)], inner, *value[int(first) + 1 :]], found
    return value, False
