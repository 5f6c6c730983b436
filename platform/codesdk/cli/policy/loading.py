"""Loads the bundle and the tools for a policy command."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from codesdk.cli.effective_settings import load_settings
from codesdk.policy import Bundle, load_bundle
from codesdk.registry import Registry, Tool


class PolicyContext(NamedTuple):
    """The bundle and tools that a command evaluates with."""

    bundle: Bundle
    tools: dict[str, Tool]
    directory: Path


def known_tools() -> dict[str, Tool]:
    """Return the registry's tools by dotted name.

    Raises:
        ManifestInvalid: with file, line and column.
    """
    return {tool.name: tool for tool in Registry.load(load_settings().registry_dir).tools()}


def bundle_directory(policies: Path | None) -> Path:
    """Return the given bundle directory, or the configured one."""
    return load_settings(policies=policies).policies_dir


def load(policies: Path | None) -> PolicyContext:
    """Load bundle and tools.

    Raises:
        PolicyInvalid, ManifestInvalid: with file, line and column.
    """
    tools = known_tools()
    directory = bundle_directory(policies)
    return PolicyContext(load_bundle(directory, list(tools)), tools, directory)
