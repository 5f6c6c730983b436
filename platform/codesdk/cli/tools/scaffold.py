"""`codesdk tools new`: writes the manifest of a command that passes lint and has an example."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from codesdk.cli.console.arguments import InputWrong
from codesdk.cli.console.terminal import Printer
from codesdk.domain.decisions import Classification
from codesdk.domain.tool_results import MAX_TOOL_NAME, TOOL_NAME
from codesdk.errors import ExitCode
from codesdk.registry import lint

_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]{0,30})(?::(string|integer|number|boolean))?\}")
_BAD_PLACEHOLDER = re.compile(r"\{\w[\w:]*\}?")
"""Matches malformed placeholders: an unclosed brace, a capital letter, an unknown type."""
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_EXAMPLES: dict[str, Any] = {"string": "example.txt", "integer": 1, "number": 1.5, "boolean": True}


class _Argument(NamedTuple):
    name: str
    kind: str
    flag: str | None = None


def create_manifest(
    name: str, command: str, description: str | None, classification: Classification, *, stdin: bool, directory: Path
) -> int:
    """Write `<directory>/<name>.yaml`.

    Raises:
        InputWrong: the name or the command is invalid, or the file exists.
    """
    if TOOL_NAME.fullmatch(name) is None or len(name) > MAX_TOOL_NAME:
        raise InputWrong(f"{name!r} is not a tool name.", advice="Write lower case words joined by dots: word.count")
    words = _words(command)
    path = directory / f"{name}.yaml"
    write_new(path, _manifest(name, words, description, classification, stdin=stdin))
    found = lint([path])
    printer = Printer()
    for finding in found:
        printer.warn(f"{finding.file}:{finding.line}:{finding.column}: {finding.message}")
    printer.out.print(f"Wrote {path}.", soft_wrap=True, markup=False)
    printer.out.print(
        "Describe in it what the tool is for, and add expected outputs to `examples`; then: codesdk tools lint, test"
    )
    return ExitCode.DATA if any(finding.fatal for finding in found) else ExitCode.OK


def write_new(path: Path, text: str) -> None:
    """Write a file that doesn't exist yet.

    Raises:
        InputWrong: it exists, or can't be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise InputWrong(f"{path} exists already.", advice="Remove it, or choose another name.") from error
    except OSError as error:
        raise InputWrong(
            f"{path} cannot be written: {error.strerror}.", advice="Choose another directory with --to."
        ) from error


def split(command: str, *, example: str) -> list[str]:
    """Split a command line into words as a shell does. Other shell syntax is not interpreted.

    Raises:
        InputWrong: a quote is not closed, or there are no words; the advice contains `example`.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputWrong(f"The command cannot be split into words: {error}.", advice="Close its quotes.") from error
    if not words:
        raise InputWrong("The command is empty.", advice=f"Write it as '{example}'.")
    return words


def _words(command: str) -> list[str | _Argument]:
    parts = split(command, example="wc -l {path}")
    words: list[str | _Argument] = []
    for part in parts:
        hole = _PLACEHOLDER.fullmatch(part)
        if hole is not None:
            words.append(_Argument(hole[1], hole[2] or "string"))
        elif _PLACEHOLDER.search(part):
            advice = "Make it a separate word: `--max {n:integer}`, not `--max={n}`."
            raise InputWrong(f"In {part!r} the input is only part of a word.", advice=advice)
        elif _BAD_PLACEHOLDER.fullmatch(part):
            advice = "Write a name of small letters in braces, with a type if it is not text: {path}, {n:integer}."
            raise InputWrong(f"{part!r} is not a valid placeholder.", advice=advice)
        else:
            words.append(part)
    if isinstance(words[0], _Argument):
        raise InputWrong("The first word is the command and cannot come from the input.", advice="Write it out.")
    holes = [word.name for word in words if isinstance(word, _Argument)]
    if len(set(holes)) != len(holes):
        raise InputWrong("The command has the same placeholder twice.", advice="Give each a different name.")
    return words


def _manifest(
    name: str, words: list[str | _Argument], description: str | None, classification: Classification, *, stdin: bool
) -> str:
    holes = [word for word in words if isinstance(word, _Argument)]
    shown = " ".join(f"{{{word.name}}}" if isinstance(word, _Argument) else word for word in words)
    argv = ", ".join(f"{{arg: /{word.name}}}" if isinstance(word, _Argument) else double_quoted(word) for word in words)
    runs = f"{{argv: [{argv}]{', stdin: /stdin' if stdin else ''}}}"
    names = [word.name for word in holes] + (["stdin"] if stdin else [])
    given = {word.name: _EXAMPLES[word.kind] for word in holes} | ({"stdin": "one two\n"} if stdin else {})
    files = {value: "one two\n" for value in given.values() if value == _EXAMPLES["string"]}
    text = description or f"Run `{shown}` in the sandbox and return its output."
    lines = [
        f"name: {name}",
        "version: 0.1.0",
        f"title: {name.replace('.', ' ').capitalize()}",
        f"description: {double_quoted(text)}",
        f"classification: {classification.value}",
        f"runs: {runs}",
        "timeout_s: 60",
        "input_schema:",
        "  type: object",
        "  additionalProperties: false",
        f"  required: [{', '.join(names)}]",
        *(["  properties:"] if names else ["  properties: {}"]),
        *(
            f"    {word.name}: {{{_type(word.kind)}, description: {double_quoted(_describe(word.name))}}}"
            for word in holes
        ),
        *(['    stdin: {type: string, maxLength: 1048576, description: "Text for standard input."}'] if stdin else []),
        "examples:",
        f"  - description: {double_quoted(shown)}",
        *([f"    files: {flow_mapping(files)}"] if files else []),
        f"    input: {flow_mapping(given)}",
    ]
    return "\n".join(lines) + "\n"


def _type(kind: str) -> str:
    return "type: string, minLength: 1, maxLength: 4096" if kind == "string" else f"type: {kind}"


def _describe(name: str) -> str:
    return f"{name.replace('_', ' ').capitalize()}; describe its meaning."


def flow_mapping(values: dict[str, Any]) -> str:
    """Format a mapping on one line."""
    shown = (
        f"{key}: {double_quoted(value) if isinstance(value, str) else str(value).lower()}"
        for key, value in values.items()
    )
    return f"{{{', '.join(shown)}}}"


def double_quoted(text: str) -> str:
    """Quote for YAML, whose escapes cover every character; JSON's would turn some into surrogates."""
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else f"\\U{ord(c):08X}") for c in text) + '"'
