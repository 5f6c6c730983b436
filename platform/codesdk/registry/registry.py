"""The registry of all tools of an installation, loaded whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from codesdk.documents import Document, DocumentUnreadable, Position, nearest, read_document
from codesdk.domain.canonical import NotCanonical, content_hash
from codesdk.domain.decisions import SandboxBounds
from codesdk.registry.faults import InvalidInput, InvalidOutput, ManifestInvalid, UnknownTool
from codesdk.registry.manifest import Manifest
from codesdk.registry.pins import SUFFIX, Pins, pins_path, read_pins
from codesdk.registry.prompts import Prompt, read_prompts
from codesdk.registry.schema_safety import SchemaRefused, check_schema
from codesdk.registry.source import KIND, Source, SourceManifest, make_source
from codesdk.registry.source_tools import UnusableTool, compile_source_tool
from codesdk.registry.tool import Tool, make_tool

MAX_TOOLS = 1000
ProfileBounds = Mapping[str, SandboxBounds]
"""The bounds of each profile on a call, by profile name."""
RESERVED = frozenset({"codesdk", "http", "patch", "process", "workspace"})
"""First parts of names that stay reserved even if an installation omits the tools, because policies use them."""


class LoadedTool(NamedTuple):
    """A tool and its manifest file."""

    tool: Tool
    path: Path
    document: Document

    def invalid(self, key: str, message: str) -> ManifestInvalid:
        """Return a fault at one of the manifest's keys."""
        return _invalid(self.path, self.document.place((key,)), message)


class LoadedSource(NamedTuple):
    """A tool source, its pinned tools, and its manifest file."""

    source: Source
    pins: Pins
    tools: tuple[LoadedTool, ...]
    path: Path
    document: Document

    def invalid(self, key: str, message: str) -> ManifestInvalid:
        """Return a fault at one of the manifest's keys."""
        return _invalid(self.path, self.document.place((key,)), message)


class Registry:
    """An immutable set of tools, sources and prompts. Tools are found by dotted or by wire name."""

    def __init__(self, tools: Iterable[Tool], sources: Iterable[Source] = (), prompts: Iterable[Prompt] = ()) -> None:
        self.sources = {source.name: source for source in sorted(sources, key=lambda source: source.name)}
        """Tool sources by name, which is the namespace of their tools."""
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self._by_wire = {tool.wire_name: tool for tool in self._tools.values()}
        self.prompts = {prompt.name: prompt for prompt in sorted(prompts, key=lambda prompt: prompt.name)}
        said = [[tool.name, tool.manifest_hash, tool.withheld] for tool in self._tools.values()]
        said += [[source.name, source.hash] for source in self.sources.values()]
        said += [["prompt", content_hash(prompt.model_dump(mode="json"))] for prompt in self.prompts.values()]
        self.hash = content_hash(said)
        """`sha256:` of all manifests and prompts."""
        self.secrets = frozenset(name for tool in self._tools.values() for name in tool.secrets)
        """Names of secrets that some tool needs. Only tools that name them get them."""

    @classmethod
    def load(cls, directory: Path, profiles: ProfileBounds | None = None) -> Registry:
        """Load every `*.yaml` in `directory`, `tool.yaml` in its folders, and the prompts in `prompts/`.

        Without `profiles`, the names of profiles are not checked and their bounds not applied. Use that only to inspect tools.

        Raises:
            ManifestInvalid: with file, line and column of the first error, or of a name that is in use.
        """
        found = read_manifests(directory, profiles)
        sources = (loaded.source for loaded in found.sources)
        return cls((loaded.tool for loaded in found.tools), sources, read_prompts(directory))

    def with_withheld(self, reasons: Mapping[str, str]) -> Registry:
        """Return the registry with these tools withheld; reasons by dotted name."""
        tools = (replace(tool, withheld=reasons.get(tool.name, "")) for tool in self._tools.values())
        return Registry(tools, self.sources.values(), self.prompts.values())

    def of(self, tenant: str) -> Registry:
        """Return this registry: every tenant has the same tools."""
        del tenant
        return self

    def resolve(self, name: str) -> Tool:
        """Return the tool with that dotted or wire name, even a disabled one: policy decides whether it may run.

        Raises:
            UnknownTool: with the nearest name.
        """
        tool = self.find(name)
        if tool is None:
            raise UnknownTool(name, nearest(name, [*self._tools, *self._by_wire]))
        return tool

    def find(self, name: str) -> Tool | None:
        """Return the tool with that dotted or wire name, including disabled ones; None if there is none."""
        return self._tools.get(name) or self._by_wire.get(name)

    def tools(self) -> tuple[Tool, ...]:
        """Return all tools, sorted by name."""
        return tuple(self._tools.values())

    def names(self) -> frozenset[str]:
        """Return all dotted names."""
        return frozenset(self._tools)


def manifest_files(directory: Path) -> list[Path]:
    """Return the manifest files of a directory, sorted."""
    return sorted([*directory.glob("*.yaml"), *directory.glob("*/tool.yaml")]) if directory.is_dir() else []


def pins_files(directory: Path) -> list[Path]:
    """Return the pins files of a directory, sorted."""
    return sorted([*directory.glob(f"*{SUFFIX}"), *directory.glob(f"*/tool{SUFFIX}")])


class Manifests(NamedTuple):
    """The tools and sources of a directory."""

    tools: tuple[LoadedTool, ...]
    """Including those of sources."""
    sources: tuple[LoadedSource, ...]


def read_manifests(directory: Path, profiles: ProfileBounds | None = None) -> Manifests:
    """Read every tool and source of a directory.

    Raises:
        ManifestInvalid: see `Registry.load`.
    """
    paths = manifest_files(directory)
    if not paths:
        raise ManifestInvalid(str(directory), 1, 1, "There is no tool manifest (`*.yaml`) in this directory.")
    entries = [read_entry(path, profiles) for path in paths]
    sources = tuple(entry for entry in entries if isinstance(entry, LoadedSource))
    tools = [loaded for entry in entries for loaded in (entry.tools if isinstance(entry, LoadedSource) else (entry,))]
    if len(tools) > MAX_TOOLS:
        raise ManifestInvalid(str(directory), 1, 1, f"There are {len(tools)} tools; the limit is {MAX_TOOLS}.")
    taken: dict[str, LoadedTool] = {}
    for loaded in tools:
        other = taken.setdefault(loaded.tool.wire_name, loaded)
        if other is not loaded:
            name = loaded.tool.wire_name
            message = (
                f"The name `{name}` that MCP clients see is already used by `{other.tool.name}` in {other.path.name}."
            )
            raise loaded.invalid("name", message)
    spaces: dict[str, Path] = {}
    for found in sources:
        check_namespace(found, tools)
        if spaces.setdefault(found.source.name, found.path) is not found.path:
            raise found.invalid("name", f"The source `{found.source.name}` is defined in two files.")
    return Manifests(tuple(tools), sources)


def check_namespace(found: LoadedSource, tools: Iterable[LoadedTool]) -> None:
    """Check that no other tool uses the source's namespace.

    Raises:
        ManifestInvalid: the namespace is reserved or in use.
    """
    name = found.source.name
    others = (each.tool.name for each in tools if each.path != found.path)
    other = next((one for one in others if one.startswith(f"{name}.")), None)
    if name in RESERVED or other is not None:
        why = f"by `{other}`" if other else "reserved by CodeSDK"
        raise found.invalid(
            "name", f"Names that begin with `{name}.` are in use ({why}); choose another name for the source."
        )


def _invalid(path: Path, place: Position, message: str) -> ManifestInvalid:
    return ManifestInvalid(str(path), place.line, place.column, message)


def read_entry(path: Path, profiles: ProfileBounds | None = None) -> LoadedTool | LoadedSource:
    """Read the manifest of a tool or a source; `profiles` as in `Registry.load`.

    Raises:
        ManifestInvalid: with line and column of the first error.
    """
    try:
        document = read_document(path)
    except DocumentUnreadable as error:
        raise ManifestInvalid.of(path, error) from error
    is_source = isinstance(document.data, dict) and "kind" in document.data
    return _source(path, document) if is_source else _tool(path, document, profiles)


def _source(path: Path, document: Document) -> LoadedSource:
    if document.data["kind"] != KIND:
        raise _invalid(path, document.place(("kind",)), f"`kind` can only be `{KIND}`; tools have no `kind`.")
    try:
        manifest = document.model(SourceManifest)
    except DocumentUnreadable as error:
        raise ManifestInvalid.of(path, error) from error
    if (wrong := manifest.contradiction()) is not None:
        raise _invalid(path, document.place((wrong[0],)), wrong[1])
    try:
        pins = read_pins(path, manifest.name)
        made = tuple(LoadedTool(compile_source_tool(manifest, pin), path, document) for pin in pins.tools)
    except DocumentUnreadable as error:
        raise ManifestInvalid.of(pins_path(path), error) from error
    except (UnusableTool, NotCanonical) as error:
        raise ManifestInvalid(str(pins_path(path)), 1, 1, str(error)) from error
    pinned = {pin.name: pin.sha256 for pin in pins.tools}
    return LoadedSource(make_source(manifest, pinned), pins, made, path, document)


def _bounds(path: Path, document: Document, name: str | None, profiles: ProfileBounds | None) -> SandboxBounds | None:
    """Return the bounds of the profile that a manifest names."""
    if profiles is None or name is None:
        return None
    if name not in profiles:
        near = nearest(name, profiles)
        hint = f"Did you mean `{near}`?" if near else f"Known profiles: {', '.join(profiles)}."
        raise _invalid(path, document.place(("profile",)), f"There is no profile `{name}`. {hint}")
    return profiles[name]


def _tool(path: Path, document: Document, profiles: ProfileBounds | None) -> LoadedTool:
    try:
        manifest = document.model(Manifest)
    except DocumentUnreadable as error:
        raise ManifestInvalid.of(path, error) from error
    for key, schema in (("input_schema", manifest.input_schema), ("output_schema", manifest.output_schema)):
        if schema is not None and schema.get("type") != "object":
            raise _invalid(path, document.place((key,)), f"`{key}` must describe an object: `type: object`.")
        try:
            check_schema(schema or {})
        except SchemaRefused as error:
            raise _invalid(path, document.place((key, *error.path)), str(error)) from error
    closed = manifest.input_schema.get("additionalProperties", manifest.input_schema.get("unevaluatedProperties"))
    if closed is not False:
        message = "`input_schema` must refuse unknown keys: `additionalProperties: false`."
        raise _invalid(path, document.place(("input_schema",)), message)
    bounds = _bounds(path, document, manifest.profile, profiles)
    try:
        tool = make_tool(manifest, bounds)
    except NotCanonical as error:
        raise _invalid(path, document.place(("input_schema",)), error.message) from error
    _check_examples(path, document, tool)
    return LoadedTool(tool, path, document)


def _check_examples(path: Path, document: Document, tool: Tool) -> None:
    for number, example in enumerate(tool.examples):
        try:
            tool.check_input(example.input)
            if example.output is not None:
                tool.check_output(example.output)
        except (InvalidInput, InvalidOutput) as error:
            raise _invalid(
                path, document.place(("examples", number)), f"This example is invalid: {error.message}"
            ) from error
