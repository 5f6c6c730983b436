"""`codesdk tenants`: create, list, show, suspend, limit."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from codesdk.cli.admin import open_admin_client, tenant_of
from codesdk.cli.console.arguments import parse_quota, validate_name
from codesdk.cli.console.terminal import Printer, ResponsiveTable, format_time, sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.tenancy.principal import PrincipalRecord
from codesdk.tenancy.quotas import Quota
from codesdk.tenancy.tenant import Tenant


def create(name: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Create a tenant.

    Raises:
        InputWrong: the name is invalid.
    """
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        made = admin.create_tenant(validate_name(name))
    if as_json:
        printer.emit(made)
    else:
        printer.progress(f"It has no principals yet: `codesdk keys create NAME --role operator --tenant {made.id}`.")
        printer.out.print(made.id)


def show_all(*, data_dir: Path | None, as_json: bool) -> None:
    """List tenants."""
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        found = admin.tenants()
    if as_json:
        printer.emit({"tenants": found})
        return
    shown = _columns("tenant", "name", "made (UTC)", "weight", "state")
    for each in found:
        shown.add_row(each.id, Text(sanitize(each.name)), _format_date(each.created_at), str(each.weight), _state(each))
    printer.rows(shown)


def show(tenant: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Show a tenant with its principals and usage."""
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        found = tenant_of(admin, tenant)
        principals = admin.principals(found.id)
        quotas = admin.quotas(found.id)
    if as_json:
        printer.emit({**found.model_dump(mode="json"), "principals": principals, "quotas": quotas})
        return
    printer.out.print(Text(f"{found.id}  {sanitize(found.name)}  {_state(found)}"))
    printer.rows(_principals(principals))
    printer.rows(_quotas(quotas))


def set_weight(tenant: str, weight: int, *, data_dir: Path | None, as_json: bool) -> None:
    """Set a tenant's share of each host."""
    with open_admin_client(load_settings(data_dir)) as admin:
        done = admin.set_weight(tenant_of(admin, tenant).id, weight)
    _print_tenant(done, f"Set weight {done.weight} for", as_json=as_json)


def allow_yolo(tenant: str, *, allowed: bool, data_dir: Path | None, as_json: bool) -> None:
    """Allow or forbid the permission mode `yolo` for a tenant's sessions."""
    with open_admin_client(load_settings(data_dir)) as admin:
        done = admin.allow_yolo(tenant_of(admin, tenant).id, allowed=allowed)
    _print_tenant(done, f"{'Allowed' if done.yolo else 'Forbade'} yolo for", as_json=as_json)


def suspend(tenant: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Suspend a tenant: its keys and tokens stop working."""
    with open_admin_client(load_settings(data_dir)) as admin:
        done = admin.suspend(tenant_of(admin, tenant).id)
    _print_tenant(done, "Suspended", as_json=as_json)


def resume(tenant: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Resume a suspended tenant."""
    with open_admin_client(load_settings(data_dir)) as admin:
        done = admin.resume(tenant_of(admin, tenant).id)
    _print_tenant(done, "Resumed", as_json=as_json)


def quota(tenant: str, changes: list[str], *, data_dir: Path | None, as_json: bool) -> None:
    """Set the given limits, then show all.

    Raises:
        InputWrong: a limit is invalid; none was set.
    """
    printer = Printer(as_json=as_json)
    wanted = dict(parse_quota(change) for change in changes)
    with open_admin_client(load_settings(data_dir)) as admin:
        found = tenant_of(admin, tenant)
        quotas = admin.set_limits(found.id, wanted) if wanted else admin.quotas(found.id)
    if as_json:
        printer.emit({"tenant_id": found.id, "quotas": quotas})
    else:
        printer.rows(_quotas(quotas))


def _print_tenant(tenant: Tenant, word: str, *, as_json: bool) -> None:
    Printer(as_json=as_json).answer(tenant, f"{word} {tenant.id} ({sanitize(tenant.name)}).")


def _principals(found: list[PrincipalRecord]) -> ResponsiveTable:
    shown = _columns("principal", "name", "kind", "roles", "state")
    for each in found:
        state = "disabled" if each.disabled_at is not None else ""
        roles = ", ".join(each.roles) + (" (installation)" if each.reach == "instance" else "")
        shown.add_row(each.id, Text(sanitize(each.name)), each.kind.value, roles, state)
    return shown


def _quotas(found: list[Quota]) -> ResponsiveTable:
    shown = _columns("resource", "used", "limit", "from")
    for each in found:
        most = str(each.limit) if each.limit else "none"
        shown.add_row(each.resource.value, str(each.used), most, "tenant" if each.own else "default")
    return shown


def _columns(*names: str) -> ResponsiveTable:
    return ResponsiveTable(*names, folds=("state", "name"))


def _state(tenant: Tenant) -> str:
    state = "active" if tenant.suspended_at is None else f"suspended since {_format_date(tenant.suspended_at)}"
    return f"{state}, yolo allowed" if tenant.yolo else state


def _format_date(moment: float) -> str:
    return format_time(moment, "%Y-%m-%d %H:%M")
