"""The bundle and the tools that a command is about."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from codesdk.cli.effective_settings import load_settings
from codesdk.policy import Bundle, load_bundle
from codesdk.registry import Registry, Tool


class PolicyContext(NamedTuple):
    """What a question is judged by."""

    bundle: Bundle
    tools: dict[str, Tool]
    directory: Path


def known_tools() -> dict[str, Tool]:
    """The registry's tools by dotted name.

    Raises:
        ManifestInvalid: with file, line and column.
    """
    return {tool.name: tool for tool in Registry.load(load_settings().registry_dir).tools()}


def bundle_directory(policies: Path | None) -> Path:
    """The bundle that was named, or the one that the settings name."""
    return load_settings(policies=policies).policies_dir


def load(policies: Path | None) -> PolicyContext:
    """Bundle and tools.

    Raises:
        PolicyInvalid, ManifestInvalid: with file, line and column.
    """
    tools = known_tools()
    directory = bundle_directory(policies)
    return PolicyContext(load_bundle(directory, list(tools)), tools, directory)
