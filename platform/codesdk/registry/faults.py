"""What can be wrong with a tool's name, its manifest, or the input of a call."""

from __future__ import annotations

from codesdk.documents import FileInvalid
from codesdk.errors import ExitCode, Fault


class ManifestInvalid(FileInvalid):
    """A tool manifest cannot be used; the registry does not load."""

    code = "MANIFEST_INVALID"


class UnknownTool(Fault):
    """No tool has that name."""

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
    """The tool's server has changed it since it was accepted, so nobody may call it until somebody looks."""

    code = "TOOL_CHANGED"
    status = 409

    def __init__(self, name: str, why: str) -> None:
        source = name.partition(".")[0]
        super().__init__(
            f"`{name}` cannot be called now: {why}.",
            advice=f"An operator looks with `codesdk tools diff {source}`, and accepts it or does not.",
            details={"tool": name},
        )


class InvalidInput(Fault):
    """A call's input does not fit the tool's schema. Values are never repeated: they may be secrets, or huge."""

    code = "INVALID_INPUT"
    status = 422
    exit_code = ExitCode.USAGE

    def __init__(self, tool: str, pointer: str, expected: str) -> None:
        where = f"`{pointer}`" if pointer else "The input"
        super().__init__(
            f"{where} of `{tool}` does not fit: expected {expected}.",
            details={"tool": tool, "path": pointer, "expected": expected},
        )
        self.tool = tool
        self.pointer = pointer
        self.expected = expected


class InvalidOutput(Fault):
    """A tool gave structured output that its own manifest does not describe: the tool's defect, not the caller's."""

    code = "INVALID_TOOL_OUTPUT"
    status = 502

    def __init__(self, tool: str, pointer: str, expected: str) -> None:
        where = f"at `{pointer}`" if pointer else "as a whole"
        super().__init__(
            f"The output of `{tool}` does not fit its schema {where}: expected {expected}.",
            details={"tool": tool, "path": pointer},
        )
        self.pointer = pointer
        self.expected = expected
