"""All tools of an installation, loaded whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from codesdk.documents import Document, Place, Unreadable, nearest, read_document
from codesdk.domain.canonical import NotCanonical, content_hash
from codesdk.registry.faults import InvalidInput, InvalidOutput, ManifestInvalid, UnknownTool
from codesdk.registry.hostile import SchemaRefused, check_schema
from codesdk.registry.manifest import Manifest
from codesdk.registry.tool import Tool, make_tool

MAX_TOOLS = 1000


class Loaded(NamedTuple):
    """A tool, and the file that it came from."""

    tool: Tool
    path: Path
    document: Document

    def invalid(self, key: str, message: str) -> ManifestInvalid:
        """A fault at one of the manifest's keys."""
        return _invalid(self.path, self.document.place((key,)), message)


class Registry:
    """Immutable; look tools up by dotted or by wire name."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self._by_wire = {tool.wire_name: tool for tool in self._tools.values()}
        self.hash = content_hash([[tool.name, tool.manifest_hash] for tool in self._tools.values()])
        """`sha256:` of all that the manifests say."""
        self.secrets = frozenset(name for tool in self._tools.values() for name in tool.secrets)
        """Names of secrets that some tool asks for: no other tool has them."""

    @classmethod
    def load(cls, directory: Path) -> Registry:
        """Read every `*.yaml` in `directory`, and `tool.yaml` in its folders.

        Raises:
            ManifestInvalid: with file, line and column of the first thing that is wrong, or of a name that is taken.
        """
        return cls(loaded.tool for loaded in read_manifests(directory))

    def of(self, tenant: str) -> Registry:
        """Itself: the same tools for every tenant."""
        del tenant
        return self

    def resolve(self, name: str) -> Tool:
        """The tool of that dotted or wire name, disabled ones too: whether it may run is policy's to say.

        Raises:
            UnknownTool: with the nearest name.
        """
        tool = self._tools.get(name) or self._by_wire.get(name)
        if tool is None:
            raise UnknownTool(name, nearest(name, [*self._tools, *self._by_wire]))
        return tool

    def tools(self) -> tuple[Tool, ...]:
        """All tools by name."""
        return tuple(self._tools.values())

    def names(self) -> frozenset[str]:
        """All dotted names."""
        return frozenset(self._tools)


def manifest_files(directory: Path) -> list[Path]:
    """The files that hold a manifest each, in order."""
    return sorted([*directory.glob("*.yaml"), *directory.glob("*/tool.yaml")]) if directory.is_dir() else []


def read_manifests(directory: Path) -> tuple[Loaded, ...]:
    """Every tool of a directory.

    Raises:
        ManifestInvalid: see `Registry.load`.
    """
    paths = manifest_files(directory)
    if not paths:
        raise ManifestInvalid(str(directory), 1, 1, "There is no tool manifest (`*.yaml`) in this directory.")
    if len(paths) > MAX_TOOLS:
        raise ManifestInvalid(str(directory), 1, 1, f"There are {len(paths)} manifests; at most {MAX_TOOLS} are read.")
    taken: dict[str, Loaded] = {}
    for path in paths:
        loaded = read_manifest(path)
        other = taken.get(loaded.tool.wire_name)
        if other is not None:
            name = loaded.tool.wire_name
            message = (
                f"The name `{name}` that MCP clients would see is taken by `{other.tool.name}` in {other.path.name}."
            )
            raise loaded.invalid("name", message)
        taken[loaded.tool.wire_name] = loaded
    return tuple(taken.values())


def _invalid(path: Path, place: Place, message: str) -> ManifestInvalid:
    return ManifestInvalid(str(path), place.line, place.column, message)


def read_manifest(path: Path) -> Loaded:
    """One file.

    Raises:
        ManifestInvalid: with line and column of the first thing that is wrong.
    """
    try:
        document = read_document(path)
        manifest = document.model(Manifest)
    except Unreadable as error:
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
    try:
        tool = make_tool(manifest)
    except NotCanonical as error:
        raise _invalid(path, document.place(("input_schema",)), error.message) from error
    _check_examples(path, document, tool)
    return Loaded(tool, path, document)


def _check_examples(path: Path, document: Document, tool: Tool) -> None:
    for number, example in enumerate(tool.examples):
        try:
            tool.check_input(example.input)
            if example.output is not None:
                tool.check_output(example.output)
        except (InvalidInput, InvalidOutput) as error:
            raise _invalid(
                path, document.place(("examples", number)), f"This example does not fit: {error.message}"
            ) from error
