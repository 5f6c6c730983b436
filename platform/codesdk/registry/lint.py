"""Lints manifests, including those that do not load. Checks every file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from codesdk.documents import nearest
from codesdk.domain.decisions import Classification
from codesdk.registry.faults import ManifestInvalid
from codesdk.registry.manifest import Argument, Template
from codesdk.registry.pins import pins_path
from codesdk.registry.registry import LoadedSource, LoadedTool, ProfileBounds, Registry, read_entry
from codesdk.registry.suspicious_text import find_suspicions
from codesdk.registry.tenant_tools import check_tenant_tool

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "busybox"})
_MIN_DESCRIPTION = 20
"""Characters. A shorter description can't tell a model when to use the tool."""
DocumentPath = tuple[str | int, ...]


class Finding(NamedTuple):
    """A problem in a manifest, at a position."""

    file: str
    line: int
    column: int
    message: str
    fatal: bool = False
    """The manifest can't be used."""


def lint(
    files: Iterable[Path], shared: Registry | None = None, profiles: ProfileBounds | None = None
) -> tuple[Finding, ...]:
    """Return all findings, sorted by position.

    Args:
        files: manifests.
        shared: the installation's tools, if the files are a tenant's.
        profiles: profiles that manifests may name.
    """
    found: list[Finding] = []
    taken: dict[str, LoadedTool] = {}
    for path in files:
        try:
            entry = read_entry(path, profiles)
            if isinstance(entry, LoadedSource):
                if shared is not None:
                    raise entry.invalid("kind", "A tenant can't have its own MCP servers.")
                found += [Finding(file, *at, said) for file, at, said in _source_findings(entry)]
                continue
            loaded = entry
            if shared is not None:
                check_tenant_tool(loaded, shared)
            other = taken.setdefault(loaded.tool.wire_name, loaded)
            if other is not loaded:
                raise loaded.invalid("name", f"`{loaded.tool.name}` is taken by {other.path.name}.")
        except ManifestInvalid as error:
            hint = f" {error.advice()}" if error.advice() else ""
            found.append(Finding(error.file, error.line, error.column, error.problem + hint, fatal=True))
            continue
        found += [Finding(str(path), *loaded.document.place(at), said) for at, said in _manifest_findings(loaded)]
    return tuple(sorted(found))


def _source_findings(entry: LoadedSource) -> Iterator[tuple[str, tuple[int, int], str]]:
    manifest, place = entry.source.manifest, entry.document.place
    path = str(entry.path)
    if not entry.pins.tools:
        yield path, place(("name",)), f"None of its tools is pinned yet; run codesdk tools pin {manifest.name}"
    known = {pin.name for pin in entry.pins.tools}
    for name in manifest.tools:
        if known and name not in known:
            near = nearest(name, known)
            hint = f" Did you mean `{near}`?" if near else ""
            yield path, place(("tools", name)), f"`{name}` is not a pinned tool of this server.{hint}"
    if manifest.url is not None and not manifest.url.startswith("https://"):
        yield path, place(("url",)), "Not https: others on the network can read and change the traffic."
    for pin in entry.pins.tools:
        for suspicion in find_suspicions(pin):
            yield str(pins_path(entry.path)), (1, 1), f"`{pin.name}`: {suspicion}"


def _manifest_findings(loaded: LoadedTool) -> Iterator[tuple[DocumentPath, str]]:
    tool = loaded.tool
    if len(tool.description) < _MIN_DESCRIPTION:
        yield ("description",), "The description is short; explain what the tool does, and when a model should use it."
    if not tool.examples:
        yield ("name",), "There is no example; one shows the model how to call it, and `codesdk tools test` runs it."
    properties = tool.input_schema.get("properties", {})
    yield from _input_findings(properties)
    if isinstance(tool.runs, Template):
        yield from _template_findings(tool.runs, properties)
        if tool.classification is Classification.READ_ONLY and tool.runs.argv[0] in SHELLS:
            yield ("classification",), "A shell is not read-only, unless its arguments fix what it runs."
    for number, example in enumerate(tool.examples):
        unknown = [key for key in example.varies if key not in (example.output or {})]
        if unknown:
            yield ("examples", number, "varies"), f"`{unknown[0]}` is not a key of this example's output."


def _input_findings(properties: dict[str, Any]) -> Iterator[tuple[DocumentPath, str]]:
    for name, schema in properties.items():
        at = ("input_schema", "properties", name)
        if not isinstance(schema, dict):
            continue
        if not schema.get("description"):
            yield at, f"`{name}` has no description; the model reads it."
        if schema.get("type") == "string" and not {"maxLength", "enum", "const", "pattern"} & set(schema):
            yield at, f"`{name}` has no length limit; give it a `maxLength`."


def _template_findings(runs: Template, properties: dict[str, Any]) -> Iterator[tuple[DocumentPath, str]]:
    used: set[str] = set()
    for number, word in enumerate(runs.argv):
        if not isinstance(word, Argument):
            continue
        at: DocumentPath = ("runs", "argv", number)
        used.add(word.arg)
        yield from _pointer_findings(word.arg, at, properties)
        before = runs.argv[number - 1]
        if before in ("-c", "-e", "--command", "--eval", "-lc"):
            yield at, f"What follows `{before}` is a program: the input would be code. Give it as an argument instead."
    if runs.stdin is not None:
        used.add(runs.stdin)
        yield from _pointer_findings(runs.stdin, ("runs", "stdin"), properties)
    heads = {pointer.split("/")[1].replace("~1", "/").replace("~0", "~") for pointer in used}
    for name in properties:
        if name not in heads:
            yield ("input_schema", "properties", name), f"`{name}` is not used in the command, so it is ignored."


def _pointer_findings(pointer: str, at: DocumentPath, properties: dict[str, Any]) -> Iterator[tuple[DocumentPath, str]]:
    name = pointer.split("/")[1].replace("~1", "/").replace("~0", "~")
    if name not in properties:
        near = nearest(name, properties)
        hint = f" Did you mean `/{near}`?" if near else ""
        yield at, f"`{pointer}` is not a property of the input, so this argument is always left out.{hint}"
