"""Parses strict YAML into plain data, with the line and column of every value.

Refuses what is risky and not needed in a policy or manifest: anchors and aliases (cycles, billion laughs), tags, merge
keys, multiple documents, duplicate keys, non-string keys, and files that are too large or too deeply nested.
"""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from codesdk.errors import ExitCode, Fault

MAX_BYTES = 1024 * 1024
MAX_SHOWN = 20
"""Problems that the message of one fault lists."""
MAX_DEPTH = 40
"""Levels of nesting; a JSON Schema inside a manifest is the deepest document."""

_READ_DIFFERENTLY = frozenset("\t\x85\u2028\u2029")
"""YAML 1.1 breaks lines at the last three. libyaml accepts tabs as indentation, which ruamel.yaml refuses."""

# A document's events come from one of two parsers: see `parse_document`.
_Event = yaml.Event | events.Event
_Node = (yaml.NodeEvent, events.NodeEvent)
_Scalar = (yaml.ScalarEvent, events.ScalarEvent)
_ScalarEvent = yaml.ScalarEvent | events.ScalarEvent
_Alias = (yaml.AliasEvent, events.AliasEvent)
_DocumentStart = (yaml.DocumentStartEvent, events.DocumentStartEvent)
_MappingStart, _MappingEnd = (
    (yaml.MappingStartEvent, events.MappingStartEvent),
    (yaml.MappingEndEvent, events.MappingEndEvent),
)
_SequenceStart = (yaml.SequenceStartEvent, events.SequenceStartEvent)
_SequenceEnd = (yaml.SequenceEndEvent, events.SequenceEndEvent)

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?=[.0-9])(0|[1-9][0-9]*)?(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, object] = {"": None, "~": None, "null": None, "true": True, "false": False}

_YAML_PROBLEMS = (
    ("found character '\\t'", "a tab can't indent a line; use spaces"),
    (
        "expected ',' or '}'",
        "a `{` is not closed, or a value after it needs quotes because it holds `: `, `,`, `{` or `}`",
    ),
    (
        "expected ',' or ']'",
        "a `[` is not closed, or a value after it needs quotes because it holds `: `, `,`, `[` or `]`",
    ),
    ("expected alphabetic or numeric character", "a value that starts with `*` or `&` needs quotes"),
    ("mapping values are not allowed", "a value that holds `: ` needs quotes, or the line is indented too far"),
    ("could not find expected ':'", "a key needs a `:` and a space after it"),
    ("expected <block end>", "the line is indented differently from those that it belongs to"),
    ("found unexpected end of stream", "a quote is not closed"),
    ("that cannot start any token", "a value that starts with a special character needs quotes"),
    ("found unknown escape character", "in double quotes a backslash starts an escape; use single quotes"),
)
"""What to do, by words of the parser's message."""

ValuePath = tuple[str | int, ...]
ModelT = TypeVar("ModelT", bound=BaseModel)


class Position(NamedTuple):
    """Line and column, counted from 1."""

    line: int
    column: int


class DocumentUnreadable(Exception):
    """The document is invalid at a position. Callers convert this to their own fault."""

    def __init__(self, place: Position, message: str, suggestion: str | None = None) -> None:
        super().__init__(message)
        self.place = place
        self.message = message
        self.suggestion = suggestion
        self.others: tuple[DocumentUnreadable, ...] = ()
        """The document's other problems."""


class FileInvalid(Fault):
    """A file is invalid and not used. Each kind of file has a subclass with its own code."""

    code = "FILE_INVALID"
    status = 422
    exit_code = ExitCode.DATA

    def __init__(self, file: str, line: int, column: int, message: str, suggestion: str | None = None) -> None:
        advice = f"Did you mean `{suggestion}`?" if suggestion else ""
        details: dict[str, object] = {"file": file, "line": line, "column": column}
        super().__init__(f"{file}:{line}:{column}: {message}", advice=advice, details=details)
        self.file = file
        self.line = line
        self.column = column
        self.problem = message
        self.suggestion = suggestion
        self.others: tuple[Self, ...] = ()
        """The other problems, of this and other files."""

    @classmethod
    def of(cls, path: str | PathLike[str], error: DocumentUnreadable) -> Self:
        """Create the fault for a parse error in `path`."""
        places = (error, *error.others)
        return cls.of_all(
            [cls(fspath(path), one.place.line, one.place.column, one.message, one.suggestion) for one in places]
        )

    @classmethod
    def of_all(cls, problems: Sequence[Self]) -> Self:
        """Create one fault for several problems. Its message has a line for each of the first `MAX_SHOWN`."""
        every = [each for problem in problems for each in (problem, *problem.others)]
        first = every[0]
        fault = cls(first.file, first.line, first.column, first.problem, first.suggestion)
        fault.others = tuple(every[1:])
        if fault.others:
            shown = [f"{one.file}:{one.line}:{one.column}: {one.described()}" for one in every[:MAX_SHOWN]]
            more = [f"… and {len(every) - MAX_SHOWN} more."] if len(every) > MAX_SHOWN else []
            fault.message = "\n".join([*shown, *more])
            fault.args, fault.advice_text = (fault.message,), ""
        return fault

    def described(self) -> str:
        """Return this problem alone, without its position."""
        return f"{self.problem} Did you mean `{self.suggestion}`?" if self.suggestion else self.problem


@dataclass(frozen=True)
class Document:
    """The data of one file, with the position of each value."""

    data: Any
    places: Mapping[ValuePath, Position] = field(repr=False)

    def place(self, path: Iterable[str | int]) -> Position:
        """Return the position of the value at `path`. Skips steps that are not in the file (names of union members)."""
        known: ValuePath = ()
        for step in path:
            if (*known, step) in self.places:
                known = (*known, step)
        return self.places.get(known, Position(1, 1))

    def model(self, kind: type[ModelT]) -> ModelT:
        """Validate the data as a model.

        Raises:
            DocumentUnreadable: at the first invalid value; for an unknown key with the nearest known one.
        """
        try:
            return kind.model_validate(self.data)
        except ValidationError as error:
            problems = sorted(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
            by_place: dict[Position, DocumentUnreadable] = {}
            misspelled: set[ValuePath] = set()
            for problem in problems:
                if problem["type"] == "missing" and problem["loc"] in misspelled:
                    continue
                found = self._problem(kind, problem)
                by_place.setdefault(found.place, found)
                misspelled.add((*problem["loc"][:-1], found.suggestion or ""))
            first, *others = by_place.values()
            first.others = tuple(sorted(others, key=lambda other: other.place))
            raise first from error

    def _problem(self, kind: type[BaseModel], problem: ErrorDetails) -> DocumentUnreadable:
        """Describe one problem that pydantic found."""
        path, kind_of_problem = problem["loc"], problem["type"]
        place = self.place(path)
        if not path:
            return DocumentUnreadable(place, "The file must contain keys with values.")
        key = str(path[-1])
        if kind_of_problem == "extra_forbidden":
            known = _keys_at(kind.model_json_schema(by_alias=True), path[:-1])
            return DocumentUnreadable(place, f"`{key}` is not a known key here.", nearest(key, known))
        where, value = self._named(path), problem["input"]
        if kind_of_problem == "literal_error" and len(path) == 1:
            return DocumentUnreadable(place, f"`{where}`: write `{key}: {problem['ctx']['expected']}`.")
        if kind_of_problem == "missing":
            constant = kind.model_json_schema(by_alias=True)["properties"].get(key, {}) if len(path) == 1 else {}
            example = f": write `{key}: {constant['const']}`" if "const" in constant else ""
            return DocumentUnreadable(place, f"`{where}` is missing{example}.")
        if kind_of_problem == "string_type" and isinstance(value, int | float | bool):
            what = "a boolean" if isinstance(value, bool) else "a number"
            text = str(value).lower() if isinstance(value, bool) else str(value)
            return DocumentUnreadable(place, f"`{where}`: YAML reads `{text}` as {what}. Quote it: '{text}'.")
        return DocumentUnreadable(place, f"`{where}`: {_sentence(problem['msg'])}")

    def _named(self, path: Iterable[str | int]) -> str:
        """Return the path with dots, without names of union members. A list's element is named by its `id`, if it has one."""
        value, steps = self.data, list[str]()
        for step in path:
            if isinstance(value, list) and isinstance(step, int) and step < len(value):
                value = value[step]
                name = value.get("id") if isinstance(value, dict) else None
                steps.append(name if isinstance(name, str) else str(step))
            elif isinstance(value, dict):
                value = value.get(step)
                steps.append(str(step))
        return ".".join(steps)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word closest to `word`, if one is close."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def read_document(path: Path) -> Document:
    """Read one YAML file.

    Raises:
        DocumentUnreadable: with the position of the error.
    """
    return parse_document(read_text(path))


def read_text(path: Path) -> str:
    """Read a file's text.

    Raises:
        DocumentUnreadable: not a regular file, too large, not UTF-8, or unreadable.
    """
    try:
        found = path.stat()
        size = found.st_size
        if not stat.S_ISREG(found.st_mode):  # reading a pipe would block forever
            raise DocumentUnreadable(Position(1, 1), "The file cannot be read: it is not a regular file.")
        content = path.read_bytes() if size <= MAX_BYTES else b""
    except OSError as error:
        raise DocumentUnreadable(Position(1, 1), f"The file cannot be read: {error.strerror or error}.") from error
    if size > MAX_BYTES:
        raise DocumentUnreadable(Position(1, 1), f"The file has {size} bytes; the limit is {MAX_BYTES}.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        place = Position(before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        raise DocumentUnreadable(place, "The file is not UTF-8.") from error


def parse_document(text: str) -> Document:
    """Parse YAML text.

    libyaml is thirty times faster than a parser in Python, and every process reads all manifests. ruamel.yaml parses what
    libyaml refuses or reads by YAML 1.1.

    Raises:
        DocumentUnreadable: with the position of the error.
    """
    if not _READ_DIFFERENTLY.isdisjoint(text):
        return _parse_with_ruamel(text)
    try:
        return _Builder(yaml.parse(text, Loader=yaml.CSafeLoader)).document()
    except (yaml.YAMLError, UnicodeEncodeError):
        return _parse_with_ruamel(text)


def _parse_with_ruamel(text: str) -> Document:
    try:
        return _Builder(YAML(typ="safe", pure=True).parse(text)).document()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Position(mark.line + 1, mark.column + 1) if mark else Position(1, 1)
        raise DocumentUnreadable(
            place, f"This is not YAML: {_explain(error.problem or error.context or '')}."
        ) from error
    except YAMLError as error:
        raise DocumentUnreadable(Position(1, 1), f"This is not YAML: {str(error).splitlines()[0]}.") from error


def _explain(problem: str) -> str:
    """Say what to do about a problem in the words of the YAML parser."""
    return next((advice for words, advice in _YAML_PROBLEMS if words in problem), problem)


class _Builder:
    """Builds plain data from parser events. No objects are constructed from tags."""

    def __init__(self, events: Iterator[_Event]) -> None:
        self._events = events
        self.places: dict[ValuePath, Position] = {}

    def document(self) -> Document:
        data: Any = None
        seen = False
        for event in self._events:
            if isinstance(event, _DocumentStart):
                if seen:
                    raise DocumentUnreadable(_place(event), "The file contains several documents; only one is allowed.")
                seen = True
            elif isinstance(event, _Node):
                data = self._value(event, ())
        return Document(data, self.places)

    def _value(self, event: _Event, path: ValuePath) -> Any:
        place = _place(event)
        self.places.setdefault(path, place)
        if isinstance(event, _Alias) or getattr(event, "anchor", None) is not None:
            raise DocumentUnreadable(place, "Anchors and aliases are not allowed; write the value out.")
        if len(path) > MAX_DEPTH:
            raise DocumentUnreadable(place, f"Nested deeper than {MAX_DEPTH} levels.")
        tag = getattr(event, "tag", None)
        if tag is not None and str(tag) not in ("", "!"):
            raise DocumentUnreadable(place, "Tags are not allowed; write a plain value.")
        if isinstance(event, _Scalar):
            return _scalar(event)
        if isinstance(event, _SequenceStart):
            return self._sequence(path)
        if isinstance(event, _MappingStart):
            return self._mapping(path)
        raise DocumentUnreadable(place, "This is not allowed here.")

    def _sequence(self, path: ValuePath) -> list[Any]:
        items: list[Any] = []
        for event in self._events:
            if isinstance(event, _SequenceEnd):
                break
            items.append(self._value(event, (*path, len(items))))
        return items

    def _mapping(self, path: ValuePath) -> dict[str, Any]:
        items: dict[str, Any] = {}
        for event in self._events:
            if isinstance(event, _MappingEnd):
                break
            key = self._value(event, (*path, "\0key")) if isinstance(event, _Scalar) else None
            self.places.pop((*path, "\0key"), None)
            if not isinstance(key, str):
                raise DocumentUnreadable(_place(event), "A key must be a string.")
            if key == "<<":
                raise DocumentUnreadable(_place(event), "Merge keys are not allowed; write the keys out.")
            if key in items:
                raise DocumentUnreadable(_place(event), f"Duplicate key `{key}`.")
            # The position of the key also serves for the value.
            self.places[(*path, key)] = _place(event)
            items[key] = self._value(next(self._events), (*path, key))
        return items


def _place(event: _Event) -> Position:
    mark: Any = event.start_mark  # a parser's events always have one
    return Position(mark.line + 1, mark.column + 1)


def _scalar(event: _ScalarEvent) -> object:
    """Parse a scalar by the YAML 1.2 core schema, without octal, hexadecimal, `.inf` and `.nan`, which JSON lacks."""
    text: str = event.value
    if event.style:  # quoted or a block; a plain scalar has none, or an empty one
        return text
    if text.lower() in _CONSTANTS and text in (text.lower(), text.title(), text.upper()):
        return _CONSTANTS[text.lower()]
    if _INTEGER.fullmatch(text) and len(text) <= 20:  # noqa: PLR2004 (longer than 64 bits: kept as text)
        return int(text)
    if any(mark in text for mark in ".eE") and text[-1].isdigit() and _FLOAT.fullmatch(text):
        return found if isfinite(found := float(text)) else text
    return text


def _sentence(message: str) -> str:
    message = message.removeprefix("Value error, ")
    return message if message.endswith((".", "?")) else message + "."


def _keys_at(schema: dict[str, Any], path: Iterable[str | int]) -> set[str]:
    """Return the property names of a JSON Schema at `path`, following references and unions."""
    definitions = schema.get("$defs", {})

    def spread(nodes: Iterable[Any]) -> Iterator[dict[str, Any]]:
        for node in nodes:
            if not isinstance(node, dict):
                continue
            if "$ref" in node:
                yield from spread([definitions.get(node["$ref"].rsplit("/", 1)[-1])])
            yield node
            yield from spread(node.get("anyOf", []))
            yield from spread(node.get("oneOf", []))

    nodes = list(spread([schema]))
    for step in path:
        below: list[Any] = []
        for node in nodes:
            if isinstance(step, int):
                below.append(node.get("items"))
            elif step in node.get("properties", {}):
                below.append(node["properties"][step])
            else:
                below.append(node.get("additionalProperties"))
        # In pydantic's location, a step without a schema is the name of a union member.
        nodes = list(spread(below)) or nodes
    return {key for node in nodes for key in node.get("properties", {})}
