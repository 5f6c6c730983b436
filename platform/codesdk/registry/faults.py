"""Faults of tool names, manifests, inputs and outputs."""

from __future__ import annotations

from codesdk.documents import FileInvalid
from codesdk.errors import ExitCode, Fault


class ManifestInvalid(FileInvalid):
    """A tool manifest is invalid, so the registry does not load."""

    code = "MANIFEST_INVALID"


class UnknownTool(Fault):
    """There is no tool with that name."""

    code = "UNKNOWN_TOOL"
    status = 404
    exit_code = ExitCode.USAGE

    def __init__(self, name: str, suggestion: str | None = None) -> None:
        advice = (
            f"Did you mean `{suggestion}`?" if suggestion else "The tool list has the names that this session may use."
        )
        super().__init__(
            f"There is no tool `{name[:100]}`.", advice=advice, details={"tool": name[:100], "suggestion": suggestion}
        )
        self.name = name
        self.suggestion = suggestion


class ToolWithheld(Fault):
    """The tool's server has changed it since it was accepted. It can't be called until an operator reviews it."""

    code = "TOOL_CHANGED"
    status = 409

    def __init__(self, name: str, why: str) -> None:
        source = name.partition(".")[0]
        super().__init__(
            f"`{name}` cannot be called now: {why}.",
            advice=f"An operator can review the change with `codesdk tools diff {source}`, and accept it.",
            details={"tool": name},
        )


class InvalidInput(Fault):
    """The input does not match the tool's schema. Messages never repeat values, which may be secret or huge."""

    code = "INVALID_INPUT"
    status = 422
    exit_code = ExitCode.USAGE

    def __init__(self, tool: str, pointer: str, expected: str) -> None:
        where = f"`{pointer}`" if pointer else "The input"
        super().__init__(
            f"{where} of `{tool}` is invalid: expected {expected}.",
            details={"tool": tool, "path": pointer, "expected": expected},
        )
        self.tool = tool
        self.pointer = pointer
        self.expected = expected


class InvalidOutput(Fault):
    """The tool's structured output does not match its output schema."""

    code = "INVALID_TOOL_OUTPUT"
    status = 502

    def __init__(self, tool: str, pointer: str, expected: str) -> None:
        where = f"at `{pointer}`" if pointer else "as a whole"
        super().__init__(
            f"The output of `{tool}` does not match its schema {where}: expected {expected}.",
            details={"tool": tool, "path": pointer},
        )
        self.pointer = pointer
        self.expected = expected
