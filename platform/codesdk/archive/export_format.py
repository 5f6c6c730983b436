"""The export format: JSON lines, read and written one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import ArtifactId, SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.domain.records import Artifact
from codesdk.errors import ExitCode, Fault

FORMAT = 1
MAX_LINE = 16 * 1024 * 1024
"""Most characters in one line, several times those of the largest event."""


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class ExportInvalid(Fault):
    """The file is not an export, or incomplete."""

    code = "EXPORT_INVALID"
    exit_code = ExitCode.DATA


class ExportLine(FrozenModel):
    """The first line."""

    kind: Literal["export"] = "export"
    format: int = Field(default=FORMAT, ge=1)
    schema_version: int
    """The current version of events. Each event has its own."""
    version: str
    """CodeSDK version that wrote the file."""


class SessionLine(FrozenModel):
    """Starts a session: its row and its tenant."""

    kind: Literal["session"] = "session"
    id: SessionId
    tenant_id: TenantId
    tenant: str
    """The tenant's name."""
    runtime: str
    permission_mode: PermissionMode
    profile: dict[str, Any]
    image: str
    labels: dict[str, str]
    created_at: float
    closed_at: float | None


class EventLine(FrozenModel):
    """One event as stored, in the schema version it was written in."""

    kind: Literal["event"] = "event"
    event: dict[str, Any]


class ArtifactLine(FrozenModel):
    """An artifact of the session. Its bytes, if exported, are in a file named by their hash."""

    kind: Literal["artifact"] = "artifact"
    artifact: Artifact

    @property
    def file_name(self) -> str:
        """Name of the file with its bytes."""
        return self.artifact.content_hash.removeprefix("sha256:")


class EndLine(FrozenModel):
    """Ends a session: it is complete."""

    kind: Literal["end"] = "end"
    session_id: SessionId
    events: int = Field(ge=0)
    artifacts: tuple[ArtifactId, ...]


Line = ExportLine | SessionLine | EventLine | ArtifactLine | EndLine
_KINDS: dict[str, TypeAdapter[Any]] = {
    "export": TypeAdapter(ExportLine),
    "session": TypeAdapter(SessionLine),
    "event": TypeAdapter(EventLine),
    "artifact": TypeAdapter(ArtifactLine),
    "end": TypeAdapter(EndLine),
}


def write(file: IO[str], line: Line) -> None:
    """Write one line."""
    file.write(_ENCODER.encode(line.model_dump(mode="json")) + "\n")


def read(file: IO[str]) -> Iterator[tuple[int, Line]]:
    """Yield each line with its number, from 1.

    Raises:
        ExportInvalid: names the line that can't be read.
    """
    number = 0
    try:
        while text := file.readline(MAX_LINE):
            number += 1
            yield number, _line(number, text)
    except UnicodeDecodeError as error:
        raise ExportInvalid(f"Line {number + 1} is not UTF-8.", advice="Use another copy of the file.") from error


def _line(number: int, text: str) -> Line:
    advice = "Use another copy of the file."
    if not text.endswith("\n"):
        raise ExportInvalid(f"Line {number} is cut off.", advice=advice)
    try:
        said = json.loads(text)
        # Python's parser accepts NaN, 1e999 and lone surrogates, which are not JSON and no database stores.
        _ENCODER.encode(said).encode()
    except (ValueError, RecursionError) as error:
        raise ExportInvalid(f"Line {number} is not JSON: {_why(error)}.", advice=advice) from error
    try:
        line: Line = _KINDS[said["kind"]].validate_python(said)
    except (TypeError, KeyError) as error:
        raise ExportInvalid(f"Line {number} is not a valid line of an export.", advice=advice) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise ExportInvalid(f"Line {number} is wrong: {place}: {first['msg']}.", advice=advice) from error
    return line


def _why(error: Exception) -> str:
    match error:
        case UnicodeEncodeError():
            return "it has half of a character (a lone surrogate)"
        case json.JSONDecodeError():
            return error.msg
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return "it has a number that JSON does not allow"
