"""What people wrote is read before anything starts: a bad policy or manifest file stops a start at once."""

from __future__ import annotations

from codesdk.policy import load_bundle
from codesdk.registry import Registry
from codesdk.sandbox.profiles import load_profiles
from codesdk.settings import Settings


def check_rules(settings: Settings) -> None:
    """Load registry, policies and profiles, and forget them.

    Raises:
        PolicyInvalid, ManifestInvalid, ProfileInvalid: with file, line and column.
    """
    registry = Registry.load(settings.registry_dir)
    load_bundle(settings.policies_dir, [tool.name for tool in registry.tools()])
    load_profiles(settings.profiles_dir)
