"""Inputs of a decision: the call, and the tool as its manifest describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from codesdk.domain.decisions import Classification
from codesdk.domain.model import FrozenModel
from codesdk.domain.tool_results import ToolFacts

__all__ = ["Call", "CallFacts", "ExampleTool", "ToolFacts"]


class CallFacts(Protocol):
    """The facts of a call that policy uses; `codesdk.domain.calls.ToolCall` has them."""

    @property
    def name(self) -> str:
        """Dotted name of the tool."""
        ...

    @property
    def input(self) -> Mapping[str, Any]:
        """The arguments, as JSON values."""
        ...


class Call(FrozenModel):
    """A hypothetical call, for examples, tests and `explain`."""

    name: str
    input: dict[str, Any]


class ExampleTool(FrozenModel):
    """A tool that exists only for tests and examples."""

    name: str
    classification: Classification = Classification.WRITE
    schema_hash: str = ""
    enabled: bool = True
