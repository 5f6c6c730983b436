"""Validates configuration files before anything starts."""

from __future__ import annotations

from codesdk.domain.clock import SystemClock
from codesdk.policy import ActiveBundles
from codesdk.registry import ActiveRegistry
from codesdk.sandbox.profiles.loader import load_profiles
from codesdk.settings import Settings


def check_config_files(settings: Settings) -> None:
    """Load registry, policies and profiles once, to fail early.

    Raises:
        PolicyInvalid, ManifestInvalid, ProfileInvalid: with file, line and column.
    """
    profiles = load_profiles(settings.profiles_dir).bounds()
    registry = ActiveRegistry(settings.registry_dir, tenants=settings.tenant_tools(), profiles=profiles)
    ActiveBundles(settings.policies_dir, registry.names(), SystemClock(), tenants=settings.tenant_policies())
