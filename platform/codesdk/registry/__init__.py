"""The tool registry: loads manifests into tools that validate their inputs and outputs."""

from __future__ import annotations

from codesdk.registry.active_registry import ActiveRegistry, RegistryProvider
from codesdk.registry.faults import InvalidInput, InvalidOutput, ManifestInvalid, ToolWithheld, UnknownTool
from codesdk.registry.lint import Finding, lint
from codesdk.registry.manifest import Argument, Builtin, Example, Manifest, SourceCall, Template, manifest_schema
from codesdk.registry.prompts import InvalidPromptArgument, Prompt, read_prompts
from codesdk.registry.registry import LoadedSource, LoadedTool, Registry, manifest_files, read_entry
from codesdk.registry.source import Source, SourceManifest, source_schema
from codesdk.registry.tenant_tools import tenant_registry
from codesdk.registry.tool import Tool, make_tool

__all__ = [
    "ActiveRegistry",
    "Argument",
    "Builtin",
    "Example",
    "Finding",
    "InvalidInput",
    "InvalidOutput",
    "InvalidPromptArgument",
    "LoadedSource",
    "LoadedTool",
    "Manifest",
    "ManifestInvalid",
    "Prompt",
    "Registry",
    "RegistryProvider",
    "Source",
    "SourceCall",
    "SourceManifest",
    "Template",
    "Tool",
    "ToolWithheld",
    "UnknownTool",
    "lint",
    "make_tool",
    "manifest_files",
    "manifest_schema",
    "read_entry",
    "read_prompts",
    "source_schema",
    "tenant_registry",
]
