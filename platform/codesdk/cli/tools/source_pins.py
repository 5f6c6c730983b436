"""`codesdk tools pin`, `diff` and `accept`: manage the pinned tools of a third-party MCP server."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.text import Text

from codesdk.cli.console.arguments import InputWrong
from codesdk.cli.console.terminal import Printer
from codesdk.cli.tools.discovery import discover_tools
from codesdk.cli.tools.loading import directory_of
from codesdk.documents import nearest
from codesdk.domain.canonical import NotCanonical
from codesdk.errors import ExitCode
from codesdk.registry import LoadedSource
from codesdk.registry.pins import (
    OfferedTool,
    PinDifference,
    PinnedTool,
    Pins,
    diff_pins,
    pin_tool,
    pins_path,
    pins_text,
)
from codesdk.registry.registry import read_manifests
from codesdk.registry.source_tools import UnusableTool, compile_source_tool
from codesdk.registry.suspicious_text import escape_invisible, find_suspicions
from codesdk.sources.tool_changes import ToolListing


def pin_source(name: str, tools: Path | None, tenant: str | None, data_dir: Path | None, *, as_json: bool) -> int:
    """Accept the tools of a new source, except those with findings. Returns 1 if any are skipped.

    Raises:
        InputWrong: there is no such source, or its tools were accepted before.
        ManifestInvalid, SourceUnavailable: with what is wrong.
    """
    loaded = find_source(name, tools)
    if loaded.pins.tools:
        advice = f"See what has changed with `codesdk tools diff {name}`, then accept it."
        raise InputWrong(f"Tools of {name} were accepted before.", advice=advice)
    printer = Printer(as_json=as_json)
    listing = discover_tools(loaded, tenant, data_dir, printer)
    usable, refused = _acceptable_tools(loaded, listing)
    suspect = {tool.name: [str(one) for one in find_suspicions(tool)] for tool in usable}
    chosen = tuple(tool for tool in usable if not suspect[tool.name])
    left = {name: findings for name, findings in suspect.items() if findings}
    _write_pins(loaded, listing, (pin_tool(tool) for tool in chosen))
    if as_json:
        printer.emit({"source": name, "accepted": [tool.name for tool in chosen], "suspect": left, "refused": refused})
    else:
        _print_accepted(printer, loaded, chosen)
        _print_skipped(printer, name, left, refused)
    return ExitCode.FAILED if left or refused else ExitCode.OK


def diff_source(name: str, tools: Path | None, tenant: str | None, data_dir: Path | None, *, as_json: bool) -> int:
    """Show how the server's tools differ from the pinned ones. Returns 1 if any do.

    Raises:
        InputWrong: there is no such source.
        ManifestInvalid, SourceUnavailable: with what is wrong.
    """
    loaded = find_source(name, tools)
    printer = Printer(as_json=as_json)
    listing = discover_tools(loaded, tenant, data_dir, printer)
    found = diff_pins(loaded.pins, listing.tools)
    if as_json:
        printer.emit(
            {"source": name, "differences": [_difference_json(one) for one in found], "refused": listing.unusable}
        )
    else:
        for one in found:
            _print_difference(printer, one)
        _print_refused(printer, listing.unusable)
        if not found:
            printer.out.print(f"The tools of {name} match the accepted ones.", markup=False, soft_wrap=True)
    return ExitCode.FAILED if found else ExitCode.OK


def accept_tools(
    name: str,
    chosen: list[str],
    tools: Path | None,
    tenant: str | None,
    data_dir: Path | None,
    *,
    everything: bool,
    as_json: bool,
) -> int:
    """Pin the server's current version of these tools, and unpin those that it no longer offers.

    Raises:
        InputWrong: there is no such source or tool, or no tool was given.
        ManifestInvalid, SourceUnavailable: with what is wrong.
    """
    if bool(chosen) == everything:
        raise InputWrong("No tools were chosen, or both names and --all.", advice="Name the tools, or pass --all.")
    loaded = find_source(name, tools)
    printer = Printer(as_json=as_json)
    listing = discover_tools(loaded, tenant, data_dir, printer)
    usable, refused = _acceptable_tools(loaded, listing)
    offered = {tool.name: tool for tool in usable}
    before = loaded.pins.by_name()
    wanted = (
        sorted({*offered, *before})
        if everything
        else [_resolve_name(each, offered, before, refused) for each in chosen]
    )
    after = dict(before)
    for each in wanted:
        after.pop(each, None)
        if each in offered:
            after[each] = pin_tool(offered[each])
    _write_pins(loaded, listing, after.values())
    changed = [one for one in diff_pins(loaded.pins, usable) if one.name in wanted]
    if as_json:
        printer.emit({"source": name, "accepted": [_difference_json(one) for one in changed], "refused": refused})
        return ExitCode.OK
    for one in changed:
        _print_difference(printer, one)
    count = "1 change is" if len(changed) == 1 else f"{len(changed)} changes are"
    printer.out.print(f"{count} accepted in {pins_path(loaded.path)}.", markup=False, soft_wrap=True)
    if everything:
        _print_refused(printer, refused)
    return ExitCode.OK


def find_source(name: str, tools: Path | None) -> LoadedSource:
    """Return the source with that name.

    Raises:
        InputWrong: with the nearest name.
        ManifestInvalid: a manifest is invalid.
    """
    directory = directory_of(tools)
    found = {each.source.name: each for each in read_manifests(directory).sources}
    if name not in found:
        near = nearest(name, found)
        known = f"There are: {', '.join(sorted(found))}." if found else "There are none (manifests with `kind: mcp`)."
        raise InputWrong(
            f"{directory} has no source `{name[:100]}`.", advice=f"Did you mean `{near}`?" if near else known
        )
    return found[name]


def _acceptable_tools(loaded: LoadedSource, listing: ToolListing) -> tuple[tuple[OfferedTool, ...], dict[str, str]]:
    """Return the tools that can be accepted, and why the others can't."""
    usable: list[OfferedTool] = []
    refused = dict(listing.unusable)
    taken: dict[str, str] = {}
    for tool in listing.tools:
        try:
            made = compile_source_tool(loaded.source.manifest, tool)
            if (other := taken.setdefault(made.wire_name, tool.name)) != tool.name:
                raise UnusableTool(f"`{tool.name}` would have the same name here as `{other}`")  # noqa: TRY301 (as the others)
        except (UnusableTool, NotCanonical) as error:
            refused[tool.name] = str(error)
        else:
            usable.append(tool)
    return tuple(usable), refused


def _resolve_name(
    name: str, offered: dict[str, OfferedTool], before: dict[str, PinnedTool], refused: dict[str, str]
) -> str:
    if name in offered or name in before:
        return name
    if name in refused:
        raise InputWrong(f"`{name}` cannot be accepted: {refused[name]}.")
    near = nearest(name, {*offered, *before})
    raise InputWrong(f"The server has no tool `{name}`.", advice=f"Did you mean `{near}`?" if near else "")


def _write_pins(loaded: LoadedSource, listing: ToolListing, chosen: Iterable[PinnedTool]) -> None:
    place = pins_path(loaded.path)
    text = pins_text(Pins(source=loaded.source.name, server=listing.server, tools=tuple(chosen)))
    fresh = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(place)  # atomic for concurrent readers
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise InputWrong(f"{place} cannot be written: {error.strerror}.") from error


def _print_accepted(printer: Printer, loaded: LoadedSource, chosen: tuple[OfferedTool, ...]) -> None:
    for tool in chosen:
        made = compile_source_tool(loaded.source.manifest, tool)
        printer.out.print(Text(f"{made.name}  {made.classification.value}"), soft_wrap=True)
        printer.out.print(Text(f"    {escape_invisible(tool.description)[:300]}", style="dim"), soft_wrap=True)
    words = f"{len(chosen)} tools are accepted in {pins_path(loaded.path)}. Review their descriptions, and keep the file in git."
    printer.out.print(words, markup=False, soft_wrap=True)


def _print_skipped(printer: Printer, source: str, left: dict[str, list[str]], refused: dict[str, str]) -> None:
    for name, found in left.items():
        printer.warn(f"{escape_invisible(name)} is not accepted; review this first:")
        for finding in found:
            printer.warn(f"    {finding}")
    if left:
        printer.warn(
            f"Accept what is harmless by its name: codesdk tools accept {source} {' '.join(map(escape_invisible, left))}"
        )
    _print_refused(printer, refused)


def _print_refused(printer: Printer, refused: dict[str, str]) -> None:
    for name, why in refused.items():
        printer.warn(f"{escape_invisible(name)} cannot be a tool here: {escape_invisible(why)}")


def _difference_json(one: PinDifference) -> dict[str, Any]:
    found = [str(each) for each in find_suspicions(one.now)] if one.now is not None else []
    hashes = {"before": one.before.sha256 if one.before else None, "now": one.now.hash if one.now else None}
    return {"tool": one.name, "kind": one.kind, "fields": list(one.fields()), **hashes, "suspect": found}


def _print_difference(printer: Printer, one: PinDifference) -> None:
    style = {"new": "green", "gone": "yellow", "changed": "bold red"}[one.kind]
    printer.out.print(Text.assemble((f"{one.kind} ", style), escape_invisible(one.name)), soft_wrap=True)
    for field in one.fields() or (("description",) if one.now is not None else ()):
        before = _lines(getattr(one.before, field)) if one.before is not None else []
        for line in difflib.unified_diff(before, _lines(getattr(one.now, field)), "", "", lineterm="", n=1):
            if not line.startswith(("---", "+++", "@@")):
                printer.out.print(Text(f"    {field} {line}", style="dim"), soft_wrap=True)
    for finding in find_suspicions(one.now) if one.now is not None else ():
        printer.warn(f"    {finding}")


def _lines(value: Any) -> list[str]:
    text = value if isinstance(value, str) else json.dumps(value, indent=1, sort_keys=True)
    return [escape_invisible(line) for line in (text or "").splitlines()]
