"""Checks the MCP servers in the registry from their files; starts no server."""

from __future__ import annotations

from codesdk.errors import Fault
from codesdk.provision.checks.check import Check, Status
from codesdk.registry.registry import LoadedSource, read_manifests
from codesdk.registry.suspicious_text import find_suspicions
from codesdk.settings import Settings

NAME = "MCP servers"


def check_mcp_servers(settings: Settings) -> Check | None:
    """Check the sources' pins; None if there is no source."""
    try:
        sources = read_manifests(settings.registry_dir).sources
    except Fault as fault:
        return Check(NAME, Status.FAIL, fault.message, fault.advice())
    if not sources:
        return None
    told = ", ".join(_describe(each) for each in sources)
    bare = [each.source.name for each in sources if not each.pins.tools]
    suspect = [each.source.name for each in sources if any(find_suspicions(pin) for pin in each.pins.tools)]
    if bare:
        return Check(NAME, Status.WARN, told, f"Review and accept its tools: codesdk tools pin {bare[0]}")
    if suspect:
        mend = "Review suspicious text in accepted descriptions: codesdk tools lint"
        return Check(NAME, Status.WARN, told, mend)
    return Check(NAME, Status.OK, told)


def _describe(each: LoadedSource) -> str:
    count = len(each.pins.tools)
    where = " (elsewhere)" if each.source.manifest.url else ""
    return f"{each.source.name}{where}: {count or 'no'} tool{'s' * (count != 1)} accepted"
