"""What can be wrong with a bundle."""

from __future__ import annotations

from codesdk.errors import ExitCode, Fault


class PolicyInvalid(Fault):
    """A file of a policy bundle cannot be used; the bundle does not become active."""

    code = "POLICY_INVALID"
    status = 422
    exit_code = ExitCode.DATA

    def __init__(self, file: str, line: int, column: int, message: str, suggestion: str | None = None) -> None:
        advice = f"Did you mean `{suggestion}`?" if suggestion else ""
        details: dict[str, object] = {"file": file, "line": line, "column": column}
        super().__init__(f"{file}:{line}:{column}: {message}", advice=advice, details=details)
        self.file = file
        self.line = line
        self.column = column
        self.problem = message
        self.suggestion = suggestion
