"""Checks the list of login issuers as the API would read it."""

from __future__ import annotations

from collections.abc import Collection

from codesdk.errors import Fault
from codesdk.provision.checks.check import Check, Status
from codesdk.settings import Settings
from codesdk.tenancy.logins import Issuer, read_issuers

NAME = "logins"


def check_logins(settings: Settings, tenants: Collection[str] | None) -> Check:
    """Read the issuers file. `tenants`: names of existing tenants; None if unknown."""
    path = settings.resolved_logins_file()
    try:
        issuers = read_issuers(path, optional=not settings.logins_file)
    except Fault as fault:
        mend = "Fix it: running processes keep the last valid list, and no API process starts with this one"
        return Check(NAME, Status.FAIL, fault.message, f"{mend}. {fault.advice()}".rstrip())
    if not issuers:
        return Check(NAME, Status.INFO, f"nobody's ({path} is not there)")
    told = f"{path}: {', '.join(f'{each.issuer} for {_issuer_tenants_text(each)}' for each in issuers)}"
    absent = sorted({name for each in issuers for name in _tenants(each)} - set(tenants)) if tenants is not None else []
    if absent:
        mend = f"No such tenant: {', '.join(absent[:5])}. Create it (`codesdk tenants create`), or fix its name in the file"
        return Check(NAME, Status.WARN, told, mend)
    return Check(NAME, Status.OK, told)


def _tenants(issuer: Issuer) -> list[str]:
    """The tenants that its logins may belong to."""
    if issuer.tenants is not None:
        return sorted(set(issuer.tenants.values.values()))
    return [issuer.tenant] if issuer.tenant is not None else []


def _issuer_tenants_text(issuer: Issuer) -> str:
    names = _tenants(issuer)
    return names[0] if len(names) == 1 else f"{len(names)} tenants"
