"""The base fault for invalid files."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Self

from codesdk.documents.document import DocumentUnreadable
from codesdk.errors import ExitCode, Fault


class FileInvalid(Fault):
    """A file is invalid and not used. Each kind of file has a subclass with its own code."""

    code = "FILE_INVALID"
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

    @classmethod
    def of(cls, path: str | PathLike[str], error: DocumentUnreadable) -> Self:
        """Create the fault for a parse error in `path`."""
        return cls(fspath(path), error.place.line, error.place.column, error.message, error.suggestion)
