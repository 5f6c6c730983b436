"""Pinned tools of a source: a file next to its manifest, written by `codesdk tools pin` and `accept`.

The model is shown the pinned descriptions, and calls are validated against the pinned schemas, never against what the
server currently offers. Hashes show whether a tool has changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from codesdk.documents import DocumentUnreadable
from codesdk.documents.document import Position, read_text
from codesdk.domain.canonical import content_hash
from codesdk.domain.model import FrozenModel

SUFFIX = ".pins.json"
MAX_TOOLS = 256
"""Tools of one server. The largest servers in use have about a hundred."""
MAX_NAME = 200
MAX_DESCRIPTION = 8000
"""Characters. Nobody reads a longer description before accepting it."""


class OfferedTool(FrozenModel):
    """A tool as its server describes it."""

    name: str = Field(min_length=1, max_length=MAX_NAME)
    """The server's name for the tool."""
    title: str | None = Field(default=None, max_length=200)
    description: str = Field(max_length=MAX_DESCRIPTION)
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None

    @property
    def hash(self) -> str:
        """`sha256:` of all fields.

        Raises:
            NotCanonical: a number or a string is outside I-JSON.
        """
        return content_hash(self.model_dump(mode="json"))


class PinnedTool(OfferedTool):
    """An accepted tool."""

    sha256: str
    """The tool's hash. A file that was edited by hand is refused."""


class Pins(FrozenModel):
    """The pins file."""

    version: Literal[1] = 1
    source: str
    server: str = Field(default="", max_length=200)
    """The name that the server reports, for people."""
    tools: tuple[PinnedTool, ...] = Field(default=(), max_length=MAX_TOOLS)

    def by_name(self) -> dict[str, PinnedTool]:
        """Return the tools by the server's names."""
        return {pin.name: pin for pin in self.tools}


def pin_tool(offered: OfferedTool) -> PinnedTool:
    """Pin a tool as offered."""
    return PinnedTool(**offered.model_dump(), sha256=offered.hash)


def pins_path(manifest: Path) -> Path:
    """Return the path of a manifest's pins: `time.pins.json` next to `time.yaml`."""
    return manifest.with_name(manifest.stem + SUFFIX)


def read_pins(manifest: Path, source: str) -> Pins:
    """Read the pinned tools of a source; none if there is no file.

    Raises:
        DocumentUnreadable: the file is invalid, belongs to another source, or was edited by hand.
    """
    path = pins_path(manifest)
    if not path.exists():
        return Pins(source=source)
    try:
        pins = Pins.model_validate(json.loads(read_text(path)))
    except json.JSONDecodeError as error:
        raise DocumentUnreadable(Position(error.lineno, error.colno), f"This is not JSON: {error.msg}.") from error
    except (ValidationError, RecursionError) as error:
        said = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else None
        where = ".".join(map(str, said["loc"])) if said else "the file"
        what = said["msg"] if said else "it is nested too deeply"
        raise DocumentUnreadable(
            Position(1, 1), f"`{where}` is invalid (`codesdk tools pin` writes this file): {what}."
        ) from error
    if pins.source != source:
        raise DocumentUnreadable(Position(1, 1), f"These are the tools of `{pins.source}`, not of `{source}`.")
    for tool in pins.tools:
        if OfferedTool(**tool.model_dump(exclude={"sha256"})).hash != tool.sha256:
            message = f"`{tool.name}` differs from what was accepted: its hash does not match. Accept it with `codesdk tools accept`."
            raise DocumentUnreadable(Position(1, 1), message)
    return pins


def pins_text(pins: Pins) -> str:
    """Return the file's text. The order of the tools does not matter."""
    ordered = pins.model_copy(update={"tools": tuple(sorted(pins.tools, key=lambda tool: tool.name))})
    return json.dumps(ordered.model_dump(mode="json", exclude_none=True), indent=2, ensure_ascii=True) + "\n"


class PinDifference(NamedTuple):
    """How an offered tool differs from the pinned one."""

    name: str
    before: PinnedTool | None
    """None if the tool is new."""
    now: OfferedTool | None
    """None if the server no longer has the tool."""

    @property
    def kind(self) -> str:
        """`new`, `gone` or `changed`."""
        return "new" if self.before is None else "gone" if self.now is None else "changed"

    def fields(self) -> tuple[str, ...]:
        """Return the names of the changed fields."""
        if self.before is None or self.now is None:
            return ()
        return tuple(name for name in OfferedTool.model_fields if getattr(self.before, name) != getattr(self.now, name))


def diff_pins(pins: Pins, offered: tuple[OfferedTool, ...]) -> tuple[PinDifference, ...]:
    """Compare a server's current tools with the pinned ones. Return the differences, by name. Pure."""
    before, now = pins.by_name(), {tool.name: tool for tool in offered}
    names = sorted({*before, *now})
    found = (PinDifference(name, before.get(name), now.get(name)) for name in names)
    return tuple(one for one in found if one.before is None or one.now is None or one.before.sha256 != one.now.hash)
