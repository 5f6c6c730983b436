"""What a decision looks at: the call, and the tool as its manifest describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from codesdk.domain.decisions import Classification
from codesdk.domain.model import FrozenModel
from codesdk.domain.tool_results import ToolFacts

__all__ = ["Call", "CallFacts", "NamedTool", "ToolFacts"]


class CallFacts(Protocol):
    """What policy may know about a call; `codesdk.domain.calls.ToolCall` is one."""

    @property
    def name(self) -> str:
        """Dotted name of the tool."""
        ...

    @property
    def input(self) -> Mapping[str, Any]:
        """The arguments, as JSON values."""
        ...


class Call(FrozenModel):
    """A call that is only asked about: in examples, tests, `explain`."""

    name: str
    input: dict[str, Any]


class NamedTool(FrozenModel):
    """A tool that is only asked about."""

    name: str
    classification: Classification = Classification.WRITE
    schema_hash: str = ""
    enabled: bool = True
