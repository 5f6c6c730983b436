"""A compiled tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import Classification, Obligations, SandboxBounds, combine_obligations
from codesdk.domain.tool_results import wire_name
from codesdk.registry.arguments import normalize
from codesdk.registry.faults import InvalidInput, InvalidOutput
from codesdk.registry.manifest import Argument, Builtin, Example, Manifest, SourceCall, Template
from codesdk.registry.schemas import CompiledSchema
from codesdk.registry.transfers import input_schema_of_transfers, output_schema_of_transfers


@dataclass(frozen=True)
class Tool:
    """A manifest with compiled schemas. Implements policy's `ToolFacts`."""

    name: str
    title: str
    description: str
    version: str
    classification: Classification
    input_schema: dict[str, Any] = field(repr=False)
    output_schema: dict[str, Any] | None = field(repr=False)
    schema_hash: str
    """`sha256:` of the canonical input schema."""
    runs: Builtin | Template | SourceCall
    timeout_s: float
    enabled: bool
    serial: bool
    """Run one call at a time in a workspace."""
    profile: str | None
    """The profile whose bounds are included in `sandbox`."""
    sandbox: SandboxBounds
    """Bounds on each call."""
    secrets: tuple[str, ...]
    """Names of the secrets that the tool needs."""
    examples: tuple[Example, ...] = field(repr=False)
    wire_name: str
    """The name for MCP clients."""
    behaviour_hash: str = field(repr=False)
    """`sha256:` of schema, command, classification and secrets, which decide what a call does. Approvals bind it."""
    manifest_hash: str = field(repr=False)
    """`sha256:` of the whole manifest."""
    _input: CompiledSchema = field(repr=False, compare=False)
    _output: CompiledSchema | None = field(repr=False, compare=False)
    _transfer: CompiledSchema | None = field(default=None, repr=False, compare=False)
    withheld: str = ""
    """Why the tool can't be called now: its server has changed it. Empty if it can."""

    @property
    def starts_background_process(self) -> bool:
        """Whether what it starts outlives its call."""
        return isinstance(self.runs, Builtin) and self.runs.builtin == "process.start"

    def normalize(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """An input as it is checked, decided, recorded and run: see `arguments.normalize`."""
        return normalize(given, self.input_schema)

    def check_input(self, given: Mapping[str, Any], *, transfer: bool = False) -> None:
        """Check that an input matches the schema and can be turned into a command line.

        `transfer`: it may also have the arguments of `registry.transfers`.

        Raises:
            InvalidInput: with the position, and what was expected there.
        """
        schema = self._transfer if transfer and self._transfer is not None else self._input
        mismatch = schema.mismatch(given)
        if mismatch is not None:
            raise InvalidInput(self.name, mismatch.pointer, mismatch.expected)
        self.argv(given)

    def check_output(self, structured: Mapping[str, Any] | None) -> None:
        """Check that an output matches the schema. A tool without an output schema may return anything.

        Raises:
            InvalidOutput: with the position, and what was expected there.
        """
        mismatch = None if self._output is None else self._output.mismatch(structured)
        if mismatch is not None:
            raise InvalidOutput(self.name, mismatch.pointer, mismatch.expected)

    def matches_output(self, structured: Mapping[str, Any]) -> bool:
        """Whether an output matches the schema."""
        return self._output is None or self._output.mismatch(structured) is None

    def argv(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the command line for a validated input; empty if the tool has no argv template.

        Raises:
            InvalidInput: a value can't be a word, or would become an option.
        """
        if not isinstance(self.runs, Template):
            return ()
        words: list[str] = []
        for part in self.runs.argv:
            words.extend([part] if isinstance(part, str) else self._words(part, given))
        return tuple(words)

    def _words(self, part: Argument, given: Mapping[str, Any]) -> list[str]:
        value: Any = given
        for step in part.arg.split("/")[1:]:
            value = value.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(value, Mapping) else None
        if value is None:
            return []
        if not isinstance(value, str | int | float):
            raise InvalidInput(self.name, part.arg, "a string, a number or a boolean")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if "\0" in text:
            raise InvalidInput(self.name, part.arg, "text without NUL")
        if text.startswith("-") and not part.may_be_option and isinstance(value, str):
            raise InvalidInput(self.name, part.arg, "text that does not begin with a dash")
        return [text] if part.flag is None else [part.flag, text]


def make_tool(manifest: Manifest, of_profile: SandboxBounds | None = None) -> Tool:
    """Compile a manifest; `of_profile` are the bounds of the profile that it names.

    Raises:
        SchemaRefused: one of its schemas can't be used.
        NotCanonical: it has no canonical form.
    """
    serial = manifest.classification is not Classification.READ_ONLY if manifest.serial is None else manifest.serial
    schema_hash = content_hash(manifest.input_schema)
    builtin = manifest.runs.builtin if isinstance(manifest.runs, Builtin) else ""
    transfer = input_schema_of_transfers(builtin, manifest.input_schema)
    output = manifest.output_schema and output_schema_of_transfers(builtin, manifest.output_schema)
    acts = [manifest.name, schema_hash, manifest.runs.model_dump(mode="json"), manifest.classification.value]
    acts += [list(manifest.secrets)] if manifest.secrets else []
    return Tool(
        name=manifest.name,
        title=manifest.title,
        description=manifest.description,
        version=manifest.version,
        classification=manifest.classification,
        input_schema=manifest.input_schema,
        output_schema=manifest.output_schema,
        schema_hash=schema_hash,
        runs=manifest.runs,
        timeout_s=manifest.timeout_s,
        enabled=manifest.enabled,
        serial=serial,
        profile=manifest.profile,
        sandbox=combine_obligations(
            Obligations(sandbox=bounds) for bounds in (manifest.sandbox, of_profile) if bounds
        ).sandbox,
        secrets=manifest.secrets,
        examples=manifest.examples,
        wire_name=wire_name(manifest.name),
        behaviour_hash=content_hash(acts),
        manifest_hash=content_hash(manifest.model_dump(mode="json")),
        _input=CompiledSchema(manifest.input_schema),
        _output=CompiledSchema(output) if output is not None else None,
        _transfer=CompiledSchema(transfer) if transfer is not None else None,
    )
