"""The tool registry: manifests become tools that check their own inputs and outputs."""

from __future__ import annotations

from codesdk.registry.active import ActiveRegistry, Registries
from codesdk.registry.faults import InvalidInput, InvalidOutput, ManifestInvalid, UnknownTool
from codesdk.registry.layers import tenant_registry
from codesdk.registry.lint import Finding, lint
from codesdk.registry.manifest import Argument, Builtin, Example, Manifest, Template, manifest_schema
from codesdk.registry.registry import Loaded, Registry, manifest_files, read_manifest
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
    "Manifest",
    "ManifestInvalid",
    "Registries",
    "Registry",
    "Template",
    "Tool",
    "UnknownTool",
    "lint",
    "make_tool",
    "manifest_files",
    "manifest_schema",
    "read_manifest",
    "tenant_registry",
]
