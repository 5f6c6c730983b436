"""Checks the operator's files as the next start would read them: policy and tools, MCP servers, login issuers."""

from __future__ import annotations

from collections.abc import Collection

from codesdk.domain.clock import SystemClock
from codesdk.errors import Fault
from codesdk.policy import ActiveBundles
from codesdk.provision.checks.check import Check, Status
from codesdk.registry import ActiveRegistry, ManifestInvalid
from codesdk.registry.registry import LoadedSource, read_manifests
from codesdk.registry.suspicious_text import find_suspicions
from codesdk.sandbox.profiles.loader import load_profiles
from codesdk.settings import Settings
from codesdk.tenancy.logins import Issuer, read_issuers


def check_policy(settings: Settings) -> Check:
    """Load the tools, the shared bundle and every tenant's bundle."""
    try:
        profiles = load_profiles(settings.profiles_dir).bounds()
        registry = ActiveRegistry(settings.registry_dir, tenants=settings.tenant_tools(), profiles=profiles)
        found = ActiveBundles(
            settings.policies_dir,
            registry.known_tools(),
            SystemClock(),
            tenants=settings.tenant_policies(),
            enforce_tests=settings.enforces_policy_tests(),
        )
    except Fault as fault:
        fix = "Fix it: running processes keep the last valid version, and no process starts with this one"
        name = "tools" if isinstance(fault, ManifestInvalid) else "policy"
        return Check(name, Status.FAIL, fault.message, f"{fix}. {fault.advice()}".rstrip())
    tenants = f", and {len(found.tenants)} tenants' own rules" if found.tenants else ""
    return Check("policy", Status.OK, f"{settings.policies_dir}: {len(found.shared.bundle.rules)} rules{tenants}")


def check_mcp_servers(settings: Settings) -> Check | None:
    """Check the sources' pins; None if there is no source."""
    name = "MCP servers"
    try:
        sources = read_manifests(settings.registry_dir).sources
    except Fault as fault:
        return Check(name, Status.FAIL, fault.message, fault.advice())
    if not sources:
        return None
    listed = ", ".join(_describe(each) for each in sources)
    bare = [each.source.name for each in sources if not each.pins.tools]
    suspect = [each.source.name for each in sources if any(find_suspicions(pin) for pin in each.pins.tools)]
    if bare:
        return Check(name, Status.WARN, listed, f"Review and accept its tools: codesdk tools pin {bare[0]}")
    if suspect:
        fix = "Review suspicious text in accepted descriptions: codesdk tools lint"
        return Check(name, Status.WARN, listed, fix)
    return Check(name, Status.OK, listed)


def _describe(each: LoadedSource) -> str:
    count = len(each.pins.tools)
    where = " (remote)" if each.source.manifest.url else ""
    return f"{each.source.name}{where}: {count or 'no'} tool{'s' * (count != 1)} accepted"


def check_logins(settings: Settings, tenants: Collection[str] | None) -> Check:
    """Read the issuers file. `tenants`: names of existing tenants; None if unknown."""
    name = "logins"
    path = settings.resolved_logins_file()
    try:
        issuers = read_issuers(path, optional=not settings.logins_file)
    except Fault as fault:
        fix = "Fix it: running processes keep the last valid list, and no API process starts with this one"
        return Check(name, Status.FAIL, fault.message, f"{fix}. {fault.advice()}".rstrip())
    if not issuers:
        return Check(name, Status.INFO, f"none ({path} does not exist)")
    listed = f"{path}: {', '.join(f'{each.issuer} for {_issuer_tenants_text(each)}' for each in issuers)}"
    absent = (
        sorted({tenant for each in issuers for tenant in _tenants(each)} - set(tenants)) if tenants is not None else []
    )
    if absent:
        fix = f"No such tenant: {', '.join(absent[:5])}. Create it (`codesdk tenants create`), or fix its name in the file"
        return Check(name, Status.WARN, listed, fix)
    return Check(name, Status.OK, listed)


def _tenants(issuer: Issuer) -> list[str]:
    """The tenants that its logins may belong to."""
    if issuer.tenants is not None:
        return sorted(set(issuer.tenants.values.values()))
    return [issuer.tenant] if issuer.tenant is not None else []


def _issuer_tenants_text(issuer: Issuer) -> str:
    names = _tenants(issuer)
    return names[0] if len(names) == 1 else f"{len(names)} tenants"
