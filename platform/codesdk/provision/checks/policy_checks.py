"""Checks policy and tool files as the next start would read them."""

from __future__ import annotations

from codesdk.domain.clock import SystemClock
from codesdk.errors import Fault
from codesdk.policy import ActiveBundles
from codesdk.provision.checks.check import Check, Status
from codesdk.registry import ActiveRegistry, ManifestInvalid
from codesdk.sandbox.profiles.loader import load_profiles
from codesdk.settings import Settings

NAME = "policy"


def check_policy(settings: Settings) -> Check:
    """Load the tools, the shared bundle and every tenant's bundle."""
    try:
        profiles = load_profiles(settings.profiles_dir).bounds()
        registry = ActiveRegistry(settings.registry_dir, tenants=settings.tenant_tools(), profiles=profiles)
        found = ActiveBundles(
            settings.policies_dir, registry.names(), SystemClock(), tenants=settings.tenant_policies()
        )
    except Fault as fault:
        mend = "Fix it: running processes keep the last valid version, and no process starts with this one"
        name = "tools" if isinstance(fault, ManifestInvalid) else NAME
        return Check(name, Status.FAIL, fault.message, f"{mend}. {fault.advice()}".rstrip())
    tenants = f", and {len(found.tenants)} tenants' own rules" if found.tenants else ""
    return Check(NAME, Status.OK, f"{settings.policies_dir}: {len(found.shared.bundle.rules)} rules{tenants}")
