"""Runs built-in tools as the worker does, and holds each result to what clients take."""

from __future__ import annotations

import json
from dataclasses import replace

from codesdk.domain.calls import CallIdentity
from codesdk.domain.ids import ToolCallId
from codesdk.registry import Registry
from codesdk.sandbox.profiles.profile import Profile
from codesdk.tools import StoredOutput, ToolContext, run_tool
from stage import REPOSITORY, Room

REGISTRY = Registry.load(REPOSITORY / "tool-registry")
IDENTITY = CallIdentity(tool_call_id=ToolCallId("call_1"), input_hash="sha256:0")


def context(room: Room, **more: object) -> ToolContext:
    made = ToolContext(
        sandbox=room, profile=Profile(), identity=IDENTITY, timeout_s=30.0, on_output=lambda _chunk: None
    )
    return replace(made, **more)


def use(name, given, at):
    tool = REGISTRY.resolve(name)
    tool.check_input(given)
    result = run_tool(tool, given, at)
    assert result.is_error or tool.check_output(result.structured) is None
    assert shown(result) <= 50_000
    return result


def shown(result):
    """Characters that a client passes on which shows both the text and the structured result."""
    return len(result.text) + len(json.dumps(result.structured, ensure_ascii=False))


def output(data):
    kept = StoredOutput("stdout.txt", "text/plain", len(data), lambda offset, length: data[offset : offset + length])
    return lambda artifact: kept if artifact == "art_1" else None
