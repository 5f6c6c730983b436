"""One tool, as the rest of the product sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import Classification, Obligations, SandboxBounds, combine_obligations
from codesdk.domain.tool_results import wire_name
from codesdk.registry.faults import InvalidInput, InvalidOutput
from codesdk.registry.manifest import Argument, Builtin, Example, Manifest, SourceCall, Template
from codesdk.registry.schemas import CompiledSchema


@dataclass(frozen=True)
class Tool:
    """A manifest with its schemas compiled; policy's `ToolFacts`."""

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
    """One call at a time in a workspace."""
    profile: str | None
    """The profile whose bounds are among those of `sandbox`."""
    sandbox: SandboxBounds
    """What each of its calls is held to."""
    secrets: tuple[str, ...]
    """Names of those that it needs."""
    examples: tuple[Example, ...] = field(repr=False)
    wire_name: str
    """What MCP clients call it."""
    behaviour_hash: str = field(repr=False)
    """`sha256:` of all that decides what a call does: schema, command, class. An approval binds it."""
    manifest_hash: str = field(repr=False)
    """`sha256:` of the whole manifest."""
    _input: CompiledSchema = field(repr=False, compare=False)
    _output: CompiledSchema | None = field(repr=False, compare=False)
    withheld: str = ""
    """Why nobody may call it at present, though it is here: its server has changed it. Empty where they may."""

    def check_input(self, given: Mapping[str, Any]) -> None:
        """Let a fitting input pass, of which every word of a command can be made.

        Raises:
            InvalidInput: names the place and what was expected there.
        """
        mismatch = self._input.mismatch(given)
        if mismatch is not None:
            raise InvalidInput(self.name, mismatch.pointer, mismatch.expected)
        self.argv(given)

    def check_output(self, structured: Mapping[str, Any] | None) -> None:
        """Let a fitting output pass; a tool without an output schema may give anything.

        Raises:
            InvalidOutput: names the place and what was expected there.
        """
        if self._output is None:
            return
        mismatch = self._output.mismatch(structured)
        if mismatch is not None:
            raise InvalidOutput(self.name, mismatch.pointer, mismatch.expected)

    def argv(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        """The words to run, for a tool with an argv template and an input that was checked.

        Raises:
            InvalidInput: a value cannot be a word, or would become an option.
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
        SchemaRefused: one of its schemas cannot be used.
        NotCanonical: it has no canonical form.
    """
    serial = manifest.classification is not Classification.READ_ONLY if manifest.serial is None else manifest.serial
    schema_hash = content_hash(manifest.input_schema)
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
        _output=CompiledSchema(manifest.output_schema) if manifest.output_schema is not None else None,
    )
