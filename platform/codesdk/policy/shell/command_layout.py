"""Finds the character positions of a line's commands, so that they can be marked for approvers. Pure.

A nested command is found as well: behind a wrapper, in a script in quotes, in a substitution. If a quoted script is not
written literally (it has escapes), its commands get the position of the whole word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tree_sitter import Node

from codesdk.policy.shell.commands import MAX_NESTING, SimpleCommand
from codesdk.policy.shell.nested_commands import NestedCommand, nested_commands
from codesdk.policy.shell.parser import Script, collect_commands
from codesdk.policy.shell.words import Word, unquote


class Span(NamedTuple):
    """Part of a line, in characters."""

    start: int
    end: int


class PlacedCommand(NamedTuple):
    """A command, and where each of its words is written; None where that is not known."""

    words: tuple[Word, ...]
    spans: tuple[Span | None, ...]


class PlacedRedirection(NamedTuple):
    """A redirection that writes a file."""

    appends: bool
    target: str
    """The file, as written."""
    span: Span


class LineLayout:
    """The places of a line's commands and of the redirections that write files."""

    def __init__(self, line: str) -> None:
        self.commands: list[PlacedCommand] = []
        self.redirections: list[PlacedRedirection] = []
        self._script(line, _Origin(0, None), 0)

    def find(self, command: Sequence[str], indexes: Sequence[int]) -> tuple[Span, ...]:
        """Where these words of a command are written, wherever the same command is; empty if it isn't found."""
        wanted = tuple(command)
        found = {
            span
            for placed in self.commands
            if tuple(word.text for word in placed.words) == wanted
            for index in indexes
            if index < len(placed.spans) and (span := placed.spans[index]) is not None
        }
        return tuple(sorted(found))

    def _script(self, text: str, origin: _Origin, depth: int) -> None:
        script = Script(text)
        if script.too_much or depth > MAX_NESTING:
            return
        collect_commands(script)
        stack: list[Node] = [script.root]
        while stack:
            node = stack.pop()
            stack.extend(reversed(node.children))
            if node.type == "file_redirect":
                self._redirection(script, node, origin)
            command = script.commands.get(node.id)
            if command is not None and command.words:
                spans = tuple(origin.place(span) for span in _word_spans(script, node, command))
                self._command(command.name, PlacedCommand(command.words, spans), text, origin, depth)

    def _command(self, name: str, placed: PlacedCommand, text: str, origin: _Origin, depth: int) -> None:
        self.commands.append(placed)
        if not name or depth > MAX_NESTING:
            return
        for inner in nested_commands(name, placed.words):
            if inner.words:
                spans = tuple(_span_of(word, placed) for word in inner.words)
                command = SimpleCommand(inner.words)
                self._command(command.name, PlacedCommand(inner.words, spans), text, origin, depth + 1)
            elif inner.script is not None and inner.script.text.strip():
                self._nested_script(inner, placed, text, origin, depth)

    def _nested_script(
        self, inner: NestedCommand, placed: PlacedCommand, text: str, origin: _Origin, depth: int
    ) -> None:
        assert inner.script is not None  # noqa: S101 (the caller has looked)
        wanted = inner.script.text
        for word, span in zip(placed.words, placed.spans, strict=True):
            if span is None or wanted not in word.text:
                continue
            at = -1 if origin.whole else text.find(wanted, span.start - origin.start, span.end - origin.start)
            self._script(wanted, _Origin(span.start, span) if at < 0 else _Origin(origin.start + at, None), depth + 1)
            return
        self._script(wanted, _Origin(0, Span(0, 0)), depth + 1)

    def _redirection(self, script: Script, node: Node, origin: _Origin) -> None:
        operator = next((child.type for child in node.children if not child.is_named), "")
        targets = node.children_by_field_name("destination")
        if operator not in (">", ">>", ">|", "&>", "&>>") or not targets:
            return
        written = script.text(targets[0].start_byte, targets[0].end_byte)
        if written in ("/dev/null", "/dev/stdout", "/dev/stderr"):
            return
        span = origin.place(_characters(script, targets[0].start_byte, targets[0].end_byte))
        if span is not None:
            self.redirections.append(PlacedRedirection(">>" in operator, written, span))


class _Origin(NamedTuple):
    """Where a script is written in the line: from `start`, or only known to be somewhere in `whole`."""

    start: int
    whole: Span | None

    def place(self, span: Span | None) -> Span | None:
        if self.whole is not None:
            return self.whole if self.whole.end else None
        return None if span is None else Span(span.start + self.start, span.end + self.start)


def _span_of(word: Word, placed: PlacedCommand) -> Span | None:
    """The place of a word that a nested command shares with the one that runs it."""
    return next((span for own, span in zip(placed.words, placed.spans, strict=True) if own is word), None)


def _word_spans(script: Script, node: Node, command: SimpleCommand) -> Iterator[Span | None]:
    """The place of each word of a command. Words that the parser found elsewhere have none."""
    pieces: list[tuple[int, int]] = []
    for child in node.children:
        if child.type == "variable_assignment" and node.type == "command":
            continue
        if child.type.endswith("_redirect"):
            continue
        start, end = child.start_byte, child.end_byte
        if pieces and script.is_one_word(pieces[-1][1], start):
            start = pieces.pop()[0]
        pieces.append((start, end))
    for index, word in enumerate(command.words):
        if index < len(pieces) and unquote(script.text(*pieces[index])) == word:
            yield _characters(script, *pieces[index])
        else:
            yield None


def _characters(script: Script, start: int, end: int) -> Span:
    """A span of the source's bytes, in characters."""
    before = len(script.source[:start].decode("utf-8", "surrogatepass"))
    return Span(before, before + len(script.source[start:end].decode("utf-8", "surrogatepass")))


__all__ = ["LineLayout", "PlacedCommand", "PlacedRedirection", "Span"]
