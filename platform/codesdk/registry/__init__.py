"""The tool registry: manifests become tools that check their own inputs and outputs."""

from __future__ import annotations

from codesdk.registry.faults import InvalidInput, InvalidOutput, ManifestInvalid, UnknownTool
from codesdk.registry.manifest import Argument, Builtin, Example, Manifest, Template, manifest_schema
from codesdk.registry.registry import Registry
from codesdk.registry.tool import Tool, make_tool

__all__ = [
    "Argument",
    "Builtin",
    "Example",
    "InvalidInput",
    "InvalidOutput",
    "Manifest",
    "ManifestInvalid",
    "Registry",
    "Template",
    "Tool",
    "UnknownTool",
    "make_tool",
    "manifest_schema",
]
