"""Writes a report as text, JSON, JUnit XML or GitHub annotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
from xml.etree import ElementTree as ET

from rich.text import Text

from codesdk.cli.console.terminal import Printer
from codesdk.cli.policy import Format
from codesdk.errors import ExitCode
from codesdk.policy.bundles.bundle import Finding as PolicyFinding
from codesdk.registry import Finding as ManifestFinding

Kind = Literal["error", "warning", "note", "passed"]
_STYLE = {"error": "red", "warning": "yellow", "note": "cyan", "passed": "green"}


@dataclass(frozen=True)
class Item:
    """One finding or test result, with its place in a file."""

    file: str
    line: int
    column: int
    message: str
    kind: Kind
    name: str = ""
    """Name of a test."""


@dataclass(frozen=True)
class Report:
    """The result of one command."""

    title: str
    items: list[Item]
    summary: str
    facts: dict[str, Any] = field(default_factory=dict)


def write(report: Report, form: Format) -> None:
    """Print the report on stdout."""
    printer = Printer(as_json=form is Format.JSON)
    match form:
        case Format.JSON:
            items = [asdict(item) for item in report.items if item.kind != "passed"]
            printer.emit({**report.facts, "summary": report.summary, "items": items})
        case Format.JUNIT:
            printer.out.print(Text(_junit(report)), soft_wrap=True)
        case Format.GITHUB:
            for item in report.items:
                if item.kind != "passed":
                    printer.out.print(Text(_annotation(item)), soft_wrap=True)
            printer.out.print(Text(report.summary), soft_wrap=True)
        case Format.TEXT:
            for item in report.items:
                if item.kind != "passed":
                    printer.out.print(_line(item), soft_wrap=True)
            printer.out.print(Text(report.summary), soft_wrap=True)


def write_findings(
    where: str,
    findings: Sequence[PolicyFinding | ManifestFinding],
    form: Format,
    *,
    strict: bool,
    notes: Sequence[PolicyFinding] = (),
) -> int:
    """Print what a lint found, and notes. Returns 65 if a finding is fatal, and 1 for any other with `strict`."""
    items = [Item(f.file, f.line, f.column, f.message, "error" if f.fatal else "warning") for f in findings]
    items += [Item(note.file, note.line, note.column, note.message, "note") for note in notes]
    fatal = any(finding.fatal for finding in findings)
    summary = f"{where}: {len(findings)} finding{'s' * (len(findings) != 1)}" if findings else f"{where}: nothing found"
    write(Report("lint", items, summary, {"findings": len(findings), "usable": not fatal}), form)
    if fatal:
        return ExitCode.DATA
    return ExitCode.FAILED if strict and findings else ExitCode.OK


def _line(item: Item) -> Text:
    name = f"{item.name}: " if item.name else ""
    return Text.assemble(
        f"{item.file}:{item.line}:{item.column}: ", (item.kind, _STYLE[item.kind]), f": {name}{item.message}"
    )


def _annotation(item: Item) -> str:
    """Format a GitHub workflow command. Data escapes percent and line breaks; properties also colon and comma."""

    def escaped(text: str, *, more: str = "") -> str:
        for character in "%\r\n" + more:
            text = text.replace(character, f"%{ord(character):02X}")
        return text

    where = f"file={escaped(item.file, more=':,')},line={item.line},col={item.column}"
    kind = "notice" if item.kind == "note" else item.kind
    return f"::{kind} {where}::{escaped(f'{item.name}: ' if item.name else '')}{escaped(item.message)}"


def _junit(report: Report) -> str:
    tests = [item for item in report.items if item.name or item.kind not in ("passed", "note")]
    failures = sum(item.kind == "error" for item in tests)
    suite = ET.Element("testsuite", name=f"policy {report.title}", tests=str(len(tests)), failures=str(failures))
    for item in tests:
        case = ET.SubElement(suite, "testcase", name=_printable(item.name or item.message), classname=item.file)
        case.set("line", str(item.line))
        if item.kind == "error":
            ET.SubElement(case, "failure", message=_printable(item.message))
        elif item.kind == "warning":
            ET.SubElement(case, "system-out").text = _printable(item.message)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _printable(text: str) -> str:
    """Remove control characters, which XML can't represent."""
    return "".join(character if character.isprintable() or character in "\n\t" else "�" for character in text)
