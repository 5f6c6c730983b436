"""Loads the bundle and the tools for a policy command."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from codesdk.cli.effective_settings import load_settings
from codesdk.policy import Bundle, load_bundle
from codesdk.registry import ActiveRegistry, Tool
from codesdk.registry.active_registry import KnownTools
from codesdk.settings import Settings


class PolicyContext(NamedTuple):
    """The bundle and tools that a command evaluates with."""

    bundle: Bundle
    tools: dict[str, Tool]
    directory: Path


def known_tools(directory: Path | None = None) -> dict[str, Tool]:
    """Return the tools that the rules in `directory` can name: a tenant's if it is that tenant's policy folder.

    Raises:
        ManifestInvalid: with file, line and column.
    """
    return dict(known_tools_of(load_settings(), owning_tenant(directory)))


def bundle_directory(policies: Path | None) -> Path:
    """Return the given bundle directory, or the configured one."""
    return load_settings(policies=policies).policies_dir


def load(policies: Path | None) -> PolicyContext:
    """Load bundle and tools.

    Raises:
        PolicyInvalid, ManifestInvalid: with file, line and column.
    """
    directory = bundle_directory(policies)
    tools = known_tools(directory)
    bundle = load_bundle(directory, tools, may_enable=owning_tenant(directory) is None)
    return PolicyContext(bundle, tools, directory)


def known_tools_of(settings: Settings, tenant: str | None) -> KnownTools:
    """Return the tools that the shared rules can name, or those of a tenant.

    Raises:
        ManifestInvalid: with file, line and column.
    """
    found = ActiveRegistry(settings.registry_dir, tenants=settings.tenant_tools()).known_tools()
    return found if tenant is None else found.of_tenant(tenant)


def owning_tenant(directory: Path | None) -> str | None:
    """Return the tenant whose policy folder this is; None if it is another directory."""
    parent = load_settings().tenant_policies()
    if parent is None or directory is None or directory.resolve().parent != parent.resolve():
        return None
    return directory.resolve().name
