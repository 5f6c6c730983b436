"""What was accepted of a server's tools: a file beside the source's manifest, written by `codesdk tools pin` and `accept`.

The model is shown what stands here, and a call is checked against it: never what the server says today. Its hash tells
whether that is still the same.
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
"""Tools of one server; the largest of those in use have about a hundred."""
MAX_NAME = 200
MAX_DESCRIPTION = 8000
"""Characters. What is longer is read by no person who accepts it."""


class OfferedTool(FrozenModel):
    """One tool, as its server described it."""

    name: str = Field(min_length=1, max_length=MAX_NAME)
    """The server's own name for it."""
    title: str | None = Field(default=None, max_length=200)
    description: str = Field(max_length=MAX_DESCRIPTION)
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None

    @property
    def hash(self) -> str:
        """`sha256:` of all of it.

        Raises:
            NotCanonical: a number or a string in it is outside I-JSON.
        """
        return content_hash(self.model_dump(mode="json"))


class PinnedTool(OfferedTool):
    """One accepted tool."""

    sha256: str
    """Its hash: a file that was edited by hand is refused."""


class Pins(FrozenModel):
    """The file."""

    version: Literal[1] = 1
    source: str
    server: str = Field(default="", max_length=200)
    """What the server called itself, for people."""
    tools: tuple[PinnedTool, ...] = Field(default=(), max_length=MAX_TOOLS)

    def by_name(self) -> dict[str, PinnedTool]:
        """By the server's names."""
        return {pin.name: pin for pin in self.tools}


def pin_tool(offered: OfferedTool) -> PinnedTool:
    """Accept it as it is."""
    return PinnedTool(**offered.model_dump(), sha256=offered.hash)


def pins_path(manifest: Path) -> Path:
    """Where the pins of that manifest stand: `time.pins.json` beside `time.yaml`."""
    return manifest.with_name(manifest.stem + SUFFIX)


def read_pins(manifest: Path, source: str) -> Pins:
    """What was accepted of a source; nothing where nothing was.

    Raises:
        Unreadable: it is no such file, another source's, or was edited by hand.
    """
    path = pins_path(manifest)
    if not path.exists():
        return Pins(source=source)
    try:
        pins = Pins.model_validate(json.loads(read_text(path)))
    except json.JSONDecodeError as error:
        raise DocumentUnreadable(Position(error.lineno, error.colno), f"This is no JSON: {error.msg}.") from error
    except (ValidationError, RecursionError) as error:
        said = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else None
        where = ".".join(map(str, said["loc"])) if said else "the file"
        what = said["msg"] if said else "it is nested too deeply"
        raise DocumentUnreadable(
            Position(1, 1), f"`{where}` is not as `codesdk tools pin` writes it: {what}."
        ) from error
    if pins.source != source:
        raise DocumentUnreadable(Position(1, 1), f"These are the tools of `{pins.source}`, not of `{source}`.")
    for tool in pins.tools:
        if OfferedTool(**tool.model_dump(exclude={"sha256"})).hash != tool.sha256:
            message = (
                f"`{tool.name}` is not what was accepted: its hash is another. Accept it with `codesdk tools accept`."
            )
            raise DocumentUnreadable(Position(1, 1), message)
    return pins


def pins_text(pins: Pins) -> str:
    """The file's text; the same tools, the same text."""
    ordered = pins.model_copy(update={"tools": tuple(sorted(pins.tools, key=lambda tool: tool.name))})
    return json.dumps(ordered.model_dump(mode="json", exclude_none=True), indent=2, ensure_ascii=True) + "\n"


class PinDifference(NamedTuple):
    """How one tool of a server stands to what was accepted."""

    name: str
    before: PinnedTool | None
    """None: it is new."""
    now: OfferedTool | None
    """None: the server has it no more."""

    @property
    def kind(self) -> str:
        """`new`, `gone`, `changed`."""
        return "new" if self.before is None else "gone" if self.now is None else "changed"

    def fields(self) -> tuple[str, ...]:
        """What has changed."""
        if self.before is None or self.now is None:
            return ()
        return tuple(name for name in OfferedTool.model_fields if getattr(self.before, name) != getattr(self.now, name))


def diff_pins(pins: Pins, offered: tuple[OfferedTool, ...]) -> tuple[PinDifference, ...]:
    """What a server says now that was not accepted, by name. Pure."""
    before, now = pins.by_name(), {tool.name: tool for tool in offered}
    names = sorted({*before, *now})
    found = (PinDifference(name, before.get(name), now.get(name)) for name in names)
    return tuple(one for one in found if one.before is None or one.now is None or one.before.sha256 != one.now.hash)
