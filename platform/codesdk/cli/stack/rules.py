"""What people wrote is read before anything starts: a bad policy or manifest file stops a start at once."""

from __future__ import annotations

from codesdk.policy import load_bundle
from codesdk.registry import Registry
from codesdk.settings import Settings


def check_rules(settings: Settings) -> None:
    """Load the registry and the policies, and forget them.

    Raises:
        PolicyInvalid, ManifestInvalid: with file, line and column.
    """
    registry = Registry.load(settings.registry_dir)
    load_bundle(settings.policies_dir, [tool.name for tool in registry.tools()])
