"""The tool registry: manifests become tools that check their own inputs and outputs."""

from __future__ import annotations

from codesdk.registry.active import ActiveRegistry, Registries
from codesdk.registry.faults import InvalidInput, InvalidOutput, ManifestInvalid, ToolWithheld, UnknownTool
from codesdk.registry.layers import tenant_registry
from codesdk.registry.lint import Finding, lint
from codesdk.registry.manifest import Argument, Builtin, Example, Manifest, SourceCall, Template, manifest_schema
from codesdk.registry.prompts import Prompt, PromptArgumentWrong, read_prompts
from codesdk.registry.registry import Loaded, LoadedSource, Registry, manifest_files, read_entry, read_manifest
from codesdk.registry.source import Source, SourceManifest, source_schema
from codesdk.registry.tool import Tool, make_tool

__all__ = [
    "ActiveRegistry",
    "Argument",
    "Builtin",
    "Example",
    "Finding",
    "InvalidInput",
    "InvalidOutput",
    "Loaded",
    "LoadedSource",
    "Manifest",
    "ManifestInvalid",
    "Prompt",
    "PromptArgumentWrong",
    "Registries",
    "Registry",
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
    "read_manifest",
    "read_prompts",
    "source_schema",
    "tenant_registry",
]
