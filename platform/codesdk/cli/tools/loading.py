"""Loads the manifests for a command."""

from __future__ import annotations

from pathlib import Path

from codesdk.cli.console.arguments import InputWrong
from codesdk.cli.effective_settings import load_settings
from codesdk.registry import Registry, tenant_registry
from codesdk.sandbox.profiles.loader import load_profiles


def directory_of(tools: Path | None) -> Path:
    """Return the given directory, or the configured one."""
    return tools if tools is not None else load_settings().registry_dir


def registry_of(tools: Path | None, tenant: str | None = None) -> Registry:
    """Load all tools, including the tenant's if one is given.

    Raises:
        ManifestInvalid, ProfileInvalid: with file, line and column.
        InputWrong: the tenant has no tools of its own.
    """
    profiles = load_profiles(load_settings().profiles_dir).bounds()
    shared = Registry.load(directory_of(tools), profiles)
    if tenant is None:
        return shared
    own = load_settings().tenant_tools()
    if own is None or "/" in tenant or not (own / tenant).is_dir():
        raise InputWrong(
            f"{tenant} has no tools of its own.",
            advice="CODESDK_TENANT_TOOLS_DIR must have a directory with the tenant's id (`codesdk tenants list`).",
        )
    return tenant_registry(own / tenant, shared, profiles)
