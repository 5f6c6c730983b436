"""`codesdk keys`: create, list, revoke."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.text import Text

from codesdk.cli.admin import AdminClient, open_admin_client, tenant_of
from codesdk.cli.console.arguments import InputWrong, parse_duration, validate_group_name, validate_name
from codesdk.cli.console.terminal import Printer, ResponsiveTable, format_time, sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.installation.init import show_key
from codesdk.domain.ids import PrincipalId, TenantId
from codesdk.tenancy.keys import ApiKey
from codesdk.tenancy.principal import PrincipalKind, PrincipalRecord, PrincipalUnknown, Reach, Role


def create(
    principal: str,
    *,
    tenant: str,
    name: str | None,
    roles: tuple[Role, ...],
    program: bool,
    installation: bool = False,
    groups: tuple[str, ...] = (),
    expires: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Create a key for a principal, by name or id. Creates the principal if it doesn't exist and roles are given.

    `installation`: its roles apply to the whole installation instead of only its tenant.

    Raises:
        PrincipalUnknown: there is no such principal, and no role to create it with.
        InputWrong: a name or the duration is invalid, or `installation` is set and the principal belongs to its
        tenant alone.
    """
    printer = Printer(as_json=as_json)
    label = None if name is None else validate_name(name)
    ttl_s = None if expires is None else parse_duration(expires)
    joins = tuple(validate_group_name(group) for group in groups)
    kind = PrincipalKind.PROGRAM if program else PrincipalKind.PERSON
    reach = Reach.INSTANCE if installation else Reach.TENANT
    with open_admin_client(load_settings(data_dir)) as admin:
        owner = tenant_of(admin, tenant)
        holder = _find_or_create_principal(admin, owner.id, principal, roles, kind=kind, reach=reach)
        if joins:
            admin.update_groups(holder.id, join=joins)
        made = admin.create_key(holder.id, label or holder.name, ttl_s)
    if as_json:
        printer.emit(made)
    else:
        held = ", ".join(holder.roles)
        show_key(printer, made, f"The API key of {sanitize(holder.name)} ({held}) in {sanitize(owner.name)}")


def show(*, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """List a tenant's keys."""
    with open_admin_client(load_settings(data_dir)) as admin:
        owner = tenant_of(admin, tenant)
        keys = admin.keys(owner.id)
        holders = {each.id: each for each in admin.principals(owner.id)}
    Printer(as_json=as_json).listing("keys", keys, partial(_table, holders), "There is no key.")


def revoke(key: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Revoke a key."""
    with open_admin_client(load_settings(data_dir)) as admin:
        revoked = admin.revoke_key(key)
    Printer(as_json=as_json).answer(revoked, f"Revoked {revoked.id} ({sanitize(revoked.name)}).")


def _find_or_create_principal(
    admin: AdminClient, tenant: TenantId, wanted: str, roles: tuple[Role, ...], *, kind: PrincipalKind, reach: Reach
) -> PrincipalRecord:
    there = [each for each in admin.principals(tenant) if each.disabled_at is None]
    found = next((each for each in there if wanted in (each.id, each.name)), None)
    if found is not None:
        if reach is Reach.INSTANCE and found.reach is not reach:
            raise InputWrong(f"{wanted} exists already, and its roles apply only to its tenant. Choose another name.")
        return found
    if not roles:
        raise PrincipalUnknown(
            f"The tenant has no principal {wanted}.", advice="Pass --role (repeatable) to create it, or name another."
        )
    return admin.create_principal(tenant, validate_name(wanted), roles, kind, reach)


def _table(holders: dict[PrincipalId, PrincipalRecord], keys: Sequence[ApiKey]) -> ResponsiveTable:
    columns = ("key", "begins with", "principal", "for", "last used", "state")
    shown = ResponsiveTable(*columns, folds=("principal", "for", "state"))
    for key in keys:
        holder = holders.get(key.principal_id)
        names = (sanitize(holder.name) if holder else "", sanitize(key.name))
        shown.add_row(key.id, Text(key.prefix), *map(Text, names), _format_date(key.last_used_at), _state(key))
    return shown


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return f"revoked {_format_date(key.revoked_at)}"
    return "good" if key.expires_at is None else f"until {_format_date(key.expires_at)}"


def _format_date(moment: float | None) -> str:
    return format_time(moment, "%Y-%m-%d")
