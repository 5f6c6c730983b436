"""All tools of an installation, loaded whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from codesdk.documents import Document, Place, Unreadable, nearest, read_document
from codesdk.domain.canonical import NotCanonical
from codesdk.registry.faults import InvalidInput, InvalidOutput, ManifestInvalid, UnknownTool
from codesdk.registry.manifest import Manifest
from codesdk.registry.schemas import SchemaRefused
from codesdk.registry.tool import Tool, make_tool

MAX_TOOLS = 1000


class Registry:
    """Immutable; look tools up by dotted or by wire name."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self._by_wire = {tool.wire_name: tool for tool in self._tools.values()}

    @classmethod
    def load(cls, directory: Path) -> Registry:
        """Read every `*.yaml` in `directory`, and `tool.yaml` in its folders.

        Raises:
            ManifestInvalid: with file, line and column of the first thing that is wrong, or of a name that is taken.
        """
        paths = sorted([*directory.glob("*.yaml"), *directory.glob("*/tool.yaml")]) if directory.is_dir() else []
        if not paths:
            raise ManifestInvalid(str(directory), 1, 1, "There is no tool manifest (`*.yaml`) in this directory.")
        if len(paths) > MAX_TOOLS:
            raise ManifestInvalid(
                str(directory), 1, 1, f"There are {len(paths)} manifests; at most {MAX_TOOLS} are read."
            )
        taken: dict[str, tuple[str, Path]] = {}
        tools: list[Tool] = []
        for path in paths:
            tool, document = _read(path)
            if tool.wire_name in taken:
                name, other = taken[tool.wire_name]
                message = (
                    f"The name `{tool.wire_name}` that MCP clients would see is taken by `{name}` in {other.name}."
                )
                raise _invalid(path, document.place(("name",)), message)
            taken[tool.wire_name] = (tool.name, path)
            tools.append(tool)
        return cls(tools)

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


def _invalid(path: Path, place: Place, message: str) -> ManifestInvalid:
    return ManifestInvalid(str(path), place.line, place.column, message)


def _read(path: Path) -> tuple[Tool, Document]:
    try:
        document = read_document(path)
        manifest = document.model(Manifest)
    except Unreadable as error:
        raise ManifestInvalid.of(path, error) from error
    for key, schema in (("input_schema", manifest.input_schema), ("output_schema", manifest.output_schema)):
        if schema is not None and schema.get("type") != "object":
            raise _invalid(path, document.place((key,)), f"`{key}` must describe an object: `type: object`.")
    if (
        manifest.input_schema.get("additionalProperties", manifest.input_schema.get("unevaluatedProperties"))
        is not False
    ):
        raise _invalid(
            path,
            document.place(("input_schema",)),
            "`input_schema` must refuse unknown keys: `additionalProperties: false`.",
        )
    try:
        tool = make_tool(manifest)
    except SchemaRefused as error:
        raise _invalid(path, document.place(("input_schema",)), str(error)) from error
    except NotCanonical as error:
        raise _invalid(path, document.place(("input_schema",)), error.message) from error
    _check_examples(path, document, tool)
    return tool, document


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
